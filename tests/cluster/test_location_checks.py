"""Whether the places of a config are there, against an emulator of Google Cloud Storage, and one that tells rights."""

import http.server
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.buckets.emulator import Storage
from voxline.pipelines.cluster.doctor import check_locations
from voxline.pipelines.config.load import load_config


def found(folder: Path, **given: str) -> list[str]:
    """The findings' lines, on a config with these places."""
    (folder / "run.yaml").write_text("name: nightly\ncorpus: {uri: recordings}\n", encoding="utf-8")
    config = load_config([folder / "run.yaml"], [f"{key.replace('__', '.')}={place}" for key, place in given.items()])
    return [finding.line for finding in check_locations(config, 30)]


def test_a_missing_corpus_is_a_problem(gcs: Storage, tmp_path: Path) -> None:
    empty = found(tmp_path, corpus__uri=f"{gcs.uri}/LibriSpeech")
    assert empty[0].startswith("problem      corpus.uri")
    assert "it is empty; fix: gcloud storage cp -r" in empty[0]
    gcs.bucket("LibriSpeech").write("a.flac", b"fLaC")
    lines = found(tmp_path, corpus__uri=f"{gcs.uri}/LibriSpeech")
    assert lines == [f"ok           corpus.uri   {gcs.uri}/LibriSpeech: can be read"]
    gcs.fails("status", path="testPermissions", code=403)
    listed, unknown = found(tmp_path, corpus__uri=f"{gcs.uri}/LibriSpeech")
    assert listed == f"ok           corpus.uri   {gcs.uri}/LibriSpeech: can be listed"
    assert unknown.startswith("not checked  corpus.uri")
    assert gcs.names() == ["LibriSpeech/a.flac"], "nothing is written"


def test_a_missing_bucket_is_a_problem(gcs: Storage, tmp_path: Path) -> None:
    lines = found(tmp_path, corpus__uri=gcs.uri, store="gs://voxline-of-nobody/store")
    assert any(line.startswith("problem      store") and "voxline-of-nobody" in line for line in lines)


def test_an_unresponsive_storage_is_a_problem_within_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    monkeypatch.delenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", raising=False)
    (tmp_path / "run.yaml").write_text("name: nightly\ncorpus: {uri: gs://team/corpus}\n", encoding="utf-8")
    began = time.monotonic()
    (corpus,) = check_locations(load_config(tmp_path / "run.yaml"), 1)
    assert corpus.is_problem
    assert "the storage failed to list it" in corpus.line
    assert time.monotonic() - began < 20
    assert "VOXLINE_BUCKETS_DEADLINE_SECONDS" not in os.environ


@pytest.fixture
def granted(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """A STAND-IN for a storage that tells what is allowed: one object in every bucket, and the rights in the set."""
    rights: set[str] = set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            body: dict[str, Any] = {
                "items": [{"name": "store/a", "size": "1", "crc32c": "AAAAAA==", "generation": "1"}]
            }
            if url.path.endswith("/iam/testPermissions"):
                body = {"permissions": [one for one in parse_qs(url.query)["permissions"] if one in rights]}
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
    yield rights
    server.shutdown()
    server.server_close()


def test_a_store_must_be_writable_and_a_corpus_readable(granted: set[str], tmp_path: Path) -> None:
    granted |= {"storage.objects.get", "storage.objects.list"}
    (probe,) = (line for line in found(tmp_path, evaluate__probe="gs://team/probe") if "evaluate.probe" in line)
    assert probe.endswith("gs://team/probe: can be read")
    given = {"corpus__uri": "gs://team/corpus", "store": "gs://team/store"}
    corpus, store = found(tmp_path, **given)
    assert corpus == "ok           corpus.uri   gs://team/corpus: can be read"
    assert store.startswith("problem      store        gs://team/store: you lack storage.objects.create")
    assert "--role=roles/storage.objectUser" in store
    granted |= {"storage.objects.create", "storage.objects.delete"}
    assert found(tmp_path, **given)[1] == "ok           store        gs://team/store: can be read and written"
