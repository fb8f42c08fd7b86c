"""A stand-in for the Kubernetes API server: it keeps objects, and refuses what the real one refuses.

It knows the calls that the train step makes, checks tokens, the rules of a Role, names, versions and preconditions, and
answers with Kubernetes' own Status objects. Objects that are deleted in the foreground stay, with a deletionTimestamp,
until the operator has removed what they own.
"""

import copy
import json
import re
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

Object = dict[str, Any]
NAMESPACE = "voxline"
TOKEN = "of-the-train-steps-service-account"  # noqa: S105  (of a server that lives for a test)
PATH = re.compile(
    r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))/namespaces/(?P<namespace>[^/]+)"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?P<log>/log)?$"
)
KNOWN = {
    ("v1", "pods"): "Pod",
    ("trainer.kubeflow.org/v1alpha1", "trainjobs"): "TrainJob",
    ("trainer.kubeflow.org/v1alpha1", "trainingruntimes"): "TrainingRuntime",
}
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
TRAIN_JOB_FIELDS = {"runtimeRef", "initializer", "trainer", "labels", "annotations", "podTemplateOverrides", "suspend"}
TRAINER_FIELDS = {"image", "command", "args", "env", "numNodes", "resourcesPerNode", "numProcPerNode"}


class Refusal(Exception):  # noqa: N818
    """An answer that is no success."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


class State:
    """The objects, by API version, plural and name."""

    def __init__(self, rules: list[Object]) -> None:
        self.lock = threading.RLock()
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.logs: dict[str, list[tuple[str, str]]] = {}
        """By uid of a pod: its lines, stamped."""
        self.rules = rules
        self.calls: list[str] = []
        self.faults: list[int] = []
        """Statuses that the next calls are answered with."""
        self._version = 0

    def put(self, api: str, plural: str, body: Object) -> Object:
        with self.lock:
            key = (api, plural, body["metadata"]["name"])
            if key in self.objects:
                raise Refusal(409, "AlreadyExists", f'{plural} "{key[2]}" already exists')
            made = copy.deepcopy(body)
            made["metadata"].update(uid=str(uuid.uuid4()), namespace=NAMESPACE, creationTimestamp=now())
            self.objects[key] = made
            return self.changed(made)

    def changed(self, found: Object) -> Object:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        return found

    def get(self, api: str, plural: str, name: str) -> Object:
        with self.lock:
            if (api, plural, name) not in self.objects:
                raise Refusal(404, "NotFound", f'{plural} "{name}" not found')
            return self.objects[api, plural, name]

    def all(self, api: str, plural: str) -> list[Object]:
        with self.lock:
            return [found for (one, other, _), found in self.objects.items() if (one, other) == (api, plural)]

    def remove(self, api: str, plural: str, name: str) -> None:
        with self.lock:
            self.objects.pop((api, plural, name), None)

    def merge(self, api: str, plural: str, name: str, change: Object) -> Object:
        with self.lock:
            found = self.get(api, plural, name)
            version = change.get("metadata", {}).get("resourceVersion")
            if version and version != found["metadata"]["resourceVersion"]:
                raise Refusal(409, "Conflict", f'{plural} "{name}": the object has been modified')
            _merge(found, change)
            return self.changed(found)

    def delete(self, api: str, plural: str, name: str, options: Object) -> Object:
        with self.lock:
            found = self.get(api, plural, name)
            wanted = options.get("preconditions", {}).get("uid")
            if wanted and wanted != found["metadata"]["uid"]:
                raise Refusal(409, "Conflict", f"Precondition failed: UID in precondition: {wanted}")
            if options.get("propagationPolicy") == "Foreground":
                found["metadata"].setdefault("deletionTimestamp", now())
                return self.changed(found)
            del self.objects[api, plural, name]
            return found

    def allowed(self, verb: str, api: str, resource: str, name: str) -> bool:
        group = api.rpartition("/")[0]
        return any(
            group in rule["apiGroups"]
            and resource in rule["resources"]
            and verb in rule["verbs"]
            and name in rule.get("resourceNames", [name])
            for rule in self.rules
        )


class ApiServer:
    """The server, on a port of this machine, with the rules of the Roles in a file."""

    def __init__(self, roles: list[Path], *bound: str) -> None:
        documents = [one for path in roles for one in yaml.safe_load_all(path.read_text())]
        rules = [
            rule
            for one in documents
            if one["kind"] == "Role" and one["metadata"]["name"] in bound
            for rule in one["rules"]
        ]
        self.state = State(rules)
        state = self.state

        class Handler(_Handler):
            kept = state

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def kubeconfig(self, path: Path, token: str = TOKEN) -> Path:
        named = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stand-in", "cluster": {"server": self.address}}],
            "users": [{"name": "train", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "stand-in", "user": "train", "namespace": NAMESPACE}}],
            "current-context": "c",
        }
        path.write_text(yaml.safe_dump(named))
        return path

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    kept: State
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815  (names that http.server looks for)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        try:
            status, answer = self._answer(body)
        except Refusal as refusal:
            status = refusal.status
            answer = {"kind": "Status", "status": "Failure", "reason": refusal.reason, "message": refusal.message}
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, body: Object) -> tuple[int, Any]:
        state, url = self.kept, urlsplit(self.path)
        state.calls.append(f"{self.command} {url.path}")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if state.faults:
            raise Refusal(state.faults.pop(0), "InternalError", "etcdserver: request timed out")
        found = PATH.match(url.path)
        if not found:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        api, plural, name = found["core"] or found["group"], found["plural"], found["name"] or ""
        resource = f"{plural}/log" if found["log"] else plural
        verb = VERBS.get(self.command) or ("get" if name else "list")
        if (api, plural) not in KNOWN:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        if found["namespace"] != NAMESPACE or not state.allowed(verb, api, resource, name):
            raise Refusal(
                403,
                "Forbidden",
                f'{resource} "{name}" is forbidden: User "system:serviceaccount:{NAMESPACE}:voxline-train" cannot '
                f'{verb} resource "{resource}" in the namespace "{found["namespace"]}"',
            )
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        with state.lock:
            if found["log"]:
                return 200, self._log(name, query)
            if verb == "create":
                check(api, plural, body)
                return 201, copy.deepcopy(state.put(api, plural, body))
            if verb == "list":
                wanted = dict(pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair)
                items = [one for one in state.all(api, plural) if wanted.items() <= one["metadata"]["labels"].items()]
                return 200, {"kind": "List", "items": copy.deepcopy(items)}
            if verb == "get":
                return 200, copy.deepcopy(state.get(api, plural, name))
            if verb == "patch":
                return 200, copy.deepcopy(state.merge(api, plural, name, body))
            return 200, copy.deepcopy(state.delete(api, plural, name, body))

    def _log(self, name: str, query: dict[str, str]) -> str:
        pod = self.kept.get("v1", "pods", name)
        names = [one["name"] for one in pod["spec"]["containers"]]
        if query["container"] not in names:
            raise Refusal(400, "BadRequest", f"container {query['container']} is not valid for pod {name}")
        if pod["status"]["phase"] == "Pending":
            raise Refusal(400, "BadRequest", f'container "{query["container"]}" is waiting to start')
        since = query.get("sinceTime", "")[:19]  # whole seconds, as the real one counts
        lines = self.kept.logs.get(pod["metadata"]["uid"], [])
        return "".join(f"{stamp} {line}\n" for stamp, line in lines if stamp[:19] >= since)


def check(api: str, plural: str, body: Object) -> None:
    """Refuses objects that the real server would refuse: kind, name, owners, and a TrainJob's shape."""
    if body.get("kind") != KNOWN[api, plural] or body.get("apiVersion") != api:
        raise Refusal(400, "BadRequest", f"the object is a {body.get('apiVersion')} {body.get('kind')}, not a {api}")
    name = body["metadata"].get("name", "")
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) or len(name) > 63:
        raise Refusal(422, "Invalid", f'{body["kind"]} "{name}" is invalid: metadata.name')
    for owner in body["metadata"].get("ownerReferences", []):
        if not {"apiVersion", "kind", "name", "uid"} <= owner.keys():
            raise Refusal(422, "Invalid", f'{body["kind"]} "{name}" is invalid: metadata.ownerReferences')
    if body["kind"] == "TrainJob":
        unknown = (body["spec"].keys() - TRAIN_JOB_FIELDS) | (body["spec"]["trainer"].keys() - TRAINER_FIELDS)
        if unknown or not body["spec"].get("runtimeRef", {}).get("name"):
            raise Refusal(422, "Invalid", f'TrainJob "{name}" is invalid: spec: {sorted(unknown) or "runtimeRef"}')


def now() -> str:
    """As Kubernetes stamps things, in nine digits, so that text sorts as time does."""
    nanoseconds = time.time_ns()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(nanoseconds // 10**9)) + f".{nanoseconds % 10**9:09d}Z"


def _merge(found: Object, change: Object) -> None:
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict) and isinstance(found.get(key), dict):
            _merge(found[key], value)
        else:
            found[key] = value
