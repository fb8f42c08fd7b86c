"""A journal that was lost or damaged is an error with a way back, in folders and in buckets."""

import json
from pathlib import Path

import pytest

from tests.buckets.storages import AnyStorage
from tests.registry.published import exported
from voxline.errors import PreconditionError, WorkError
from voxline.inference.saved_model import model_digest
from voxline.pipelines.cli.main import main
from voxline.registry.journal import CANDIDATE, PRODUCTION, JournalError
from voxline.registry.models_config import MODELS_CONFIG, models_config, served_versions, write_models_config
from voxline.registry.recovery import describe_recovery, recover_journal
from voxline.registry.registry import Registry
from voxline.store.bucket_cache import CACHE_ENV
from voxline.store.objects import ObjectStore, open_store
from voxline.store.storage import ObjectInfo

GARBAGE = b"\x80\xffnot a journal\n[[["


def push(registry: Registry, folder: Path, content: str, alias: str = PRODUCTION) -> None:
    model = exported(folder / content, content)
    with registry.locked(), registry.publishing(model, model_digest(model), "push", alias=alias):
        pass


def fill(root: str, folder: Path) -> Registry:
    """Versions 1 and 2 were pushed to production, 3 is a candidate, 4 and 5 were, and 2 was promoted again."""
    registry = Registry(root, "asr")
    for content, alias in zip("abcde", (PRODUCTION, PRODUCTION, CANDIDATE, PRODUCTION, PRODUCTION), strict=True):
        push(registry, folder, content, alias)
    registry.promote(2)
    write_models_config(root)
    assert registry.in_service() == 2
    return registry


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(str(tmp_path / "registry"), tmp_path / "models")
    return tmp_path / "registry"


@pytest.fixture
def in_bucket(storage: AnyStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "cache"))
    fill(f"{storage.uri}/models", tmp_path / "models")
    return f"{storage.uri}/models"


def injure(root: Path | str, data: bytes | None) -> ObjectStore:
    store = open_store(root) / "asr"
    store.delete("journal.jsonl")
    if data is not None:
        store.write("journal.jsonl", data)
    return store


@pytest.mark.parametrize("data", [None, b"", GARBAGE], ids=["lost", "empty", "garbage"])
def test_production_does_not_change_where_the_journal_is_lost(root: Path, data: bytes | None, tmp_path: Path) -> None:
    injure(root, data)
    registry = Registry(root, "asr")
    way_back = r"journal\.jsonl.*voxline models recover asr --registry"
    for call in (registry.in_service, registry.candidate, registry.journal, lambda: registry.promote(5)):
        with pytest.raises(JournalError, match=way_back):
            call()
    with pytest.raises(JournalError, match=way_back):
        push(registry, tmp_path / "more", "f")
    assert registry.versions() == [1, 2, 3, 4, 5], "nothing was published"
    assert registry._read("journal.jsonl") == data, "nothing was written"


def test_a_journal_that_was_cut_short_is_an_error(root: Path) -> None:
    lines = (root / "asr" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    injure(root, b"".join(lines[:2]))
    with pytest.raises(JournalError, match="no line of version 3, 4, 5"):
        Registry(root, "asr").in_service()


def check_recovery(root: Path | str, data: bytes | None) -> None:
    store = injure(root, data)
    recover_journal(root, "asr", 2, note="backup was gone")
    registry = Registry(root, "asr")
    assert (registry.in_service(), registry.candidate()) == (2, None)
    assert [event.version for event in registry.journal() if event.makes_version] == [1, 2, 3, 4, 5]
    assert registry.journal()[-1].note == "journal recovered: backup was gone"
    assert registry.history().earlier_production == [5, 4, 1], "version 3 was a candidate"
    kept = [info for info in store.list() if info.name.startswith("journal.damaged-")]
    assert [store.read(info.name) for info in kept] == ([data] if data else [])
    assert served_versions(root) == {"asr": 2}
    registry.promote(5)
    assert registry.in_service() == 5


@pytest.mark.parametrize("data", [None, GARBAGE], ids=["lost", "garbage"])
def test_it_is_rebuilt_in_a_folder(root: Path, data: bytes | None) -> None:
    check_recovery(root, data)


def test_it_is_rebuilt_in_a_bucket(in_bucket: str) -> None:
    with pytest.raises(WorkError, match="the journal is whole"):
        recover_journal(in_bucket, "asr", 2)
    check_recovery(in_bucket, GARBAGE)


def test_lines_that_can_be_read_stay(root: Path) -> None:
    whole = (root / "asr" / "journal.jsonl").read_bytes()
    injure(root, b"garbage\n" + whole)
    events = recover_journal(root, "asr", 2, candidate=3)
    assert b"".join(json.dumps(vars(event)).encode() + b"\n" for event in events).startswith(whole.split(b'{"fence')[0])
    assert Registry(root, "asr").candidate() == 3


def test_a_version_without_records_is_taken_from_its_provenance(root: Path) -> None:
    registry = Registry(root, "asr")
    digest = registry.event(4).digest
    (root / "asr" / "4" / "version.json").unlink()
    provenance = {"version": 4, "digest": digest, "pushed_at": "2026-01-01T00:00:00Z", "replaces": 2}
    (root / "asr" / "4" / "provenance.json").write_text(json.dumps(provenance))
    (root / "asr" / "5" / "version.json").write_text("{")
    injure(root, None)
    recover_journal(root, "asr", 2)
    event = next(event for event in registry.journal() if event.version == 4)
    assert (event.action, event.at, event.digest, event.replaces) == ("import", "2026-01-01T00:00:00Z", digest, 2)
    assert registry.in_service() == 2


@pytest.mark.parametrize(
    ("production", "candidate", "message"),
    [(6, None, "no version 6"), (4, None, "not the ones that were published"), (2, 2, "cannot be in production and")],
)
def test_a_version_that_cannot_be_in_production_is_refused(
    root: Path, production: int, candidate: int | None, message: str
) -> None:
    (root / "asr" / "4" / "saved_model.pb").write_text("x")
    injure(root, GARBAGE)
    with pytest.raises(WorkError, match=message):
        recover_journal(root, "asr", production, candidate)
    assert (root / "asr" / "journal.jsonl").read_bytes() == GARBAGE


def test_it_is_written_whole_or_not_at_all(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write of the recovery fails once; then the same command succeeds."""
    injure(root, GARBAGE)
    write = type(open_store(root)).write

    for failing in ("journal.damaged-", "journal.jsonl"):

        def fail(
            store: ObjectStore, name: str, data: bytes, *, if_version: str | None = None, prefix: str = failing
        ) -> ObjectInfo:
            if name.startswith(prefix):
                raise PreconditionError("no space left")
            return write(store, name, data, if_version=if_version)

        with monkeypatch.context() as patched:
            patched.setattr(type(open_store(root)), "write", fail)
            with pytest.raises(PreconditionError):
                recover_journal(root, "asr", 2)
        assert (root / "asr" / "journal.jsonl").read_bytes() == GARBAGE
    for backup in (root / "asr").glob("journal.damaged-*"):
        backup.unlink()
    recover_journal(root, "asr", 2)
    assert Registry(root, "asr").in_service() == 2


def test_other_models_are_pushed_and_served_meanwhile(root: Path, tmp_path: Path) -> None:
    push(Registry(root, "other"), tmp_path / "other", "x")
    injure(root, None)
    write_models_config(root)
    assert served_versions(root) == {"asr": 2, "other": 1}, "TensorFlow Serving keeps what it serves"
    assert models_config(root).count("config {") == 2
    (root / MODELS_CONFIG).write_text("model_config_list {}\n")
    assert served_versions(root) == {}


def test_the_command_asks_for_the_version_in_production(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*arguments: str) -> int:
        command = ["voxline", "models", *arguments, "--registry", str(root)]
        monkeypatch.setattr("sys.argv", command)
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    injure(root, None)
    assert call("list") == 0
    assert "voxline models recover asr" in capsys.readouterr().out
    assert call("recover", "asr") == 2
    shown = capsys.readouterr()
    assert "version 3" in shown.out
    assert "push to candidate" in shown.out
    assert "names as production: version 2" in shown.out
    assert "--production: name the version" in shown.err
    assert describe_recovery(root, "asr")[0].startswith("version 1  ")
    assert call("recover", "asr", "--production", "2") == 0
    assert "▸" in capsys.readouterr().out
    assert Registry(root, "asr").in_service() == 2
