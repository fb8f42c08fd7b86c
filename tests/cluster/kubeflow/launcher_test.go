package component

// KFP's launcher runs every step of $VOXLINE_IR/refresh.yaml, each as in a new pod: it downloads inputs, starts the
// executor, collects and uploads outputs. Metadata goes through the converters of ML Metadata, both ways. Writes the
// artifacts into $VOXLINE_OUT/launcher.json. $VOXLINE_FAILS_IN names a step that must fail; then none after it runs.
// A second test runs the trials of a search.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeflow/pipelines/api/v2alpha1/go/pipelinespec"
	"github.com/kubeflow/pipelines/backend/src/v2/metadata"
	"github.com/kubeflow/pipelines/backend/src/v2/objectstore"
	pb "github.com/kubeflow/pipelines/third_party/ml-metadata/go/ml_metadata"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/memblob"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"
)

const voxlineRoot = "minio://mlpipeline/private-artifacts/team-speech/v2/artifacts"

type voxlineHouse struct {
	spec       *pipelinespec.PipelineSpec
	deployment *pipelinespec.PipelineDeploymentConfig
	bucket     *blob.Bucket
	config     *objectstore.Config
}

func voxlineOpen(t *testing.T, name string) voxlineHouse {
	raw, err := os.ReadFile(filepath.Join(os.Getenv("VOXLINE_IR"), name))
	if err != nil {
		t.Fatal(err)
	}
	specJSON, err := yaml.YAMLToJSON(bytes.Split(raw, []byte("\n---\n"))[0])
	if err != nil {
		t.Fatal(err)
	}
	spec, deployment := &pipelinespec.PipelineSpec{}, &pipelinespec.PipelineDeploymentConfig{}
	if err := protojson.Unmarshal(specJSON, spec); err != nil {
		t.Fatal(err)
	}
	dj, _ := protojson.Marshal(spec.DeploymentSpec)
	if err := protojson.Unmarshal(dj, deployment); err != nil {
		t.Fatal(err)
	}
	bucket, err := blob.OpenBucket(context.Background(), "mem://test-bucket")
	if err != nil {
		t.Fatal(err)
	}
	config, err := objectstore.ParseBucketConfig(voxlineRoot, nil)
	if err != nil {
		t.Fatal(err)
	}
	return voxlineHouse{spec, deployment, bucket, config}
}

// One step, as in a new pod.
func (house voxlineHouse) launch(input *pipelinespec.ExecutorInput, component *pipelinespec.ComponentSpec) (*pipelinespec.ExecutorOutput, error) {
	container := house.deployment.Executors[component.GetExecutorLabel()].GetContainer()
	arguments := append(append([]string{}, container.Command[1:]...), container.Args...)
	os.RemoveAll("/minio")
	client := &fake.Clientset{}
	out, _, err := executeV2(context.Background(), input, component, container.Command[0], arguments, house.bucket, house.config,
		metadata.NewFakeClient(), "team-speech", client, "true", "", &OpenBucketConfig{context.Background(), client, "team-speech", house.config})
	return out, err
}

func TestVoxlineLauncher(t *testing.T) {
	if os.Getenv("VOXLINE_DATASET") != "" {
		t.Skip("only the trials of a search are run")
	}
	house := voxlineOpen(t, os.Getenv("VOXLINE_GRAPH")+".yaml")
	spec, bucket := house.spec, house.bucket
	artifacts := map[string]*pipelinespec.RuntimeArtifact{}
	for _, step := range strings.Split(os.Getenv("VOXLINE_STEPS"), ",") {
		component := spec.Components["comp-"+step]
		input := voxlineInput(spec, spec.Root.GetDag().Tasks[step], artifacts)
		voxlineOutputs(input, component, step)
		out, err := house.launch(input, component)
		if step == os.Getenv("VOXLINE_FAILS_IN") {
			if err == nil {
				t.Fatalf("%s succeeded", step)
			}
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		for name, list := range out.Artifacts {
			artifacts[step+"/"+name] = voxlineStored(t, step+"/"+name, list.Artifacts[0])
		}
	}
	os.RemoveAll("/minio")
	described := map[string]json.RawMessage{}
	for name, artifact := range artifacts {
		described[name], _ = protojson.Marshal(artifact)
	}
	objects := map[string]int64{}
	for each := bucket.List(nil); ; {
		object, err := each.Next(context.Background())
		if err == io.EOF {
			break
		}
		objects[object.Key] = object.Size
	}
	b, _ := json.MarshalIndent(map[string]any{"artifacts": described, "objects": objects}, "", " ")
	if err := os.WriteFile(filepath.Join(os.Getenv("VOXLINE_OUT"), "launcher.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// The trials of $VOXLINE_IR/search.yaml, one for each item of the loop, and what chooses among them. The dataset is the
// artifact whose metadata $VOXLINE_DATASET holds. Writes the artifact of each trial, in their order, and those of the choice.
func TestVoxlineTrials(t *testing.T) {
	if os.Getenv("VOXLINE_DATASET") == "" {
		t.Skip("no dataset")
	}
	house := voxlineOpen(t, "search.yaml")
	about := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(os.Getenv("VOXLINE_DATASET")), about); err != nil {
		t.Fatal(err)
	}
	var loop, choice *pipelinespec.PipelineTaskSpec
	for name, task := range house.spec.Root.GetDag().Tasks {
		if task.GetParameterIterator() != nil {
			loop = task
		}
		if name == "choose" {
			choice = task
		}
	}
	var items []string
	if err := json.Unmarshal([]byte(loop.GetParameterIterator().GetItems().GetRaw()), &items); err != nil {
		t.Fatal(err)
	}
	inner := house.spec.Components[loop.GetComponentRef().GetName()]
	task := inner.GetDag().Tasks["trial"]
	component := house.spec.Components[task.GetComponentRef().GetName()]
	given := func(source *pipelinespec.TaskInputsSpec_InputParameterSpec, item string) *structpb.Value {
		if constant := source.GetRuntimeValue().GetConstant(); constant != nil {
			return constant
		}
		name := source.GetComponentInputParameter()
		if name == loop.GetParameterIterator().GetItemInput() {
			return structpb.NewStringValue(item)
		}
		if outer := loop.Inputs.GetParameters()[name]; outer != nil {
			name = outer.GetComponentInputParameter()
		}
		return house.spec.Root.InputDefinitions.Parameters[name].GetDefaultValue()
	}
	list := &pipelinespec.ArtifactList{}
	described := map[string][]json.RawMessage{}
	for number, item := range items {
		in := &pipelinespec.ExecutorInput{Inputs: &pipelinespec.ExecutorInput_Inputs{ParameterValues: map[string]*structpb.Value{},
			Artifacts: map[string]*pipelinespec.ArtifactList{"dataset": {Artifacts: []*pipelinespec.RuntimeArtifact{
				{Name: "dataset", Uri: voxlineRoot + "/dataset", Metadata: about}}}}}}
		for name, source := range task.Inputs.GetParameters() {
			in.Inputs.ParameterValues[name] = given(source, item)
		}
		voxlineOutputs(in, component, fmt.Sprintf("trial-%d", number))
		out, err := house.launch(in, component)
		if err != nil {
			t.Fatalf("trial %d: %v", number, err)
		}
		stored := voxlineStored(t, "trained", out.Artifacts["trained"].Artifacts[0])
		list.Artifacts = append(list.Artifacts, stored)
		b, _ := protojson.Marshal(stored)
		described["trials"] = append(described["trials"], b)
	}
	component = house.spec.Components[choice.GetComponentRef().GetName()]
	in := &pipelinespec.ExecutorInput{Inputs: &pipelinespec.ExecutorInput_Inputs{ParameterValues: map[string]*structpb.Value{},
		Artifacts: map[string]*pipelinespec.ArtifactList{"trials": list}}}
	for name, source := range choice.Inputs.GetParameters() {
		in.Inputs.ParameterValues[name] = given(source, "")
	}
	voxlineOutputs(in, component, "choose")
	out, err := house.launch(in, component)
	if err != nil {
		t.Fatalf("choose: %v", err)
	}
	os.RemoveAll("/minio")
	for _, name := range []string{"model", "metrics"} {
		b, _ := protojson.Marshal(voxlineStored(t, name, out.Artifacts[name].Artifacts[0]))
		described[name] = append(described[name], b)
	}
	var report []byte
	for each := house.bucket.List(nil); ; {
		object, end := each.Next(context.Background())
		if end == io.EOF {
			break
		}
		if strings.HasSuffix(object.Key, "/choose/salt/report") {
			report, err = house.bucket.ReadAll(context.Background(), object.Key)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(string(report))
	described["report"] = append(described["report"], b)
	b, _ = json.MarshalIndent(described, "", " ")
	if err := os.WriteFile(filepath.Join(os.Getenv("VOXLINE_OUT"), "trials.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func voxlineInput(spec *pipelinespec.PipelineSpec, task *pipelinespec.PipelineTaskSpec, artifacts map[string]*pipelinespec.RuntimeArtifact) *pipelinespec.ExecutorInput {
	in := &pipelinespec.ExecutorInput{Inputs: &pipelinespec.ExecutorInput_Inputs{ParameterValues: map[string]*structpb.Value{}, Artifacts: map[string]*pipelinespec.ArtifactList{}}}
	for name, source := range task.Inputs.GetParameters() {
		if value := spec.Root.InputDefinitions.Parameters[source.GetComponentInputParameter()].GetDefaultValue(); value != nil {
			in.Inputs.ParameterValues[name] = value
		}
	}
	for name, source := range task.Inputs.GetArtifacts() {
		from := source.GetTaskOutputArtifact()
		in.Inputs.Artifacts[name] = &pipelinespec.ArtifactList{Artifacts: []*pipelinespec.RuntimeArtifact{artifacts[from.ProducerTask+"/"+from.OutputArtifactKey]}}
	}
	return in
}

// What the driver provisions, executor-logs included.
func voxlineOutputs(in *pipelinespec.ExecutorInput, component *pipelinespec.ComponentSpec, step string) {
	in.Outputs = &pipelinespec.ExecutorInput_Outputs{Artifacts: map[string]*pipelinespec.ArtifactList{},
		OutputFile: "/minio/mlpipeline/private-artifacts/team-speech/v2/artifacts/refresh/r/" + step + "/salt/output_metadata.json"}
	types := map[string]*pipelinespec.ArtifactTypeSchema{"executor-logs": {Kind: &pipelinespec.ArtifactTypeSchema_SchemaTitle{SchemaTitle: "system.Artifact"}}}
	for name, artifact := range component.OutputDefinitions.GetArtifacts() {
		types[name] = artifact.ArtifactType
	}
	for name, kind := range types {
		in.Outputs.Artifacts[name] = &pipelinespec.ArtifactList{Artifacts: []*pipelinespec.RuntimeArtifact{{Name: name, Uri: voxlineRoot + "/refresh/r/" + step + "/salt/" + name, Type: kind}}}
	}
}

// The artifact as the next step's driver reads it from ML Metadata.
func voxlineStored(t *testing.T, name string, artifact *pipelinespec.RuntimeArtifact) *pipelinespec.RuntimeArtifact {
	stored := &pb.Artifact{Uri: &artifact.Uri, CustomProperties: map[string]*pb.Value{}}
	for key, value := range artifact.Metadata.GetFields() {
		converted, err := metadata.StructValueToMLMDValue(value)
		if err != nil {
			t.Errorf("%s: metadata %s: %v", name, key, err)
			continue
		}
		stored.CustomProperties[key] = converted
	}
	b, _ := protojson.Marshal(stored)
	read, err := metadata.UnmarshalRuntimeArtifact(b)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	read.Uri = artifact.Uri
	return read
}
