"""Who reaches whom: the built overlays beside KFP's own manifests, multi-user and standalone, evaluated."""

import dataclasses
from urllib.parse import urlsplit

import pytest

from tests.cluster.k8s.built import K8S, Object, builder, built
from tests.cluster.k8s.kubeflow_manifests import behind, installed, pods, ports
from tests.cluster.k8s.network import End, allowed, selecting
from voxline.pipelines.config.load import load_config

CONFIGS = K8S.parent / "configs"
MULTI_USER = ["overlays/one-node", "overlays/gpu-pool", "overlays/tpu-pool", "overlays/gcs"]
MULTI_USER += ["overlays/aks", "overlays/plain"]
STEP = {"workflows.argoproj.io/workflow": "asr-x7k2p", "app.kubernetes.io/name": "voxline"}
STEPS_NEED = [("ml-pipeline", 8887), ("ml-pipeline", 8888), ("metadata-grpc-service", 8080), ("seaweedfs", 9000)]
"""Services of KFP, and their ports."""
DNS = End("kube-system", {"k8s-app": "kube-dns"})
LOCAL_DNS = End(address="169.254.20.10")
CLOUD_DNS = End(address="169.254.169.254")


@pytest.fixture(autouse=True)
def _can_build() -> None:
    if builder() is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH; either builds k8s/")


def step(namespace: str = "voxline") -> End:
    """A pod of a run, in the namespace as `k8s/namespace` labels it."""
    (made,) = built("namespace")
    labels = made["metadata"]["labels"] if namespace == "voxline" else {}
    return End(namespace, STEP, namespace_labels=labels)


@pytest.mark.parametrize("path", [*MULTI_USER, "overlays/eks"])
def test_a_step_reaches_the_services_of_kubeflow_that_it_needs(path: str) -> None:
    """By our policies and by KFP's own, at the port of the pod behind the service."""
    objects = [*built(path), *installed("multi-user")]
    for service, port in STEPS_NEED:
        pod, target = behind("multi-user", service, port)
        assert allowed(objects, step(), pod, target), service
    for name, pod in pods("multi-user").items():
        reached = [port for port in ports("multi-user") if allowed(objects, step(), pod, port)]
        assert not reached or name in ("ml-pipeline", "metadata-grpc-deployment", "seaweedfs"), (name, reached)


def test_kubeflows_object_store_refuses_a_namespace_without_its_label() -> None:
    pod, port = behind("multi-user", "seaweedfs", 9000)
    objects = [*built("overlays/one-node"), *installed("multi-user")]
    assert not allowed(objects, End("voxline", STEP), pod, port)


@pytest.mark.parametrize("path", MULTI_USER)
def test_a_step_reaches_dns_and_nothing_else(path: str) -> None:
    objects = built(path)
    for dns in (DNS, LOCAL_DNS, CLOUD_DNS):
        assert allowed(objects, step(), dns, 53, "UDP"), dns
        assert allowed(objects, End("voxline", {"app.kubernetes.io/part-of": "voxline"}), dns, 53, "UDP"), dns
    assert not allowed(objects, step(), End(address="93.184.216.34"), 443)
    assert not allowed(objects, End("voxline", {"app": "notebook"}), step(), 8080)


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
    objects = [*built("overlays/plain"), *installed("multi-user")]
    (template,) = (one["template"] for one in objects if one["kind"] == "PodTemplate")
    (node,) = template["spec"]["containers"]
    assert node["envFrom"] == [{"secretRef": {"name": "voxline-s3"}}]
    config = load_config([CONFIGS / "asr/librispeech.yaml", CONFIGS / "cluster/plain.yaml"], pipeline="asr")
    endpoint = config.cluster.env["AWS_ENDPOINT_URL_S3"]
    assert [one["value"] for one in node["env"] if one["name"] == "AWS_ENDPOINT_URL_S3"] == [endpoint]
    url = urlsplit(endpoint)
    service, _, namespace = str(url.hostname).partition(".")
    assert (namespace, url.port) == ("kubeflow", 9000)
    pod, port = behind("multi-user", service, 9000)
    worker = dataclasses.replace(
        step(), labels={"app.kubernetes.io/part-of": "voxline", "voxline/uses-buckets": "true"}
    )
    for one in (worker, step()):
        assert allowed(objects, one, pod, port)
    assert not allowed(objects, worker, pods("multi-user")["mysql"], 3306)


@pytest.mark.parametrize("path", [*MULTI_USER, "overlays/eks", "overlays/standalone"])
def test_pods_of_others_are_not_touched(path: str) -> None:
    objects, standalone = built(path), path == "overlays/standalone"
    namespace = "kubeflow" if standalone else "voxline"
    others = pods("standalone" if standalone else "multi-user")
    for name, pod in {**others, "notebook": End(labels={"app": "notebook"})}.items():
        assert selecting(objects, dataclasses.replace(pod, namespace=namespace)) == [], name


def test_standalone_kubeflow_keeps_its_own_traffic_and_pods() -> None:
    """Who reaches whom on which port is as without our overlay."""
    ours, kubeflow = built("overlays/standalone"), installed("standalone")
    both, every = [*ours, *kubeflow], pods("standalone").values()
    for port in ports("standalone"):
        for one in every:
            for other in every:
                assert allowed(both, one, other, port) == allowed(kubeflow, one, other, port), (one, other, port)
    assert allowed(both, *behind_and_from("persistenceagent", "ml-pipeline", 8887))
    assert allowed(both, *behind_and_from("", "mysql", 3306))
    for service, port in STEPS_NEED:
        assert allowed(both, step("kubeflow"), *behind("standalone", service, port)), service
    another = End("kubeflow", {"workflows.argoproj.io/workflow": "of-another-team"})
    assert selecting(ours, another) == []
    assert not {one["kind"] for one in ours} & {"Namespace", "ResourceQuota", "LimitRange"}
    assert {one["metadata"]["namespace"] for one in ours} == {"kubeflow"}
    assert not allowed(both, End("kubeflow", {"app": "notebook"}), _serving("kubeflow"), 8501)


def behind_and_from(source: str, service: str, port: int) -> tuple[End, End, int]:
    """A pod of KFP, and what it reaches by a service."""
    name = f"ml-pipeline-{source}" if source else "ml-pipeline"
    return pods("standalone")[name], *behind("standalone", service, port)


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
    objects = built("components/public-egress")
    assert allowed(objects, step(), End(address="142.250.74.27"), 443)
    assert not allowed(objects, step(), End(address="142.250.74.27"), 80)
    assert not allowed(objects, step(), End(address="169.254.169.254"), 443)


def test_flinks_operator_and_steps_reach_it() -> None:
    objects = [*built("overlays/one-node"), *built("flink")]
    manager = End("voxline", {"app": "voxline-flink", "app.kubernetes.io/part-of": "voxline"})
    jobs = End("voxline", {"app.kubernetes.io/name": "flink-jobs", "app.kubernetes.io/part-of": "voxline"})
    operator = End("flink-operator", {"app.kubernetes.io/name": "flink-kubernetes-operator"})
    assert allowed(objects, operator, manager, 8081)
    assert allowed(objects, jobs, manager, 8081)
    assert allowed(objects, step(), jobs, 8099)
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
