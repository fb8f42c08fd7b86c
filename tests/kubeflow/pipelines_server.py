"""The Kubeflow Pipelines 2.17 of the tests: a server that runs, or its own programs on a control plane of the test.

The programs have the rights of their own accounts. Their manifests are applied as they are, except for Deployments:
what those would run are processes here. MariaDB is the database, moto the S3 server, and Argo the workflow controller,
configured as KFP does.
"""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tests.kubeflow.control_plane import HOSTS, SERVICES, ControlPlane, Kubernetes, Object, documents
from tests.kubeflow.given import (
    DEBIAN,
    ENDPOINT,
    MARIADB,
    METADATA,
    debian_environment,
    missing_own_processes,
    pipelines_folder,
    program,
)
from tests.kubeflow.processes import answers

NAMESPACE = os.environ.get("KUBEFLOW_NAMESPACE", "kubeflow")
HOST = ENDPOINT or "http://ml-pipeline:8888"
MULTI_USER_HOST = "http://ml-pipeline:8898"
MULTI_USER = {
    "MULTIUSER": "true",
    "KUBEFLOW_USERID_HEADER": "kubeflow-userid",
    "KUBEFLOW_USERID_PREFIX": "",
    "DEFAULTPIPELINERUNNERSERVICEACCOUNT": "default-editor",
    "DBCONFIG_MYSQLCONFIG_DBNAME": "mlpipeline_users",
}
"""As base/installs/multi-user sets them; the database is our own."""
METADATA_WEB_PORT = "9092"
S3 = "http://seaweedfs.kubeflow:9000"
KEYS = {"accesskey": "minio", "secretkey": "minio123"}
IMAGES = {"driver": "kfp/driver:1", "launcher": "kfp/launcher:1", "argoexec": "argo/argoexec:1"}
"""Made by `node.py` from the binaries."""
WORKLOADS = ("Deployment", "PersistentVolumeClaim")
ARGO_KINDS = {
    "Workflow": "workflows", "WorkflowTemplate": "workflowtemplates", "CronWorkflow": "cronworkflows",
    "ClusterWorkflowTemplate": "clusterworkflowtemplates", "WorkflowTaskSet": "workflowtasksets",
    "WorkflowTaskResult": "workflowtaskresults", "WorkflowArtifactGCTask": "workflowartifactgctasks",
    "WorkflowEventBinding": "workfloweventbindings",
}  # fmt: skip


class PipelinesServer:
    """A running server; `HOST` is its address. It opens neither the server's object store nor its processes.

    Args:
      kubernetes: of the server.
    """

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes = kubernetes
        self.servers = kubernetes.servers
        self.folder = kubernetes.folder

    @contextlib.contextmanager
    def with_users(self) -> Iterator[None]:
        """A second API server at `MULTI_USER_HOST`, which asks Kubernetes what each user may do in which namespace."""
        pytest.skip(missing_own_processes("starts a second API server"))
        yield

    @staticmethod
    def s3() -> "boto3.client":
        """A client of the S3 server with KFP's artifacts, in the bucket `mlpipeline`."""
        pytest.skip(missing_own_processes("opens the object store of KFP"))

    def artifacts(self, run_id: str, step: str) -> list[str]:
        """The keys of what KFP has stored of a step."""
        listed = self.s3().list_objects_v2(Bucket="mlpipeline")["Contents"]
        return [one["Key"] for one in listed if f"/{run_id}/{step}/" in one["Key"]]

    def uris(self, run_id: str, step: str, artifact: str) -> list[str]:
        """Where ML Metadata says that an artifact of a step is."""
        pytest.skip(missing_own_processes("opens the database of ML Metadata"))

    def read_artifact(self, key: str) -> str:
        return str(self.s3().get_object(Bucket="mlpipeline", Key=key)["Body"].read().decode())


class StartedPipelines(PipelinesServer):
    """A server of the programs that are given.

    Args:
      kubernetes: prepared.
    """

    def __init__(self, kubernetes: ControlPlane) -> None:
        super().__init__(kubernetes)
        self._control_plane = kubernetes
        self._manifests = pipelines_folder() / "manifests" / "kustomize"

    def start_api(self) -> None:
        """Starts the API server on its database and storage, without Kubernetes: it keeps pipelines, and runs none."""
        self._start_database()
        self._start_storage()
        self._start_pipelines(self.kubernetes.kubeconfig)

    def start(self) -> None:
        """Starts Kubernetes and everything else, and returns once the API server answers."""
        self._control_plane.start()
        self._start_database()
        self._start_storage()
        self.servers.start(
            "metadata", METADATA / "bin/python", Path(__file__).with_name("metadata_server.py"), "8080",
            self.folder / "metadata.sqlite", METADATA_WEB_PORT, PYTHONPATH="",
        )  # fmt: skip
        self.kubernetes.apply(self._objects())
        self._start_argo()
        self._start_pipelines(self._control_plane.account_kubeconfig(NAMESPACE, "ml-pipeline"))
        self._start_agents()

    @contextlib.contextmanager
    def with_users(self) -> Iterator[None]:
        """A second API server at `MULTI_USER_HOST`, which asks Kubernetes what each user may do in which namespace.

        It has the rights of KFP's multi-user installation for as long; nothing runs the workflows that it makes.
        """
        manifests = self._manifests / "base/installs/multi-user"
        parts = [manifests / "api-service" / f"cluster-role{part}.yaml" for part in ("", "-binding")]
        objects = [one for part in [*parts, manifests / "view-edit-cluster-roles.yaml"] for one in _read(part)]
        for one in objects:
            for subject in one.get("subjects", []):
                subject["namespace"] = NAMESPACE
        self.kubernetes.apply(objects)
        name = "ml-pipeline-with-users"
        self._start_pipelines(self._control_plane.account_kubeconfig(NAMESPACE, "ml-pipeline"), name, **MULTI_USER)
        yield
        self.servers.end(name)
        self.kubernetes.kubectl("delete", "clusterrolebinding", "ml-pipeline")

    def _start_database(self) -> None:
        data, language = self.folder / "mariadb", DEBIAN / "usr/share/mysql/english"
        data.mkdir()
        scripts = [
            DEBIAN / "usr/share/mysql" / one for one in ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
        ]
        tables = "".join(script.read_text() for script in scripts)
        tables = f"create database mysql;\nuse mysql;\n{tables}"
        command = [str(MARIADB), "--no-defaults", "--user=root", f"--datadir={data}", f"--lc-messages-dir={language}"]
        done = subprocess.run(
            [*command, "--bootstrap"], input=tables.encode(), capture_output=True, env=debian_environment(), check=False
        )
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        self.servers.start(
            "mariadb", *command, "--skip-grant-tables", "--skip-networking=0", "--port=3306",
            f"--socket={self.folder}/mariadb.sock", "--innodb-flush-log-at-trx-commit=0", env=debian_environment(),
        )  # fmt: skip

    def _start_storage(self) -> None:
        moto = Path(sys.executable).parent / "moto_server"
        self.servers.start("s3", moto, "-H", SERVICES, "-p", "9000", S3_IGNORE_SUBDOMAIN_BUCKETNAME="true")
        self.servers.wait(lambda: answers(f"{S3}/moto-api/data.json"), "the S3 server")
        self.s3().create_bucket(Bucket="mlpipeline")

    @staticmethod
    def s3() -> "boto3.client":
        """A client of the S3 server with KFP's artifacts, in the bucket `mlpipeline`."""
        keys = {"aws_access_key_id": KEYS["accesskey"], "aws_secret_access_key": KEYS["secretkey"]}
        return boto3.client("s3", endpoint_url=S3, region_name="us-east-1", **keys)

    def uris(self, run_id: str, step: str, artifact: str) -> list[str]:
        """Where ML Metadata says that an artifact of a step is."""
        query = "SELECT a.uri FROM Artifact a JOIN ArtifactProperty p ON p.artifact_id = a.id WHERE p.string_value = ?"
        with contextlib.closing(sqlite3.connect(self.folder / "metadata.sqlite")) as opened:
            found = [str(uri) for (uri,) in opened.execute(query, [artifact])]
        return [uri for uri in found if f"/{run_id}/{step}/" in uri]

    def _objects(self) -> list[Object]:
        """KFP's manifests without workloads, its secrets, and what Argo needs."""
        objects: list[Object] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
        objects += [_definition(kind, plural) for kind, plural in ARGO_KINDS.items()]
        for part in ("base/pipeline/cluster-scoped", "base/installs/generic"):
            done = subprocess.run(
                ["kubectl", "kustomize", str(self._manifests / part)], capture_output=True, text=True, check=True
            )
            objects += [one for one in documents(done.stdout) if one["kind"] not in WORKLOADS]
        artifact = {"name": "mlpipeline-minio-artifact", "namespace": NAMESPACE}
        objects.append({"apiVersion": "v1", "kind": "Secret", "metadata": artifact, "stringData": KEYS})
        patch = (self._manifests / "third-party/argo/base/workflow-controller-configmap-patch.yaml").read_text()
        (configuration,) = documents(
            patch.replace("$(kfp-namespace)", NAMESPACE).replace("$(kfp-artifact-bucket-name)", "mlpipeline")
        )
        configuration["metadata"]["namespace"] = NAMESPACE
        return [*objects, configuration]

    def _start_argo(self) -> None:
        self.servers.start(
            "workflow-controller", program("workflow-controller"), "--kubeconfig", self.kubernetes.kubeconfig,
            "--configmap", "workflow-controller-configmap", "--executor-image", IMAGES["argoexec"], "--namespaced",
            "--managed-namespace", NAMESPACE, "-n", NAMESPACE, LEADER_ELECTION_DISABLE="true", ARGO_NAMESPACE=NAMESPACE,
            TRANSIENT_ERROR_PATTERN="(?i)(imminent node shutdown|node is shutting down|preempt|evict|spot|pod deleted)",
        )  # fmt: skip

    def _start_pipelines(self, kubeconfig: Path, name: str = "ml-pipeline", **more: str) -> None:
        host = MULTI_USER_HOST if more else HOST
        http = int(host.rpartition(":")[2])
        configuration = self.folder / "pipelines-configuration"
        configuration.mkdir(exist_ok=True)
        shutil.copy(pipelines_folder() / "backend/src/apiserver/config/config.json", configuration)
        home = self.folder / f"{name}-home"  # one of its clients looks there alone
        (home / ".kube").mkdir(parents=True)
        shutil.copy(kubeconfig, home / ".kube" / "config")
        aliases = [{"ip": SERVICES, "hostnames": list(HOSTS)}]
        environment = {
            **_without_pods(),
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(home),
            "TAG_NAME": "2.17.0",  # as its image has it
            "POD_NAMESPACE": NAMESPACE,
            "ML_PIPELINE_VISUALIZATIONSERVER_SERVICE_HOST": SERVICES,
            "ML_PIPELINE_VISUALIZATIONSERVER_SERVICE_PORT": "8889",
            "CLUSTER_DOMAIN": "cluster.local",
            "PUBLISH_LOGS": "true",
            "AUTO_UPDATE_PIPELINE_DEFAULT_VERSION": "true",
            "OBJECTSTORECONFIG_SECURE": "false",
            "OBJECTSTORECONFIG_BUCKETNAME": "mlpipeline",
            "OBJECTSTORECONFIG_HOST": "seaweedfs.kubeflow",
            "OBJECTSTORECONFIG_PORT": "9000",
            "OBJECTSTORECONFIG_ACCESSKEY": KEYS["accesskey"],
            "OBJECTSTORECONFIG_SECRETACCESSKEY": KEYS["secretkey"],
            "DBCONFIG_MYSQLCONFIG_USER": "root",
            "DBCONFIG_MYSQLCONFIG_PASSWORD": "",
            "DBCONFIG_MYSQLCONFIG_DBNAME": "mlpipeline",
            "DBCONFIG_MYSQLCONFIG_HOST": SERVICES,
            "DBCONFIG_MYSQLCONFIG_PORT": "3306",
            "V2_DRIVER_IMAGE": IMAGES["driver"],
            "V2_LAUNCHER_IMAGE": IMAGES["launcher"],
            "COMPILED_PIPELINE_SPEC_PATCH": json.dumps({"hostAliases": aliases}),
            **more,
        }
        self.servers.start(
            name, program("apiserver"), f"--config={configuration}", "-logtostderr=true", "--logLevel=info",
            f"--httpPortFlag=:{http}", f"--rpcPortFlag=:{http - 1}", env=environment,
        )  # fmt: skip
        self.servers.wait(lambda: answers(f"{host}/apis/v2beta1/healthz"), "Kubeflow Pipelines")

    def _start_agents(self) -> None:
        tokens = Path("/var/run/secrets/kubeflow/tokens")  # a folder of this mount namespace
        tokens.mkdir(parents=True, exist_ok=True)
        for account, file, name, arguments in (
            ("ml-pipeline-persistenceagent", "persistenceagent-sa-token", "persistence", ("--numWorker=2",)),
            (
                "ml-pipeline-scheduledworkflow", "scheduledworkflow-sa-token", "scheduledworkflow",
                ("--clientQPS=10", "--clientBurst=20", "--recurringRunResyncIntervalSeconds=30", "--metricsPort=9091"),
            ),
        ):  # fmt: skip
            token = self.kubernetes.kubectl(
                "create", "token", account, "-n", NAMESPACE, "--audience=pipelines.kubeflow.org", "--duration=24h"
            )
            assert token.returncode == 0, token.stderr
            (tokens / file).write_text(token.stdout.strip())
            kubeconfig = self._control_plane.account_kubeconfig(NAMESPACE, account)
            self.servers.start(
                name, program(name), f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}",
                "--logtostderr=true", "--logLevel=info", *arguments,
                env={**_without_pods(), "KUBECONFIG": str(kubeconfig), "CRON_SCHEDULE_TIMEZONE": "UTC"},
            )  # fmt: skip


def _read(file: Path) -> list[Object]:
    return list(documents(file.read_text()))


def _definition(kind: str, plural: str) -> Object:
    """A CustomResourceDefinition of Argo's as its `manifests/base/crds/minimal` has it: without a schema."""
    scope = "Cluster" if kind.startswith("Cluster") else "Namespaced"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    fields = dict.fromkeys(("metadata", "spec", "status"), schema)
    version: Object = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {**schema, "properties": {**fields, "metadata": {"type": "object"}}}},
    }
    if kind == "WorkflowTaskSet":
        version["subresources"] = {"status": {}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.argoproj.io"},
        "spec": {"group": "argoproj.io", "names": names, "scope": scope, "versions": [version]},
    }


def _without_pods() -> dict[str, str]:
    """The environment without what would make a program think that it is in a pod."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
