"""The Kubernetes API as the train step uses it: retries, refusals and messages."""

import threading

import pytest

from tests.cluster.workers.api_stand_in import now
from tests.cluster.workers.conftest import POD, Namespace
from tests.cluster.workers.operator_stand_in import answered
from voxline.components.train.distributed.jobs import TRAIN_JOB, JobSpec
from voxline.components.train.distributed.kubernetes import ApiError, JobExists, KubernetesClient
from voxline.components.train.distributed.launcher import JobLauncher
from voxline.components.train.distributed.pods import PodWatcher
from voxline.errors import SettingsError, TransientError, WorkError
from voxline.families.asr.settings import AsrTrainSettings
from voxline.training.settings import WorkersSettings

JOBS = (TRAIN_JOB.api, TRAIN_JOB.plural)


@pytest.fixture
def cluster(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> KubernetesClient:
    return _cluster(namespace, monkeypatch)


def _cluster(namespace: Namespace, monkeypatch: pytest.MonkeyPatch, **how: str) -> KubernetesClient:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KFP_POD_NAME", POD)
    config = namespace.server.kubeconfig(namespace.folder / "kubeconfig", **how)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(config))
    return KubernetesClient(patience=5, wait=lambda seconds: None)


def _task(**workers: str) -> JobSpec:
    settings = AsrTrainSettings(workers=WorkersSettings.of({"count": 2, **workers}))
    return JobSpec("0f" * 16, "/mnt/store/extract/ab", "/mnt/store", settings)


def _job(cluster: KubernetesClient) -> dict[str, object]:
    return TRAIN_JOB.body(_task(), {"name": "a-job", "namespace": cluster.namespace, "labels": {}}, {})


def test_a_failing_api_server_is_retried(
    cluster: KubernetesClient, namespace: Namespace, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace.state.faults[:] = [500, 503, 429]
    assert cluster.pod(POD)["metadata"]["name"] == POD
    assert "waiting for the Kubernetes API (it answers 500" in capsys.readouterr().out


def test_an_unreachable_api_server_is_a_transient_error(cluster: KubernetesClient, namespace: Namespace) -> None:
    cluster._patience = 0
    namespace.server.close()
    with pytest.raises(TransientError, match=r"the Kubernetes API does not answer \(GET /api/v1/"):
        cluster.pod(POD)


def test_a_missing_permission_is_named_with_its_role(cluster: KubernetesClient, namespace: Namespace) -> None:
    namespace.state.rules[:] = [rule for rule in namespace.state.rules if "trainjobs" not in rule["resources"]]
    with pytest.raises(ApiError, match=r"cannot create resource \"trainjobs\".*needs the Role voxline-train"):
        cluster.create(*JOBS, _job(cluster))


def test_an_invalid_token_is_refused_and_not_printed(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _cluster(namespace, monkeypatch, token="of-somebody-else")  # noqa: S106
    with pytest.raises(ApiError, match="Unauthorized") as refused:
        cluster.pod(POD)
    assert "of-somebody-else" not in str(refused.value)


def test_creating_an_existing_job_raises(cluster: KubernetesClient) -> None:
    cluster.create(*JOBS, _job(cluster))
    with pytest.raises(JobExists):
        cluster.create(*JOBS, _job(cluster))


def test_deletes_only_the_job_with_the_given_uid(cluster: KubernetesClient) -> None:
    made = cluster.create(*JOBS, _job(cluster))
    cluster.delete(*JOBS, "a-job", "the uid of the one before")
    assert "deletionTimestamp" not in cluster.get(*JOBS, "a-job")["metadata"]  # type: ignore[index]
    cluster.delete(*JOBS, "a-job", made["metadata"]["uid"])
    assert cluster.get(*JOBS, "a-job") is None, "at once: Trainer starts the workers of one that waits again"


def test_a_template_outside_the_role_is_refused(cluster: KubernetesClient) -> None:
    with pytest.raises(ApiError, match='trainingruntimes "mine" is forbidden'):
        JobLauncher(cluster, _task(template="mine"), lambda: False)._body()


def test_a_missing_runtime_names_what_to_apply(cluster: KubernetesClient, namespace: Namespace) -> None:
    namespace.state.remove("trainer.kubeflow.org/v1alpha1", "trainingruntimes", "voxline-train")
    with pytest.raises(SettingsError, match=r"has no such trainingruntimes; apply one of k8s/ .*Kubeflow Trainer v2"):
        JobLauncher(cluster, _task(), lambda: False).run()


def test_workers_that_do_not_start_in_time_are_a_transient_error(
    cluster: KubernetesClient, namespace: Namespace
) -> None:
    namespace.operate(hold=True)
    settings = AsrTrainSettings(workers=WorkersSettings(count=2, start_minutes=0.01))
    launcher = JobLauncher(cluster, JobSpec("0f" * 16, "/d", "/s", settings), lambda: False, poll=0.05)
    with pytest.raises(TransientError, match=r"not all workers were running within 0.01 minutes.*Insufficient nvidia"):
        launcher.run()


def test_the_deletion_of_a_job_takes_no_time_from_that_of_old_pods(
    cluster: KubernetesClient, namespace: Namespace
) -> None:
    launcher = JobLauncher(cluster, _task(), lambda: False, poll=0.05, delete_seconds=1.0)
    labels = dict(part.split("=") for part in launcher.kind.selector(launcher.spec.name).split(","))
    old = {"name": "old", "labels": labels}
    namespace.state.put("v1", "pods", {"kind": "Pod", "metadata": old, "spec": {"containers": []}, "status": {}})

    def add_deleted() -> None:
        metadata = {"name": launcher.spec.name, "deletionTimestamp": now()}
        namespace.state.put(*JOBS, {"kind": "TrainJob", "metadata": metadata})

    changes = (
        (0.3, add_deleted),
        (1.2, lambda: namespace.state.remove(*JOBS, launcher.spec.name)),
        (1.5, lambda: namespace.state.remove("v1", "pods", "old")),
    )
    for seconds, change in changes:
        threading.Timer(seconds, change).start()
    launcher._create()
    assert len(namespace.jobs()) == 1


def test_pods_that_never_end_are_an_error(cluster: KubernetesClient, namespace: Namespace) -> None:
    launcher = JobLauncher(cluster, _task(), lambda: False, poll=0.05, delete_seconds=0.2)
    labels = dict(part.split("=") for part in launcher.kind.selector(launcher.spec.name).split(","))
    old = {"name": "old", "labels": labels}
    namespace.state.put("v1", "pods", {"kind": "Pod", "metadata": old, "spec": {"containers": []}, "status": {}})
    with pytest.raises(TransientError, match="is gone, but its pod old still exists after"):
        launcher._create()


def test_each_line_of_the_chief_is_printed_once(
    cluster: KubernetesClient, namespace: Namespace, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "a-job", "batch.kubernetes.io/job-completion-index": "0"}
    pod = namespace.state.put(
        "v1",
        "pods",
        {
            "kind": "Pod",
            "metadata": {"name": "chief", "labels": labels},
            "spec": {"containers": [{"name": "node"}]},
            "status": {"phase": "Running"},
        },
    )
    lines = namespace.state.logs.setdefault(pod["metadata"]["uid"], [])
    pods = PodWatcher(cluster, TRAIN_JOB, "a-job")
    for line in ("▸ one", "▸ two", "▸ three"):
        lines.append((now(), line))
        pods.poll(1)
    assert capsys.readouterr().out == "▸ one\n▸ two\n▸ three\n"
    assert pods.training


def test_the_failure_of_a_worker_comes_before_lost_peers(cluster: KubernetesClient, namespace: Namespace) -> None:
    for index, status, message in ((0, 75, "lost the others"), (1, 1, "noise\n✗ shard 3 is damaged\n"), (2, 137, "")):
        labels = {"jobset.sigs.k8s.io/jobset-name": "a-job", "batch.kubernetes.io/job-completion-index": str(index)}
        state = {"terminated": {"exitCode": status, "message": message, "reason": "Error"}}
        namespace.state.put(
            "v1",
            "pods",
            {
                "kind": "Pod",
                "metadata": {"name": f"worker-{index}", "labels": labels},
                "spec": {"containers": [{"name": "node"}]},
                "status": {"phase": "Failed", "containerStatuses": [{"name": "node", "state": state}]},
            },
        )
    pods = PodWatcher(cluster, TRAIN_JOB, "a-job")
    pods.poll(3)
    fault = pods.failure()
    assert fault is not None
    assert (fault.index, fault.status, fault.message) == (1, 1, "shard 3 is damaged")


def test_a_result_that_this_pod_does_not_see_names_the_volume(cluster: KubernetesClient, namespace: Namespace) -> None:
    launcher = JobLauncher(cluster, _task(), lambda: False, poll=0.05)
    threading.Timer(0.5, _say, (namespace, "trained")).start()
    with pytest.raises(WorkError, match="mount the same volume at the same path"):
        launcher.run()


def test_a_queued_job_says_so_until_it_is_admitted(
    cluster: KubernetesClient, namespace: Namespace, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = JobLauncher(cluster, _task(queue="speech"), lambda: False, poll=0.05)
    for number, what in enumerate(("queued", "admitted", "trained"), 1):
        threading.Timer(0.5 * number, _say, (namespace, what)).start()
    with pytest.raises(WorkError, match="mount the same volume"):
        launcher.run()
    lines = [line for line in capsys.readouterr().out.splitlines() if "voxline-train-" in line]
    assert [line.partition("0f0f ")[2] for line in lines[1:]] == ["is waiting: TrainJob is suspended", "is admitted"]


def test_the_job_set_gets_our_labels_and_not_the_queue(cluster: KubernetesClient) -> None:
    body = JobLauncher(cluster, _task(queue="speech"), lambda: False)._body()
    labels = {"app.kubernetes.io/part-of": "voxline", "app.kubernetes.io/component": "train-worker"}
    assert body["spec"]["labels"] == labels, "Trainer gives them to the JobSet"
    assert body["metadata"]["labels"] == {**labels, "kueue.x-k8s.io/queue-name": "speech"}


def _say(namespace: Namespace, what: str) -> None:
    (job,) = namespace.jobs()
    job["status"] = {"conditions": answered(what, job["metadata"]["name"])}
