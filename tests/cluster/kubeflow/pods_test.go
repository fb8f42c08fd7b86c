package driver

// What KFP makes of each compiled pipeline in $VOXLINE_IR: its upload parser, Argo's workflow, the driver's patch of each
// step's pod, laid over Argo's template; Kubernetes' check of pod security; Argo's merge with the controller's defaults
// that KFP installs. Writes one JSON file for each pipeline into $VOXLINE_OUT.

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	wfapi "github.com/argoproj/argo-workflows/v4/pkg/apis/workflow/v1alpha1"
	wfutil "github.com/argoproj/argo-workflows/v4/workflow/util"
	"github.com/kubeflow/pipelines/api/v2alpha1/go/pipelinespec"
	"github.com/kubeflow/pipelines/backend/src/apiserver/common"
	"github.com/kubeflow/pipelines/backend/src/apiserver/config/proxy"
	"github.com/kubeflow/pipelines/backend/src/apiserver/model"
	"github.com/kubeflow/pipelines/backend/src/apiserver/template"
	"github.com/kubeflow/pipelines/backend/src/common/util"
	"github.com/kubeflow/pipelines/backend/src/v2/expression"
	"github.com/kubeflow/pipelines/kubernetes_platform/go/kubernetesplatform"
	"github.com/spf13/viper"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	k8score "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

type voxlinePod struct {
	Spec            json.RawMessage `json:"spec"`
	PatchBytes      int             `json:"patch_bytes"`
	LongestArgument int             `json:"longest_argument"`
	Violations      []string        `json:"violations"`
}

type voxlineResult struct {
	Errors        []string           `json:"errors"`
	WorkflowBytes int                `json:"workflow_bytes"`
	TTL           *wfapi.TTLStrategy `json:"ttl"`
	MergedTTL     *wfapi.TTLStrategy `json:"merged_ttl"`
	Deadline      *int64             `json:"deadline"`
	RetryPolicies map[string]string  `json:"retry_policies"`
	// With VOXLINE_SPEC_PATCH as the API server's COMPILED_PIPELINE_SPEC_PATCH.
	PatchedPolicies map[string]string     `json:"patched_policies"`
	Pods            map[string]voxlinePod `json:"pods"`
	// Of the part of the graph that a step may leave out.
	Conditions map[string]voxlineCondition `json:"conditions"`
	// Of each loop: the items that the driver of the loop finds.
	Loops map[string][]string `json:"loops"`
	// Of what the workflow gives its drivers, each of which is an argument of a program.
	LongestParameter int `json:"longest_parameter"`
}

type voxlineCondition struct {
	Triggers  map[string]bool  `json:"triggers"` // output of the step before → whether the driver lets the part run
	When      string           `json:"when"`     // what Argo's controller evaluates then
	Templates []wfapi.Template `json:"templates"`
}

func TestVoxlinePods(t *testing.T) {
	proxy.InitializeConfigWithEmptyForTests()
	files, _ := filepath.Glob(os.Getenv("VOXLINE_IR") + "/*.yaml")
	if len(files) == 0 {
		t.Fatal("no compiled pipeline")
	}
	for _, file := range files {
		result := &voxlineResult{Pods: map[string]voxlinePod{}}
		voxlineCheck(t, file, result)
		b, err := json.MarshalIndent(result, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml") + ".json"
		if err := os.WriteFile(filepath.Join(os.Getenv("VOXLINE_OUT"), name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func voxlineCheck(t *testing.T, file string, result *voxlineResult) {
	fail := func(what string, err error) bool {
		if err != nil {
			result.Errors = append(result.Errors, what+": "+err.Error())
		}
		return err != nil
	}
	raw, err := os.ReadFile(file)
	if fail("read", err) {
		return
	}
	parsed, err := template.New(raw, template.TemplateOptions{})
	if fail("upload", err) {
		return
	}
	given, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".json") // with the parameters that `submit` gives
	if fail("read", err) {
		return
	}
	run := &model.Run{DisplayName: "nightly", Namespace: "team-speech", ServiceAccount: "voxline-train",
		PipelineSpec: model.PipelineSpec{RuntimeConfig: model.RuntimeConfig{Parameters: model.LargeText(given)}}}
	made, err := parsed.RunWorkflow(run, template.RunWorkflowOptions{RunID: "0d6d40b5-7b17-4c1e-8f2d-111111111111"})
	if fail("run", err) {
		return
	}
	wf := made.(*util.Workflow).Workflow
	b, _ := json.Marshal(wf)
	result.WorkflowBytes, result.TTL, result.Deadline = len(b), wf.Spec.TTLStrategy, wf.Spec.ActiveDeadlineSeconds
	result.RetryPolicies, err = voxlineMerge(wf, result)
	fail("controller", err)
	viper.Set(common.CompiledPipelineSpecPatch, os.Getenv("VOXLINE_SPEC_PATCH"))
	patched, err := parsed.RunWorkflow(run, template.RunWorkflowOptions{RunID: "0d6d40b5-7b17-4c1e-8f2d-111111111111"})
	viper.Set(common.CompiledPipelineSpecPatch, "{}")
	if fail("patch", err) {
		return
	}
	result.PatchedPolicies, err = voxlineMerge(patched.(*util.Workflow).Workflow, &voxlineResult{})
	fail("controller", err)
	docs := bytes.Split(raw, []byte("\n---\n"))
	spec, platform := &pipelinespec.PipelineSpec{}, &pipelinespec.PlatformSpec{}
	for i, message := range []proto.Message{spec, platform} {
		j, err := yaml.YAMLToJSON(docs[i])
		if fail("yaml", err) || fail("spec", protojson.Unmarshal(j, message)) {
			return
		}
	}
	deployment := &pipelinespec.PipelineDeploymentConfig{}
	dj, _ := protojson.Marshal(spec.DeploymentSpec)
	if fail("deployment", protojson.Unmarshal(dj, deployment)) {
		return
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	fail("condition", voxlineConditions(spec, wf, result))
	fail("loop", voxlineLoops(spec, result))
	for _, x := range wf.Spec.Templates {
		if x.DAG == nil {
			continue
		}
		for _, one := range x.DAG.Tasks {
			for _, parameter := range one.Arguments.Parameters {
				result.LongestParameter = max(result.LongestParameter, len(parameter.GetValue()))
			}
		}
	}
	for name, component := range spec.Components {
		if component.GetDag() != nil {
			continue
		}
		step := strings.TrimPrefix(name, "comp-")
		container := deployment.Executors[component.GetExecutorLabel()].GetContainer()
		task := spec.Root.GetDag().Tasks[step]
		for _, part := range spec.Components {
			if nested := part.GetDag().GetTasks()[step]; nested != nil {
				task = nested
			}
		}
		input := voxlineInput(spec, task)
		input.Outputs = provisionOutputs("minio://mlpipeline/private-artifacts/team-speech/v2/artifacts/r", step, component.GetOutputDefinitions(), "salt", "true")
		pod, err := initPodSpecPatch(container, component, input, 42, spec.PipelineInfo.Name, "run", "asr-x7k2p", "1", "true", "false", &TaskConfig{}, false, false, "",
			"ml-pipeline.kubeflow.svc.cluster.local", "8887", "metadata-grpc-service.kubeflow.svc.cluster.local", "8080", nil)
		if fail(step+": driver", err) {
			continue
		}
		config := &kubernetesplatform.KubernetesExecutorConfig{}
		kj, _ := platform.Platforms["kubernetes"].DeploymentSpec.Executors[component.GetExecutorLabel()].MarshalJSON()
		if fail(step+": platform", protojson.Unmarshal(kj, config)) {
			continue
		}
		options := Options{KubernetesExecutorConfig: config, Component: component, Task: task, Container: container}
		if fail(step+": driver", extendPodSpecPatch(context.Background(), pod, options, nil, nil, nil, map[string]*structpb.Value{}, &TaskConfig{})) {
			continue
		}
		patch, _ := json.Marshal(pod)
		merged, err := strategicpatch.StrategicMergePatch(voxlineTemplatePod(wf), patch, k8score.PodSpec{})
		if fail(step+": merge", err) {
			continue
		}
		whole := k8score.PodSpec{}
		if fail(step+": pod", json.Unmarshal(merged, &whole)) {
			continue
		}
		described := voxlinePod{Spec: merged, PatchBytes: len(patch)}
		for _, argument := range append(append([]string{}, pod.Containers[0].Command...), pod.Containers[0].Args...) {
			described.LongestArgument = max(described.LongestArgument, len(argument))
		}
		for _, check := range evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &metav1.ObjectMeta{}, &whole) {
			if !check.Allowed {
				described.Violations = append(described.Violations, check.ForbiddenReason+": "+check.ForbiddenDetail)
			}
		}
		result.Pods[step] = described
	}
}

// The driver's own decision about each task with a condition, for both outputs of the step that it reads.
func voxlineConditions(spec *pipelinespec.PipelineSpec, wf *wfapi.Workflow, result *voxlineResult) error {
	result.Conditions = map[string]voxlineCondition{}
	expr, err := expression.New()
	if err != nil {
		return err
	}
	for name, task := range spec.Root.GetDag().Tasks {
		if task.GetTriggerPolicy().GetCondition() == "" {
			continue
		}
		found := voxlineCondition{Triggers: map[string]bool{}}
		for _, output := range []string{"yes", "no"} {
			values := map[string]*structpb.Value{}
			for parameter, source := range task.Inputs.GetParameters() {
				if source.GetTaskOutputParameter() != nil {
					values[parameter] = structpb.NewStringValue(output)
				}
			}
			input := &pipelinespec.ExecutorInput{Inputs: &pipelinespec.ExecutorInput_Inputs{ParameterValues: values}}
			if found.Triggers[output], err = expr.Condition(input, task.GetTriggerPolicy().GetCondition()); err != nil {
				return err
			}
		}
		for _, x := range wf.Spec.Templates {
			if x.DAG == nil {
				continue
			}
			found.Templates = append(found.Templates, wfapi.Template{Name: x.Name, DAG: x.DAG})
			for _, one := range x.DAG.Tasks {
				if one.Name == name {
					found.When = one.When
				}
			}
		}
		result.Conditions[name] = found
	}
	return nil
}

// The items of each loop, as `DAG` reads constant ones.
func voxlineLoops(spec *pipelinespec.PipelineSpec, result *voxlineResult) error {
	result.Loops = map[string][]string{}
	for name, task := range spec.Root.GetDag().Tasks {
		iterator := task.GetParameterIterator()
		if iterator == nil {
			continue
		}
		var raw any
		if err := json.Unmarshal([]byte(iterator.GetItems().GetRaw()), &raw); err != nil {
			return err
		}
		value, err := structpb.NewValue(raw)
		if err != nil {
			return err
		}
		items, err := getItems(value)
		if err != nil {
			return err
		}
		for _, item := range items {
			result.Loops[name] = append(result.Loops[name], item.GetStringValue())
		}
	}
	return nil
}

func voxlineInput(spec *pipelinespec.PipelineSpec, task *pipelinespec.PipelineTaskSpec) *pipelinespec.ExecutorInput {
	in := &pipelinespec.ExecutorInput{Inputs: &pipelinespec.ExecutorInput_Inputs{ParameterValues: map[string]*structpb.Value{}, Artifacts: map[string]*pipelinespec.ArtifactList{}}}
	for name, source := range task.Inputs.GetParameters() {
		if value := spec.Root.InputDefinitions.Parameters[source.GetComponentInputParameter()].GetDefaultValue(); value != nil {
			in.Inputs.ParameterValues[name] = value
		}
	}
	for name := range task.Inputs.GetArtifacts() {
		metadata, _ := structpb.NewStruct(map[string]any{"place": "gs://b/store/x/0123456789abcdef0123456789abcdef/abcdefabcdef", "reused": 0.0})
		in.Inputs.Artifacts[name] = &pipelinespec.ArtifactList{Artifacts: []*pipelinespec.RuntimeArtifact{{Name: "7", Uri: "minio://mlpipeline/a/" + name, Metadata: metadata}}}
	}
	return in
}

// The pod that Argo makes of the template of a container step, before the driver's patch.
func voxlineTemplatePod(wf *wfapi.Workflow) []byte {
	var pod k8score.PodSpec
	for _, x := range wf.Spec.Templates {
		if strings.HasSuffix(x.Name, "system-container-impl") {
			pod = k8score.PodSpec{SecurityContext: x.SecurityContext, Volumes: x.Volumes}
			c := x.Container.DeepCopy()
			c.Name = "main"
			pod.Containers = []k8score.Container{*c}
			for _, i := range x.InitContainers {
				pod.InitContainers = append(pod.InitContainers, i.Container)
			}
		}
	}
	b, _ := json.Marshal(pod)
	return b
}

// Argo's own merges, with the configuration of the controller that KFP installs.
// Gives the policy by which each template is retried.
func voxlineMerge(wf *wfapi.Workflow, result *voxlineResult) (map[string]string, error) {
	raw, err := os.ReadFile(os.Getenv("VOXLINE_KFP") + "/manifests/kustomize/third-party/argo/base/workflow-controller-configmap-patch.yaml")
	if err != nil {
		return nil, err
	}
	var configMap struct{ Data map[string]string }
	if err := yaml.Unmarshal(raw, &configMap); err != nil {
		return nil, err
	}
	defaults := &wfapi.Workflow{}
	if err := yaml.Unmarshal([]byte(configMap.Data["workflowDefaults"]), defaults); err != nil {
		return nil, err
	}
	merged := wf.DeepCopy()
	if err := wfutil.MergeTo(defaults, merged); err != nil {
		return nil, err
	}
	result.MergedTTL = merged.Spec.TTLStrategy
	policies := map[string]string{}
	templateDefaults, _ := json.Marshal(merged.Spec.TemplateDefaults)
	for _, x := range merged.Spec.Templates {
		j, _ := json.Marshal(x)
		b, err := strategicpatch.StrategicMergePatch(templateDefaults, j, wfapi.Template{})
		if err != nil {
			return nil, err
		}
		y := wfapi.Template{}
		if err := json.Unmarshal(b, &y); err != nil {
			return nil, err
		}
		if y.RetryStrategy != nil {
			policies[x.Name] = string(y.RetryStrategy.RetryPolicyActual())
		}
	}
	return policies, nil
}
