package operators

// Called by sources.py. It imports Kubeflow Trainer and JobSet as modules, by the versions and hashes of go.mod and go.sum, and
// plays what happens to a TrainJob: Trainer's and JobSet's own webhooks and controllers, on controller-runtime's API in memory. What neither does,
// a scenario says: the end of a Job (Kubernetes' job controller), Kueue's `suspend`, the deletion of objects.

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobsetcontrollers "sigs.k8s.io/jobset/pkg/controllers"
	jobsetwebhooks "sigs.k8s.io/jobset/pkg/webhooks"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	jobruntimes "github.com/kubeflow/trainer/v2/pkg/runtime"
	runtimecore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	utiltesting "github.com/kubeflow/trainer/v2/pkg/util/testing"
	"github.com/kubeflow/trainer/v2/pkg/webhooks"
)

const rounds = 6 // of all controllers, after each event; two settle

type happening struct {
	Suspend *bool                 `json:"suspend"` // of the TrainJob, as Kueue sets it
	Job     *batchv1.JobCondition `json:"job"`     // how the Job ends
	Delete  bool                  `json:"delete"`  // Jobs that the JobSet's controller wants gone, and their pods, are
}

type scenario struct {
	Name    string                   `json:"name"`
	Runtime *trainer.TrainingRuntime `json:"runtime"`
	Job     *trainer.TrainJob        `json:"trainJob"`
	Events  []happening              `json:"events"`
}

type state struct {
	TrainJob trainer.TrainJob `json:"trainJob"`
	JobSets  []jobset.JobSet  `json:"jobSets"`
	Jobs     []batchv1.Job    `json:"jobs"`
	Services []corev1.Service `json:"services"`
	Told     []string         `json:"told"` // events of the controllers
	Faults   []string         `json:"faults"`
}

type played struct {
	Name    string   `json:"name"`
	Refused []string `json:"refused"`
	States  []state  `json:"states"`
}

func TestVoxline(t *testing.T) {
	folder := os.Getenv("VOXLINE_OUT")
	file, err := os.Open(filepath.Join(folder, "scenarios.json"))
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields() // as `kubectl apply` does
	var scenarios []scenario
	if err := decoder.Decode(&scenarios); err != nil {
		t.Fatal(err)
	}
	var answers []played
	for _, one := range scenarios {
		answers = append(answers, newWorld(t, one).play(one))
	}
	text, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "played.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

type world struct {
	t        *testing.T
	client   client.Client
	key      client.ObjectKey
	told     *record.FakeRecorder
	runtimes map[string]jobruntimes.Runtime
}

// newWorld makes the API. Runtimes register indexes when they are made, and the API takes indexes before it is made.
func newWorld(t *testing.T, one scenario) *world {
	ctx := context.Background()
	builder := utiltesting.NewClientBuilder().
		WithStatusSubresource(&trainer.TrainJob{}, &jobset.JobSet{}, &batchv1.Job{})
	if one.Runtime != nil {
		builder = builder.WithObjects(one.Runtime)
	}
	index := utiltesting.AsIndex(builder)
	if err := jobsetcontrollers.SetupJobSetIndexes(ctx, index); err != nil {
		t.Fatal(err)
	}
	if _, err := runtimecore.New(ctx, utiltesting.NewClientBuilder().Build(), index); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, client: builder.Build(), key: client.ObjectKeyFromObject(one.Job), told: record.NewFakeRecorder(1000)}
	runtimes, err := runtimecore.New(ctx, w.client, utiltesting.AsIndex(utiltesting.NewClientBuilder()))
	if err != nil {
		t.Fatal(err)
	}
	w.runtimes = runtimes
	return w
}

func (w *world) play(one scenario) played {
	ctx := context.Background()
	answer := played{Name: one.Name}
	refuse := func(_ admission.Warnings, err error) bool {
		if err != nil {
			answer.Refused = append(answer.Refused, err.Error())
		}
		return err != nil
	}
	if one.Runtime != nil && refuse((&webhooks.TrainingRuntimeWebhook{}).ValidateCreate(ctx, one.Runtime)) {
		return answer
	}
	// As TrainJobWebhook, which nobody else can make.
	runtime := w.runtimes[jobruntimes.RuntimeRefToRuntimeRegistryKey(one.Job.Spec.RuntimeRef)]
	if warnings, faults := runtime.ValidateObjects(ctx, nil, one.Job); refuse(warnings, faults.ToAggregate()) {
		return answer
	}
	w.must(w.client.Create(ctx, one.Job))
	answer.States = append(answer.States, w.settle())
	for _, happens := range one.Events {
		w.apply(happens)
		answer.States = append(answer.States, w.settle())
	}
	return answer
}

func (w *world) apply(happens happening) {
	ctx := context.Background()
	if happens.Suspend != nil {
		var job trainer.TrainJob
		w.must(w.client.Get(ctx, w.key, &job))
		job.Spec.Suspend = happens.Suspend
		w.must(w.client.Update(ctx, &job))
	}
	if happens.Job != nil {
		for _, job := range w.jobs() {
			if job.DeletionTimestamp != nil {
				continue
			}
			happens.Job.LastTransitionTime = metav1.Now()
			job.Status.Conditions = append(job.Status.Conditions, *happens.Job)
			w.must(w.client.Status().Update(ctx, &job))
		}
	}
	if happens.Delete {
		for _, job := range w.jobs() {
			if job.DeletionTimestamp != nil {
				job.Finalizers = nil
				w.must(w.client.Update(ctx, &job))
			}
		}
	}
}

// settle lets all controllers work, each as often as it takes.
func (w *world) settle() state {
	ctx := context.Background()
	now := state{}
	trainJobs := controller.NewTrainJobReconciler(w.client, w.told, w.runtimes)
	jobSets := jobsetcontrollers.NewJobSetReconciler(w.client, w.client.Scheme(), w.told)
	for range rounds {
		now.Faults = nil
		for _, controller := range []reconcile.Reconciler{trainJobs, jobSets} {
			if _, err := controller.Reconcile(ctx, reconcile.Request{NamespacedName: w.key}); err != nil {
				now.Faults = append(now.Faults, err.Error())
			}
			w.admit()
		}
	}
	w.must(w.client.Get(ctx, w.key, &now.TrainJob))
	var sets jobset.JobSetList
	w.must(w.client.List(ctx, &sets))
	var services corev1.ServiceList
	w.must(w.client.List(ctx, &services))
	now.JobSets, now.Jobs, now.Services = sets.Items, w.jobs(), services.Items
	for len(w.told.Events) > 0 {
		now.Told = append(now.Told, <-w.told.Events)
	}
	return now
}

// admit does what the API server does with a new JobSet: the defaults of its definition, and its webhook. A Job gets the
// finalizer by which it stays until its pods are gone.
func (w *world) admit() {
	ctx := context.Background()
	hook, err := jobsetwebhooks.NewJobSetWebhook(w.client)
	w.must(err)
	var sets jobset.JobSetList
	w.must(w.client.List(ctx, &sets))
	for _, one := range sets.Items {
		if one.Spec.SuccessPolicy != nil {
			continue
		}
		for i := range one.Spec.ReplicatedJobs {
			if one.Spec.ReplicatedJobs[i].GroupName == "" {
				one.Spec.ReplicatedJobs[i].GroupName = "default"
			}
		}
		w.must(hook.Default(ctx, &one))
		_, err := hook.ValidateCreate(ctx, &one)
		w.must(err)
		w.must(w.client.Update(ctx, &one))
	}
	for _, job := range w.jobs() {
		if len(job.Finalizers) == 0 {
			job.Finalizers = []string{metav1.FinalizerDeleteDependents}
			w.must(w.client.Update(ctx, &job))
		}
	}
}

func (w *world) jobs() []batchv1.Job {
	var jobs batchv1.JobList
	w.must(w.client.List(context.Background(), &jobs))
	return jobs.Items
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}
