"""The Hugging Face Hub on this machine, as far as its own client asks: models, their commits, uploads and downloads."""

import base64
import contextlib
import dataclasses
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

TOKEN = "hf_secretsecretsecret"  # noqa: S105 - of this server alone
LARGE = (".safetensors", ".onnx", ".pb", ".data-00000-of-00001")
"""Files that go by Git LFS."""


@dataclasses.dataclass
class Commit:
    """A commit: its id, and the files of the model there."""

    id: str
    files: dict[str, bytes]
    message: str = ""


@dataclasses.dataclass
class Repository:
    """A model on the Hub; the newest commit is the last one."""

    commits: list[Commit]
    private: bool = False

    @property
    def newest(self) -> Commit:
        return self.commits[-1]

    def at(self, revision: str) -> Commit | None:
        if revision == "main":
            return self.newest
        return next((commit for commit in self.commits if commit.id == revision), None)

    def commit(self, files: dict[str, bytes], message: str = "") -> Commit:
        """Adds a commit with these files and no others."""
        content = json.dumps([len(self.commits), sorted((name, _sha1(data)) for name, data in files.items())])
        self.commits.append(Commit(_sha1(content.encode()), files, message))
        return self.newest


class Hub(http.server.ThreadingHTTPServer):
    """The server.

    Attributes:
      repositories: by `owner/name`.
      requests: method and path of each.
      before_commit: called before a commit is looked at, as somebody else who is faster.
      ignored: files that a .gitignore leaves out.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.before_commit: Any = None
        self.ignored: set[str] = set()
        self.broken_uploads = False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class HubHandler(http.server.BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.read(with_body=False)

    def do_GET(self) -> None:
        self.read(with_body=True)

    def do_POST(self) -> None:
        self.server.requests.append(f"POST {self.path}")
        body = self.body()
        path = self.path.partition("?")[0]
        if path == "/api/validate-yaml":
            self.send({"errors": [], "warnings": []})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.fail(401)
        elif path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            private = asked.get("private", asked.get("visibility") == "private")
            self.server.repositories[name] = Repository([], bool(private))
            self.server.repositories[name].commit({".gitattributes": b"*.pb filter=lfs\n"})
            self.send({"url": f"{self.server.endpoint}/{name}"})
        elif path.endswith("/info/lfs/objects/batch"):
            objects = [self.action(asked) for asked in json.loads(body)["objects"]]
            self.send({"transfer": "basic", "objects": objects})
        elif "/preupload/" in path:
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": file["path"] in self.server.ignored,
                    "oid": None,
                }
                for file in json.loads(body)["files"]
            ]
            self.send({"files": files})
        elif "/commit/" in path:
            self.commit(path.removeprefix("/api/models/").partition("/commit/")[0], body)
        else:
            self.fail(404)

    def do_PUT(self) -> None:
        self.server.requests.append(f"PUT {self.path}")
        content = self.body()
        if self.server.broken_uploads:
            self.fail(403)
            return
        assert hashlib.sha256(content).hexdigest() == self.path.rpartition("/")[2]
        self.server.large[self.path.rpartition("/")[2]] = content
        self.send({})

    def action(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["oid"] in self.server.large:
            return asked
        return {**asked, "actions": {"upload": {"href": f"{self.server.endpoint}/upload/{asked['oid']}"}}}

    def commit(self, name: str, body: bytes) -> None:
        if self.server.before_commit:
            self.server.before_commit()
        repository = self.server.repositories[name]
        lines = [json.loads(line) for line in body.splitlines()]
        header = lines[0]["value"]
        if header.get("parentCommit") not in (None, repository.newest.id):
            self.fail(412)
            return
        files = dict(repository.newest.files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "deletedFile":
                del files[value["path"]]
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
            else:
                files[value["path"]] = base64.b64decode(value["content"])
        commit = repository.commit(files, header["summary"])
        self.send(
            {"success": True, "commitOid": commit.id, "commitUrl": f"{self.server.endpoint}/{name}/commit/{commit.id}"}
        )

    def read(self, *, with_body: bool) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        name = "/".join(path.removeprefix("/api/models").split("/")[1:3])
        repository = self.server.repositories.get(name)
        if repository is None or (repository.private and self.headers.get("Authorization") != f"Bearer {TOKEN}"):
            self.fail(404 if repository is None else 401, "RepoNotFound")
            return
        rest = path.removeprefix("/api/models").removeprefix(f"/{name}").strip("/").split("/")
        revision = rest[1] if len(rest) > 1 else "main"
        commit = repository.at(revision)
        if commit is None:
            self.fail(404, "RevisionNotFound")
        elif rest[0] == "tree":
            entries = [
                {"type": "file", "path": file, "size": len(content), "oid": _sha1(content)}
                for file, content in sorted(commit.files.items())
            ]
            self.send(entries, with_body=with_body)
        elif rest[0] in ("", "revision"):
            siblings = [{"rfilename": file} for file in sorted(commit.files)]
            information = {"id": name, "modelId": name, "sha": commit.id, "siblings": siblings}
            self.send({**information, "private": repository.private}, with_body=with_body)
        elif rest[0] == "resolve" and "/".join(rest[2:]) in commit.files:
            content = commit.files["/".join(rest[2:])]
            headers = {"ETag": f'"{_sha1(content)}"', "X-Repo-Commit": commit.id}
            self.send(content, with_body=with_body, **headers)
        else:
            self.fail(404, "EntryNotFound")

    def body(self) -> bytes:
        if length := self.headers.get("Content-Length"):
            return self.rfile.read(int(length))
        chunks = []
        while self.headers.get("Transfer-Encoding") == "chunked":
            size = int(self.rfile.readline(), 16)
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
            if not size:
                break
        return b"".join(chunks)

    def send(self, value: Any, *, with_body: bool = True, **headers: str) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def fail(self, status: int, code: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


@contextlib.contextmanager
def serve_hub() -> Iterator[Hub]:
    """A Hub without a model, until the block ends."""
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
