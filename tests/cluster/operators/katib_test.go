package experiment

// Called by sources.py, which lays this file into the folder of Katib's webhooks. It asks them about Experiments, as the
// API server does, and lets Katib's generator write the job of one trial.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	commonv1beta1 "github.com/kubeflow/katib/pkg/apis/controller/common/v1beta1"
	experimentsv1beta1 "github.com/kubeflow/katib/pkg/apis/controller/experiments/v1beta1"
	"github.com/kubeflow/katib/pkg/controller.v1beta1/consts"
	"github.com/kubeflow/katib/pkg/controller.v1beta1/experiment/manifest"
)

type asked struct {
	Name        string                              `json:"name"`
	Namespace   corev1.Namespace                    `json:"namespace"`
	Experiment  json.RawMessage                     `json:"experiment"`
	Assignments []commonv1beta1.ParameterAssignment `json:"assignments"`
}

type answered struct {
	Name    string          `json:"name"`
	Refused string          `json:"refused"`
	Trial   json.RawMessage `json:"trial"`
}

func TestVoxline(t *testing.T) {
	folder := os.Getenv("VOXLINE_OUT")
	text, err := os.ReadFile(filepath.Join(folder, "asked.json"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(folder, "katib-config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []asked
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	var answers []answered
	for _, one := range all {
		answer := answered{Name: one.Name}
		if answer.Trial, err = ask(one, string(config)); err != nil {
			answer.Refused = err.Error()
		}
		answers = append(answers, answer)
	}
	text, err = json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "answered.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func ask(one asked, config string) (json.RawMessage, error) {
	ctx := context.Background()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := experimentsv1beta1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	settings := corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: consts.KatibConfigMapName, Namespace: consts.DefaultKatibNamespace},
		Data:       map[string]string{consts.LabelKatibConfigTag: config},
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&one.Namespace, &settings).Build()
	var experiment experimentsv1beta1.Experiment
	if err := json.Unmarshal(one.Experiment, &experiment); err != nil {
		return nil, err
	}
	experiment.SetDefault() // what ExperimentDefaulter does
	raw, err := json.Marshal(experiment)
	if err != nil {
		return nil, err
	}
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Namespace: one.Namespace.Name, Object: runtime.RawExtension{Raw: raw},
	}}
	response := NewExperimentValidator(api, admission.NewDecoder(scheme)).Handle(ctx, request)
	if !response.Allowed {
		return nil, fmt.Errorf("%s", response.Result.Message)
	}
	trial, err := manifest.New(api).GetRunSpecWithHyperParameters(
		&experiment, experiment.Name+"-abcd", one.Namespace.Name, one.Assignments)
	if err != nil {
		return nil, err
	}
	return trial.MarshalJSON()
}
