package component

// KFP's launcher runs every step of $VOXLINE_IR/refresh.yaml, each as in a new pod: it downloads inputs, starts the
// executor, collects and uploads outputs. Metadata goes through the converters of ML Metadata, both ways. Writes the
// artifacts into $VOXLINE_OUT/launcher.json. $VOXLINE_FAILS_IN names a step that must fail; then none after it runs.

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
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

func TestVoxlineLauncher(t *testing.T) {
	raw, err := os.ReadFile(os.Getenv("VOXLINE_IR") + "/refresh.yaml")
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
	artifacts := map[string]*pipelinespec.RuntimeArtifact{}
	for _, step := range []string{"ingest", "convert", "validate", "extract", "publish"} {
		component := spec.Components["comp-"+step]
		input := voxlineInput(spec, spec.Root.GetDag().Tasks[step], artifacts)
		voxlineOutputs(input, component, step)
		container := deployment.Executors[component.GetExecutorLabel()].GetContainer()
		arguments := append(append([]string{}, container.Command[1:]...), container.Args...)
		os.RemoveAll("/minio") // a new pod
		client := &fake.Clientset{}
		out, _, err := executeV2(context.Background(), input, component, container.Command[0], arguments, bucket, config,
			metadata.NewFakeClient(), "team-speech", client, "true", "", &OpenBucketConfig{context.Background(), client, "team-speech", config})
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
