"""What holds of every object in k8s/, whatever overlay it is built by."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.k8s.built import K8S, OVERLAYS, Object, built, containers, named, pods, values
from voxline.inference.saved_model import MORE_OPS_VARIABLE

OURS = "voxline"
PAGE = K8S.parent / "docs" / "cluster" / "k8s.md"
CLUSTER_SCOPED = {
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "PersistentVolume",
    "StorageClass",
}
ALLOWED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
"""Those of the standard `restricted`."""
NODE_OWN = ("hostNetwork", "hostPID", "hostIPC", "hostPort", "hostPath", "hostUsers")
LOOKS_SECRET = re.compile(r"(?i)(password|passwd|secret[_-]?key|api[_-]?key|access[_-]?key|private[_-]?key|token)$")


def test_no_container_runs_as_root_or_can_become_it(objects: list[Object]) -> None:
    for name, container, spec in containers(objects):
        here, pod = container["securityContext"], spec["securityContext"]
        assert {**pod, **here}["runAsNonRoot"] is True, name
        assert {**pod, **here}["runAsUser"] >= 1_000, f"{name}: a number, since Kubernetes cannot tell it of a name"
        assert here["allowPrivilegeEscalation"] is False, name
        assert here["capabilities"] == {"drop": ["ALL"]}, name
        assert not here.get("privileged"), name
        assert {**pod, **here}["seccompProfile"] == {"type": "RuntimeDefault"}, name


def test_containers_write_only_to_volumes(objects: list[Object]) -> None:
    for name, container, _ in containers(objects):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True, name


def test_every_container_has_requests_and_limits(objects: list[Object]) -> None:
    for name, container, _ in containers(objects):
        limits, requests = container["resources"]["limits"], container["resources"]["requests"]
        assert {"cpu", "memory", "ephemeral-storage"} <= limits.keys(), name
        assert {"cpu", "memory", "ephemeral-storage"} <= requests.keys(), name


def test_what_loads_models_may_be_given_further_ops(objects: list[Object]) -> None:
    for name, container, _ in containers(objects):
        if _loads_models(container):
            assert MORE_OPS_VARIABLE in {variable["name"] for variable in container["env"]}, name


def _loads_models(container: Object) -> bool:
    return container.get("command", [])[:2] == ["voxline", "serve"] or "verify" in container.get("command", [])


def test_a_worker_reserves_the_memory_that_it_may_use(objects: list[Object]) -> None:
    for name, container, _ in containers(objects):
        if container["name"] == "node":  # else it is the first to go when its node is short, and takes the others along
            assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"], name


def test_every_empty_dir_has_a_size_limit(objects: list[Object]) -> None:
    for name, template in pods(objects):
        for volume in template["spec"].get("volumes", []):
            assert set(volume) - {"name"} <= ALLOWED_VOLUMES, f"{name}: {volume}"
            if "emptyDir" in volume:
                assert volume["emptyDir"].get("sizeLimit"), f"{name}: {volume['name']}"


def test_every_image_has_a_tag_that_does_not_move_or_a_digest(objects: list[Object]) -> None:
    for name, container, _ in containers(objects):
        image = container["image"]
        assert "@sha256:" in image or re.search(r":[^/:]+$", image), f"{name}: {image}"
        assert not image.endswith(":latest"), f"{name}: {image}"


def test_no_pod_shares_anything_with_its_node(objects: list[Object]) -> None:
    for one in objects:
        for key, value in values(one):
            assert key not in NODE_OWN or value in (False, None), f"{named(one)}: {key}"


def test_every_server_has_probes(objects: list[Object]) -> None:
    for one in objects:
        if one["kind"] not in ("Deployment", "StatefulSet"):
            continue
        for container in one["spec"]["template"]["spec"]["containers"]:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert probe in container, f"{named(one)}: {container['name']} has no {probe}"


def test_there_is_no_secret_among_the_manifests(objects: list[Object]) -> None:
    for one in objects:
        assert one["kind"] != "Secret", named(one)
        for key, value in values(one):
            if key == "name" and isinstance(value, str) and LOOKS_SECRET.search(value):
                raise AssertionError(f"{named(one)}: a variable called {value}; name a Secret instead")
            assert not (LOOKS_SECRET.search(str(key)) and isinstance(value, str)), f"{named(one)}: {key}: {value}"


def test_only_accounts_of_runs_mount_a_token(objects: list[Object]) -> None:
    accounts = {one["metadata"]["name"]: one for one in objects if one["kind"] == "ServiceAccount"}
    with_token = {name for name, one in accounts.items() if one["automountServiceAccountToken"]}
    assert with_token <= {"voxline-data", "voxline-train", "voxline-lead", "voxline-push"}, (
        "of runs: KFP's launcher calls the API"
    )
    for name, template in pods(objects):
        assert template["spec"]["serviceAccountName"] in accounts, f"{name}: an account that k8s/ does not make"
        assert template["spec"]["automountServiceAccountToken"] is False, f"{name}: no pod of ours here calls the API"


def test_no_rule_has_wildcards(objects: list[Object]) -> None:
    for one in objects:
        assert one["kind"] not in ("ClusterRole", "ClusterRoleBinding"), f"{named(one)}: rights end at the namespace"
        for rule in one.get("rules", []):
            everything = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "*" not in everything, f"{named(one)}: {rule}"
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"]), f"{named(one)}: {rule}"
            if "secrets" in rule["resources"]:
                assert rule.get("resourceNames"), f"{named(one)}: secrets by name alone"
                assert rule["verbs"] == ["get"], f"{named(one)}: listing secrets reads all of them"
            assert "pods" not in rule["resources"] or "create" not in rule["verbs"], "a pod may mount any secret"


def test_every_binding_refers_to_an_existing_account_and_role(objects: list[Object]) -> None:
    there = {(one["kind"], one["metadata"]["name"]) for one in objects}
    for one in objects:
        if one["kind"] == "RoleBinding":
            assert (one["roleRef"]["kind"], one["roleRef"]["name"]) in there, named(one)
            for subject in one["subjects"]:
                assert (subject["kind"], subject["name"]) in there, f"{named(one)}: {subject}"
                assert subject.get("namespace", OURS) == OURS, f"{named(one)}: {subject}"


def test_every_object_is_labeled_and_in_our_namespace(objects: list[Object]) -> None:
    for one in objects:
        if one["kind"] not in CLUSTER_SCOPED:
            assert one["metadata"].get("namespace") == OURS, named(one)
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == OURS, named(one)


def test_the_namespace_enforces_restricted_pod_security() -> None:
    (namespace,) = built("namespace")
    labels = namespace["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["pod-security.kubernetes.io/enforce-version"] != "latest", "an upgrade must not refuse pods by itself"


def test_traffic_is_denied_by_default(objects: list[Object]) -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "NetworkPolicy"}
    for name in ("nothing", "steps-nothing"):
        assert policies[name].keys() == {"podSelector", "policyTypes"}
        assert policies[name]["policyTypes"] == ["Ingress", "Egress"]
    for _, template in pods(objects):
        labels = template["metadata"]["labels"]
        assert labels.get("app.kubernetes.io/part-of") == OURS, "else no policy denies its traffic"
    for name, spec in policies.items():
        for rule in [*spec.get("egress", []), *spec.get("ingress", [])]:
            ends = rule.get("to", rule.get("from"))
            assert ends, f"{name}: a rule without ends is for the whole world"
            for end in ends:
                block = end.get("ipBlock", {"cidr": "10.0.0.0/8"})
                narrow = int(block["cidr"].rpartition("/")[2]) >= 8
                assert narrow or (name.endswith("-to-public-addresses") and block["except"]), f"{name}: {block}"
        assert spec["podSelector"], f"{name}: an empty selector concerns the pods of others, too"
        for key, value in values(spec["podSelector"]):
            assert value, f"{name}: {key}"


def test_selectors_match_their_pods(objects: list[Object]) -> None:
    labels = [template["metadata"].get("labels", {}) for _, template in pods(objects)]
    for one in objects:
        if one["kind"] in ("Service", "PodDisruptionBudget", "Deployment"):
            selector = one["spec"]["selector"]
            wanted = selector.get("matchLabels", selector)
            assert any(wanted.items() <= found.items() for found in labels), named(one)


def test_mounted_claims_and_config_maps_exist(objects: list[Object]) -> None:
    there = {(one["kind"], one["metadata"]["name"]) for one in objects}
    for name, template in pods(objects):
        for volume in template["spec"].get("volumes", []):
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                assert ("PersistentVolumeClaim", claim) in there, f"{name}: {claim}"
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there, f"{name}: {volume}"
        spec = template["spec"]
        every = [*spec.get("initContainers", []), *spec["containers"]]
        mounted = {mount["name"] for container in every for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in template["spec"]["volumes"]}, name


def test_what_callers_depend_on_has_a_disruption_budget(objects: list[Object]) -> None:
    """One for each server of several replicas. Nothing else has one: a budget of one would block every drain."""
    budgets = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "PodDisruptionBudget"}
    replicas = {one["metadata"]["name"]: one["spec"]["replicas"] for one in objects if one["kind"] == "Deployment"}
    assert budgets.keys() == {name for name, count in replicas.items() if count > 1}
    for name, budget in budgets.items():
        assert budget["minAvailable"] < replicas[name], "else no node could ever be drained"


def test_the_registry_is_mounted_read_only(objects: list[Object]) -> None:
    for name, container, spec in containers(objects):
        claims = {
            volume["name"]: volume["persistentVolumeClaim"]
            for volume in spec.get("volumes", [])
            if "persistentVolumeClaim" in volume
        }
        for mount in container.get("volumeMounts", []):
            claim = claims.get(mount["name"], {})
            if claim.get("claimName") == "voxline-registry":
                assert claim["readOnly"], f"{name}: servers read the registry, and push alone writes it"
                assert mount["readOnly"], name


def test_tensorflow_serving_sees_verified_copies_alone(objects: list[Object]) -> None:
    for name, container, spec in containers(objects):
        if container["name"] != "serving" or "initContainers" not in spec:  # KServe's storage is its own
            continue
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert "registry" not in mounts, f"{name}: it checks nothing that it loads"
        assert mounts["models"]["readOnly"], name
        (verify,) = spec["initContainers"]
        written = {mount["name"] for mount in verify["volumeMounts"] if not mount.get("readOnly")}
        assert "models" in written, f"{name}: else nothing fills it"
        (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "models")
        assert "emptyDir" in volume, f"{name}: a volume of the pod alone"


def test_both_kinds_of_job_share_one_worker_template(objects: list[Object]) -> None:
    by_kind: dict[str, Any] = {one["kind"]: one for one in objects if one["metadata"]["name"] == "voxline-train"}
    if "TrainingRuntime" in by_kind:
        (node,) = by_kind["TrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"]
        assert node["template"]["spec"]["template"] == by_kind["PodTemplate"]["template"]
        assert node["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


OPERATORS = {"trainer.kubeflow.org": "Kubeflow Trainer", "monitoring.coreos.com": "Prometheus operator"}
"""API group → who defines it."""
OF_KUBERNETES = {
    "v1", "apps", "batch", "policy", "networking.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io",
}  # fmt: skip


@pytest.mark.parametrize("path", OVERLAYS)
def test_an_overlay_that_needs_an_operator_says_so(path: str) -> None:
    """Kubernetes refuses the whole of `kubectl apply` if one kind is unknown."""
    groups = {one["apiVersion"].partition("/")[0] for one in built(path)} - OF_KUBERNETES
    head = (K8S / path / "kustomization.yaml").read_text(encoding="utf-8").partition("apiVersion:")[0]
    row = re.search(rf"^\| `{Path(path).name}` \|.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert row, f"{path}: the page's table does not have it"
    for text in (head, row[0]):
        named_there = {group for group, operator in OPERATORS.items() if operator in text}
        assert named_there == groups, f"{path}: {text}"


def test_every_folder_of_k8s_is_built_by_some_overlay_or_component() -> None:
    used = "".join(path.read_text() for path in K8S.rglob("kustomization.yaml"))
    for path in K8S.rglob("*"):
        if path.is_file() and path.name != "kustomization.yaml":
            assert path.name in used, f"{path}: no kustomization.yaml names it"
