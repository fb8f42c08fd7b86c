"""Who reaches whom, evaluated over the built overlays beside Kubeflow's own pods, multi-user and standalone."""

import pytest

from tests.cluster.k8s.built import K8S, Object, builder, built
from tests.cluster.k8s.network import End, allowed, selecting

MULTI_USER = ["overlays/one-node", "overlays/gpu-pool", "overlays/tpu-pool", "overlays/gcs"]
MULTI_USER += ["overlays/aks", "overlays/plain"]
STEP = {"workflows.argoproj.io/workflow": "asr-x7k2p", "app.kubernetes.io/name": "voxline"}
KUBEFLOW_PODS = {
    "ml-pipeline": {"app": "ml-pipeline"},
    "metadata-grpc": {"component": "metadata-grpc-server"},
    "mysql": {"app": "mysql"},
    "seaweedfs": {"app": "seaweedfs"},
    "workflow-controller": {"app": "workflow-controller"},
    "persistenceagent": {"app": "ml-pipeline-persistenceagent"},
    "ui": {"app": "ml-pipeline-ui"},
}
"""As KFP's kustomize manifests label them."""
STEPS_NEED = [("ml-pipeline", 8887), ("ml-pipeline", 8888), ("metadata-grpc", 8080), ("seaweedfs", 9000)]
DNS = End("kube-system", {"k8s-app": "kube-dns"})
LOCAL_DNS = End(address="169.254.20.10")
CLOUD_DNS = End(address="169.254.169.254")


@pytest.fixture(autouse=True)
def _can_build() -> None:
    if builder() is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH; either builds k8s/")


def kubeflow(name: str) -> End:
    return End("kubeflow", KUBEFLOW_PODS[name])


@pytest.mark.parametrize("path", MULTI_USER)
def test_a_step_reaches_kubeflow_dns_and_nothing_else(path: str) -> None:
    objects, step = built(path), End("voxline", STEP)
    for name, port in STEPS_NEED:
        assert allowed(objects, step, kubeflow(name), port), name
    for dns in (DNS, LOCAL_DNS, CLOUD_DNS):
        assert allowed(objects, step, dns, 53, "UDP"), dns
        assert allowed(objects, End("voxline", {"app.kubernetes.io/part-of": "voxline"}), dns, 53, "UDP"), dns
    assert not allowed(objects, step, kubeflow("mysql"), 3306)
    assert not allowed(objects, step, End(address="93.184.216.34"), 443)
    assert not allowed(objects, End("voxline", {"app": "notebook"}), step, 8080)


def test_on_eks_steps_and_workers_reach_s3_and_the_agent_of_pod_identity() -> None:
    objects = built("overlays/eks")
    for labels in (STEP, {"app.kubernetes.io/part-of": "voxline", "voxline/uses-buckets": "true"}):
        assert allowed(objects, End("voxline", labels), End(address="52.218.0.1"), 443)
        assert allowed(objects, End("voxline", labels), End(address="169.254.170.23"), 80)
        assert not allowed(objects, End("voxline", labels), End(address="169.254.169.254"), 80), "the node's own role"
    roles = {
        one["metadata"]["name"]: one["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
        for one in objects
        if one["kind"] == "ServiceAccount" and one["metadata"]["name"] != "voxline-ci"
    }
    # A role that eksctl makes trusts one account alone, so two accounts cannot share it.
    assert roles == {name: f"arn:aws:iam::123456789012:role/{name}" for name in roles}
    assert "voxline-lead" in roles
    volumes = [one for one in objects if one["kind"] == "PersistentVolume"]
    assert {one["spec"]["csi"]["volumeAttributes"]["bucketName"] for one in volumes} == {"your-bucket"}


def test_a_worker_with_a_server_of_s3_reaches_it_with_a_key_by_reference() -> None:
    objects = built("overlays/plain")
    worker = End("voxline", {"app.kubernetes.io/part-of": "voxline", "voxline/uses-buckets": "true"})
    assert allowed(objects, worker, kubeflow("seaweedfs"), 9000)
    assert not allowed(objects, worker, kubeflow("mysql"), 3306)
    (template,) = (one["template"] for one in objects if one["kind"] == "PodTemplate")
    (node,) = template["spec"]["containers"]
    assert node["envFrom"] == [{"secretRef": {"name": "voxline-s3"}}]


@pytest.mark.parametrize("path", [*MULTI_USER, "overlays/eks", "overlays/standalone"])
def test_pods_of_others_are_not_touched(path: str) -> None:
    objects = built(path)
    namespace = "kubeflow" if path == "overlays/standalone" else "voxline"
    for name, labels in {**KUBEFLOW_PODS, "notebook": {"app": "notebook"}}.items():
        assert selecting(objects, End(namespace, labels)) == [], name


def test_standalone_kubeflow_keeps_its_own_traffic_and_pods() -> None:
    objects = built("overlays/standalone")
    pods = [kubeflow(name) for name in KUBEFLOW_PODS]
    assert all(allowed(objects, one, other, 3306) for one in pods for other in pods)
    another = End("kubeflow", {"workflows.argoproj.io/workflow": "of-another-team"})
    assert selecting(objects, another) == []
    assert not {one["kind"] for one in objects} & {"Namespace", "ResourceQuota", "LimitRange"}
    assert {one["metadata"]["namespace"] for one in objects} == {"kubeflow"}
    assert not allowed(objects, End("kubeflow", {"app": "notebook"}), _serving("kubeflow"), 8501)


def test_the_namespace_is_one_that_kubeflow_serves() -> None:
    """Its profile controller fills namespaces with one label; its object store admits those with the other."""
    (namespace,) = built("namespace")
    labels = namespace["metadata"]["labels"]
    assert labels["pipelines.kubeflow.org/enabled"] == "true"
    assert labels["app.kubernetes.io/part-of"] == "kubeflow-profile"
    for path in MULTI_USER:
        assert not [one for one in built(path) if one["kind"] == "Namespace"], "it would replace these labels"


def test_knative_reaches_kserve() -> None:
    objects = built("components/kserve")
    for source, port in (("knative-serving", 8012), ("istio-system", 8012), ("knative-serving", 9090)):
        assert allowed(objects, End(source, {"app": "activator"}), _serving("voxline"), port), (source, port)
    assert not allowed(objects, End("voxline", {"app": "notebook"}), _serving("voxline"), 8012)


def test_callers_need_both_labels_to_reach_serving() -> None:
    objects = built("overlays/one-node")
    labeled = {"voxline/calls-serving": "true"}
    assert allowed(objects, End("shop", labeled, namespace_labels=labeled), _serving("voxline"), 8501)
    assert not allowed(objects, End("shop", labeled), _serving("voxline"), 8501)
    assert not allowed(objects, End("shop", namespace_labels=labeled), _serving("voxline"), 8501)


def test_public_egress_opens_public_addresses_alone() -> None:
    objects, step = built("components/public-egress"), End("voxline", STEP)
    assert allowed(objects, step, End(address="142.250.74.27"), 443)
    assert not allowed(objects, step, End(address="142.250.74.27"), 80)
    assert not allowed(objects, step, End(address="169.254.169.254"), 443)


def test_flinks_operator_and_steps_reach_it() -> None:
    objects = [*built("overlays/one-node"), *built("flink")]
    manager = End("voxline", {"app": "voxline-flink", "app.kubernetes.io/part-of": "voxline"})
    jobs = End("voxline", {"app.kubernetes.io/name": "flink-jobs", "app.kubernetes.io/part-of": "voxline"})
    operator = End("flink-operator", {"app.kubernetes.io/name": "flink-kubernetes-operator"})
    assert allowed(objects, operator, manager, 8081)
    assert allowed(objects, jobs, manager, 8081)
    assert allowed(objects, End("voxline", STEP), jobs, 8099)
    assert not allowed(objects, End("shop", {"app": "x"}), manager, 8081)


def test_flink_is_admitted_and_pinned() -> None:
    objects: list[Object] = built("flink")
    (cluster,) = (one for one in objects if one["kind"] == "FlinkDeployment")
    for kind in ("jobManager", "taskManager"):
        spec = cluster["spec"][kind]["podTemplate"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "flink-main-container" in {one["name"] for one in spec["containers"]}
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    locked = (K8S.parent / "docker" / "data" / "requirements.lock").read_text(encoding="utf-8")
    server = next(one for one in objects if one["metadata"]["name"] == "flink-jobs" and one["kind"] == "Deployment")
    _, _, tag = server["spec"]["template"]["spec"]["containers"][0]["image"].partition(":")
    assert f"apache-beam=={tag} " in locked, "the job server speaks the protocol of the Beam that submits"
    assert cluster["spec"]["image"].count(".") == 2, "a tag that does not move"


def _serving(namespace: str) -> End:
    return End(namespace, {"app.kubernetes.io/name": "serving", "app.kubernetes.io/part-of": "voxline"})


def test_nothing_may_start_a_job_next_to_the_accounts_of_kubeflow() -> None:
    roles = [one for one in built("overlays/standalone") if one["kind"] in ("Role", "ClusterRole")]
    groups = {
        group for role in roles for rule in role["rules"] if "create" in rule["verbs"] for group in rule["apiGroups"]
    }
    assert groups == {"argoproj.io", "pipelines.kubeflow.org"}


def test_standalone_needs_no_extension() -> None:
    """An object of a kind that the server does not know makes `kubectl apply` fail (tests/kubeflow)."""
    groups = {one["apiVersion"].rpartition("/")[0] for one in built("overlays/standalone")}
    assert groups <= {"", "apps", "networking.k8s.io", "policy", "rbac.authorization.k8s.io"}
