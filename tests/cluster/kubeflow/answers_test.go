package server

// Writes what a KFP server answers for GET run, by its own converters, for workflows in the states that
// $VOXLINE_SCENARIOS describes. Of Argo's controller it only imitates how nodes are named and nested.

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	wfapi "github.com/argoproj/argo-workflows/v4/pkg/apis/workflow/v1alpha1"
	"github.com/kubeflow/pipelines/backend/src/apiserver/common"
	"github.com/kubeflow/pipelines/backend/src/apiserver/model"
	"github.com/kubeflow/pipelines/backend/src/common/util"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type voxlineScenario struct {
	Name      string
	Phase     wfapi.WorkflowPhase
	Message   string
	Numbered  bool // the controller's templateDefaults retry every template, as in KFP 2.17
	Cancelled bool
	Steps     []struct {
		Name     string
		Driver   wfapi.NodePhase // "": Succeeded
		Message  string          // of the driver
		Cached   bool            // KFP's cache had the outputs
		Attempts []struct {
			Phase   wfapi.NodePhase
			Message string
		}
	}
}

const voxlineWorkflow, voxlineRun = "asr-x7k2p", "0d6d40b5-7b17-4c1e-8f2d-111111111111"

func TestVoxlineAnswers(t *testing.T) {
	raw, err := os.ReadFile(os.Getenv("VOXLINE_SCENARIOS"))
	if err != nil {
		t.Fatal(err)
	}
	var scenarios []voxlineScenario
	if err := json.Unmarshal(raw, &scenarios); err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for _, scenario := range scenarios {
		workflow := util.NewWorkflow(voxlineNodes(scenario))
		status := workflow.ExecutionStatus()
		state := model.RuntimeState(string(status.Condition())).ToV2()
		if workflow.IsTerminating() {
			state = model.RuntimeState(model.RunTerminatingConditionsV1).ToV2()
		}
		tasks, err := toModelTasks(util.ExecutionSpec(workflow))
		if err != nil {
			t.Fatal(err)
		}
		sort.Slice(tasks, func(i, j int) bool { return tasks[i].PodName < tasks[j].PodName }) // they come from a map
		for i, task := range tasks {
			task.UUID = fmt.Sprintf("00000000-0000-4000-8000-%012d", i) // the task store gives it
		}
		run := &model.Run{UUID: voxlineRun, DisplayName: "nightly", ExperimentId: "e", StorageState: model.StorageStateAvailable,
			PipelineSpec: model.PipelineSpec{PipelineId: "p", PipelineVersionId: "v"},
			RunDetails: model.RunDetails{State: state, Conditions: string(state.ToV1()), CreatedAtInSec: 1767225600,
				FinishedAtInSec: status.FinishedAt(), WorkflowRuntimeManifest: model.LargeText(workflow.ToStringForStore()), TaskDetails: tasks,
				StateHistory: []*model.RuntimeStatus{{UpdateTimeInSec: 1767225600, State: state}}}}
		answer := map[string]json.RawMessage{}
		pods := map[string]string{}
		for _, node := range workflow.Status.Nodes {
			if node.Type == wfapi.NodeTypePod {
				pods[util.RetrievePodName(*workflow.Workflow, node)] = node.Name
			}
		}
		answer["pods"], _ = json.Marshal(pods)
		for key, message := range map[string]any{"v2beta1": toApiRun(run), "v1beta1": toApiRunDetailV1(run)} {
			b, err := common.CustomMarshaler().Marshal(message)
			if err != nil {
				t.Fatal(err)
			}
			answer[key] = b
		}
		out[scenario.Name] = answer
	}
	gone := httptest.NewRecorder()
	gone.WriteHeader(http.StatusOK) // as ReadRunLogV1 does before it looks for the pod
	(&RunLogServer{}).writeErrorToResponse(gone, http.StatusInternalServerError, util.NewBadRequestError(
		errors.New("pods \"x\" not found"), "Failed to read logs for run %v", voxlineRun))
	out["log-of-a-lost-pod"] = map[string]any{"status": gone.Code, "body": gone.Body.String()}
	b, _ := json.MarshalIndent(out, "", " ")
	if err := os.WriteFile(filepath.Join(os.Getenv("VOXLINE_OUT"), "answers.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func voxlineNodes(scenario voxlineScenario) *wfapi.Workflow {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	wf := &wfapi.Workflow{TypeMeta: metav1.TypeMeta{APIVersion: "argoproj.io/v1alpha1", Kind: "Workflow"},
		ObjectMeta: metav1.ObjectMeta{Name: voxlineWorkflow, Namespace: "team-speech", Labels: map[string]string{util.LabelKeyWorkflowRunId: voxlineRun},
			Annotations: map[string]string{"workflows.argoproj.io/pod-name-format": "v2"}}}
	if scenario.Cancelled {
		zero := int64(0)
		wf.Spec.ActiveDeadlineSeconds = &zero
	}
	wf.Status = wfapi.WorkflowStatus{Phase: scenario.Phase, Message: scenario.Message, StartedAt: metav1.NewTime(start), Nodes: wfapi.Nodes{}}
	minute := 0
	add := func(name, display, template string, kind wfapi.NodeType, phase wfapi.NodePhase, message string, seconds int) string {
		at := start.Add(time.Duration(minute) * time.Minute)
		node := wfapi.NodeStatus{ID: wf.NodeID(name), Name: name, DisplayName: display, TemplateName: template, Type: kind, Phase: phase, Message: message,
			StartedAt: metav1.NewTime(at)}
		if phase.Fulfilled(nil) {
			node.FinishedAt = metav1.NewTime(at.Add(time.Duration(seconds) * time.Second))
		}
		wf.Status.Nodes[node.ID] = node
		return name
	}
	child := func(parent, name string) {
		node := wf.Status.Nodes[wf.NodeID(parent)]
		node.Children = append(node.Children, wf.NodeID(name))
		wf.Status.Nodes[node.ID] = node
	}
	// A node, or a retry with one attempt where every template is retried. Returns the name that children extend.
	dag := func(name, display, template string, kind wfapi.NodeType, phase wfapi.NodePhase, message string, seconds int) string {
		if !scenario.Numbered {
			return add(name, display, template, kind, phase, message, seconds)
		}
		add(name, display, template, wfapi.NodeTypeRetry, phase, message, seconds)
		add(name+"(0)", display+"(0)", template, kind, phase, message, seconds)
		child(name, name+"(0)")
		return name + "(0)"
	}
	phase := wfapi.NodePhase(scenario.Phase)
	top := dag(voxlineWorkflow, voxlineWorkflow, "entrypoint", wfapi.NodeTypeDAG, phase, "", 3600)
	driver := dag(top+".root-driver", "root-driver", "system-dag-driver", wfapi.NodeTypePod, "Succeeded", "", 5)
	child(top, top+".root-driver")
	root := dag(top+".root", "root", "root", wfapi.NodeTypeDAG, phase, "", 3600)
	child(driver, top+".root")
	for number, step := range scenario.Steps {
		minute = number + 1
		driverPhase := step.Driver
		if driverPhase == "" {
			driverPhase = "Succeeded"
		}
		dag(root+"."+step.Name+"-driver", step.Name+"-driver", "system-container-driver", wfapi.NodeTypePod, driverPhase, step.Message, 4)
		child(root, root+"."+step.Name+"-driver")
		if step.Cached {
			body := dag(root+"."+step.Name, step.Name, "metadata-0-3-retry-system-container-executor", wfapi.NodeTypeDAG, "Succeeded", "", 0)
			child(body, add(body+".executor", "executor", "metadata-0-3-retry-system-container-impl", wfapi.NodeTypeSkipped, "Skipped", "when 'true != true' evaluated false", 0))
			continue
		}
		if len(step.Attempts) == 0 {
			if driverPhase != "Succeeded" && driverPhase != "Running" && driverPhase != "Pending" {
				add(root+"."+step.Name, step.Name, "metadata-0-3-retry-system-container-executor", wfapi.NodeTypeSkipped, "Omitted", "omitted: depends condition not met", 0)
			}
			continue
		}
		last := step.Attempts[len(step.Attempts)-1].Phase
		whole := last
		if last == "Pending" {
			whole = "Running"
		}
		body := dag(root+"."+step.Name, step.Name, "metadata-0-3-retry-system-container-executor", wfapi.NodeTypeDAG, whole, "", 42)
		message := ""
		if last == "Failed" || last == "Error" {
			message = "No more retries left"
		}
		add(body+".executor", "executor", "metadata-0-3-retry-system-container-impl", wfapi.NodeTypeRetry, whole, message, 42)
		child(body, body+".executor")
		for i, attempt := range step.Attempts {
			name := fmt.Sprintf("%s.executor(%d)", body, i)
			add(name, fmt.Sprintf("executor(%d)", i), "metadata-0-3-retry-system-container-impl", wfapi.NodeTypePod, attempt.Phase, attempt.Message, 40)
			child(body+".executor", name)
			node := wf.Status.Nodes[wf.NodeID(name)]
			uri := "minio://mlpipeline/private-artifacts/team-speech/v2/artifacts/voxline-asr/" + voxlineRun + "/" + step.Name + "/salt/executor-logs"
			patch, _ := json.Marshal(map[string]any{"containers": []any{map[string]any{"name": "main", "command": []string{"--executor_input",
				`{"outputs":{"artifacts":{"executor-logs":{"artifacts":[{"uri":"` + uri + `"}]}}}}`}}}})
			node.Inputs = &wfapi.Inputs{Parameters: []wfapi.Parameter{{Name: "pod-spec-patch", Value: wfapi.AnyStringPtr(string(patch))}}}
			wf.Status.Nodes[node.ID] = node
		}
	}
	if strings.HasSuffix(string(scenario.Phase), "ed") {
		wf.Status.FinishedAt = metav1.NewTime(start.Add(time.Hour))
	}
	return wf
}
