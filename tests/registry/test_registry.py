"""A version appears whole or not at all, and the journal has every change, whichever process was killed when."""

import concurrent.futures
import json
import shutil
import threading
from pathlib import Path

import pytest

from tests.registry.published import exported, publish, served
from tests.waiting import PATIENCE_SECONDS
from voxline.errors import SettingsError, WorkError
from voxline.inference.saved_model import model_digest
from voxline.registry.journal import RegistryEvent
from voxline.registry.models import find_model, model_names
from voxline.registry.registry import Registry


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """Three versions of a model."""
    made = Registry(tmp_path / "a registry é", "asr")
    for content in "abc":
        publish(made, exported(tmp_path / content, content))
    return made


def test_versions_are_numbered_in_order_and_the_highest_is_in_service(registry: Registry, tmp_path: Path) -> None:
    assert registry.versions() == [1, 2, 3]
    assert registry.in_service() == 3
    assert served(registry) == "c"
    assert model_names(tmp_path / "a registry é") == ["asr"]
    assert registry.journal()[1] == RegistryEvent(
        2, "push", registry.journal()[1].at, model_digest(registry.path(2)), 1, metrics={"wer": 0.25}
    )


def test_only_numbered_folders_are_versions_and_reading_writes_nothing(registry: Registry, tmp_path: Path) -> None:
    (registry.folder / "notes").mkdir()
    (registry.folder / "9").write_text("a file")
    (registry.folder / "007").write_text("a file")
    assert registry.versions() == [1, 2, 3]
    assert Registry(tmp_path / "none", "asr").in_service() is None
    assert Registry(tmp_path / "none", "asr").journal() == []
    assert not (tmp_path / "none").exists()


def test_a_folder_that_serving_would_load_as_a_version_is_named(registry: Registry) -> None:
    """TensorFlow Serving reads `007` as 7 and would serve it, while the registry says that 3 is in service."""
    (registry.folder / "007").mkdir()
    with pytest.raises(WorkError, match="007: TensorFlow Serving takes this folder for version 7; rename it"):
        registry.in_service()


def test_a_rollback_keeps_all_metrics(registry: Registry) -> None:
    assert registry.rollback().metrics == {"wer": 0.25}


def test_rolling_back_publishes_the_older_bytes_as_a_new_version(registry: Registry) -> None:
    change = registry.rollback(note="too slow")
    assert (change.version, change.action, change.replaces, change.copy_of) == (4, "rollback", 3, 2)
    assert (change.note, change.metrics) == ("too slow", {"wer": 0.25})
    assert served(registry) == "b"
    assert (registry.path(4) / "model_card.md").read_text() == "# version 2"
    assert model_digest(registry.path(4)) == model_digest(registry.path(2))
    assert registry.journal()[-1] == change
    assert registry.history().rolled_back == {model_digest(registry.path(3)): 3}


def test_rolling_back_twice_goes_two_steps_back(registry: Registry) -> None:
    registry.rollback()
    assert registry.rollback().copy_of == 1
    assert served(registry) == "a"
    with pytest.raises(WorkError, match="nothing older than version 1"):
        registry.rollback()


def test_a_person_may_roll_back_to_any_version_and_forth_again(registry: Registry) -> None:
    assert registry.rollback(to=1).copy_of == 1
    assert registry.rollback(to=3).copy_of == 3
    assert served(registry) == "c"
    assert model_digest(registry.path(3)) not in registry.history().rolled_back
    with pytest.raises(WorkError, match="what version 5 serves already"):
        registry.rollback(to=3)
    with pytest.raises(WorkError, match="no version 9; existing: 1, 2, 3, 4, 5"):
        registry.rollback(to=9)


def test_a_version_damaged_on_the_disk_is_not_rolled_back_to(registry: Registry) -> None:
    (registry.path(2) / "variables" / "variables.index").write_text("?")
    with pytest.raises(WorkError, match="2: damaged since it was published"):
        registry.rollback()
    assert registry.versions() == [1, 2, 3]


def test_bytes_that_were_not_evaluated_are_not_published(registry: Registry, tmp_path: Path) -> None:
    model = exported(tmp_path / "d", "d")
    judged = model_digest(model)
    (model / "saved_model.pb").write_text("changed since")
    with pytest.raises(WorkError, match="not those that were evaluated"), registry.locked():  # noqa: SIM117
        with registry.publishing(model, judged, "push"):
            pass
    assert registry.versions() == [1, 2, 3]
    assert len(registry.journal()) == 3
    assert not list(registry.folder.glob(".incoming*"))


def test_a_failed_publication_leaves_nothing(registry: Registry, tmp_path: Path) -> None:
    model = exported(tmp_path / "d", "d")
    with pytest.raises(ZeroDivisionError), registry.locked():  # noqa: SIM117
        with registry.publishing(model, model_digest(model), "push"):
            1 / 0  # noqa: B018
    assert registry.versions() == [1, 2, 3]
    assert publish(registry, model) == 4


def test_a_registry_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "registry").write_text("a file in place of the folder")
    with pytest.raises(WorkError, match="registry/asr: the registry cannot be changed"):
        publish(Registry(tmp_path / "registry", "asr"), exported(tmp_path / "d", "d"))
    with pytest.raises(WorkError, match="no version yet"):
        Registry(tmp_path / "nowhere", "asr").rollback()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("cut", [0, 20, 1])
def test_a_lost_line_of_the_journal_is_written_again(registry: Registry, tmp_path: Path, cut: int) -> None:
    """Killed between the rename and the line, in the middle of the line, and before the line's end."""
    journal = registry.folder / "journal.jsonl"
    whole = journal.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    journal.write_bytes(whole[: -len(last)] + (last[:-cut] if cut else b""))
    assert [change.version for change in registry.journal()] == [1, 2, 3]
    with registry.locked():
        assert journal.read_bytes() == whole
    publish(registry, exported(tmp_path / "d", "d"))
    assert [json.loads(line)["version"] for line in journal.read_text().splitlines()] == [1, 2, 3, 4]


def test_a_staging_folder_of_a_killed_push_is_removed_by_the_next_change(registry: Registry) -> None:
    (registry.folder / ".incoming-4-dead" / "variables").mkdir(parents=True)
    with registry.locked():
        assert not list(registry.folder.glob(".incoming*"))
    assert registry.versions() == [1, 2, 3]


def test_a_damaged_journal_is_named_with_its_line(registry: Registry) -> None:
    journal = registry.folder / "journal.jsonl"
    journal.write_text("not a line of ours\n" + journal.read_text())
    with pytest.raises(WorkError, match=r"journal.jsonl:1"):
        registry.journal()


def test_a_damaged_version_file_is_replaced_by_the_line_of_the_journal(registry: Registry) -> None:
    (registry.path(3) / "version.json").write_text('{"version": 3, "dig')
    assert registry.event(3).digest == model_digest(registry.path(3))
    lines = (registry.folder / "journal.jsonl").read_text().splitlines(keepends=True)
    (registry.folder / "journal.jsonl").write_text("".join(lines[:2]))
    with pytest.raises(WorkError, match=r"no line of version 3, and 3/version.json is damaged"):
        registry.event(3)


def test_a_version_copied_by_hand_is_journaled_once_under_its_own_number(registry: Registry, tmp_path: Path) -> None:
    shutil.copytree(registry.path(1), registry.folder / "5")
    for content in "de":
        publish(registry, exported(tmp_path / content, content))
    assert [(change.version, change.action) for change in registry.journal()[3:]] == [
        (5, "import"),
        (6, "push"),
        (7, "push"),
    ]


def test_a_number_is_skipped_if_a_file_has_it_and_refused_if_it_is_too_large(
    registry: Registry, tmp_path: Path
) -> None:
    (registry.folder / "4").write_text("no folder")
    assert publish(registry, exported(tmp_path / "d", "d")) == 5
    (registry.folder / ("9" * 18)).mkdir()
    with pytest.raises(WorkError, match="no number is left"):
        publish(registry, exported(tmp_path / "e", "e"))


def test_a_damaged_version_in_service_can_be_rolled_back_to_a_whole_copy(registry: Registry) -> None:
    registry.rollback(to=2)
    (registry.path(4) / "saved_model.pb").write_text("x")
    assert registry.rollback(to=2).version == 5
    assert served(registry) == "b"


def test_numbers_of_deleted_versions_are_not_used_again(registry: Registry, tmp_path: Path) -> None:
    shutil.rmtree(registry.path(3))
    assert registry.in_service() == 2
    assert publish(registry, exported(tmp_path / "d", "d")) == 4


def test_versions_copied_by_hand_are_journaled(registry: Registry, tmp_path: Path) -> None:
    exported(registry.folder / "7", "by hand")
    (registry.folder / "8").mkdir()
    assert [(change.version, change.action) for change in registry.journal()[3:]] == [(7, "import"), (8, "import")]
    shutil.rmtree(registry.folder / "8")
    assert publish(registry, exported(tmp_path / "d", "d")) == 8


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", "-x", "a\n"])
def test_names_that_could_leave_the_registry_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="model name"):
        Registry(tmp_path, name)


def test_an_unknown_scheme_is_refused_before_a_folder_of_that_name_is_created() -> None:
    with pytest.raises(SettingsError, match=r"az://models.*az:// is not supported; accepted are gs://"):
        Registry("az://models", "asr")


def test_a_second_push_waits_for_the_first(tmp_path: Path) -> None:
    """Two threads stand for two processes: flock keeps file descriptors apart, also within one process."""
    first, second = (exported(tmp_path / name, name) for name in "ab")
    copied, go_on = threading.Event(), threading.Event()

    def slowly() -> None:
        registry = Registry(tmp_path / "r", "asr")
        with registry.locked(), registry.publishing(first, model_digest(first), "push"):
            copied.set()
            go_on.wait(PATIENCE_SECONDS)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        slow = pool.submit(slowly)
        assert copied.wait(PATIENCE_SECONDS)
        quick = pool.submit(publish, Registry(tmp_path / "r", "asr"), second)
        with pytest.raises(TimeoutError):
            quick.result(timeout=0.5)
        assert Registry(tmp_path / "r", "asr").versions() == []
        go_on.set()
        slow.result(PATIENCE_SECONDS)
        assert quick.result(PATIENCE_SECONDS) == 2
    registry = Registry(tmp_path / "r", "asr")
    assert [model_digest(registry.path(version)) for version in registry.versions()] == [
        model_digest(first),
        model_digest(second),
    ]
    assert [(change.version, change.replaces) for change in registry.journal()] == [(1, None), (2, 1)]


def test_a_folder_that_is_no_registry_is_refused_and_nothing_in_it_is_to_be_renamed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "wavs" / "00").mkdir(parents=True)
    (store / "wavs" / "00" / "00ab.wav").write_bytes(b"RIFF")
    (tmp_path / "registry" / "asr" / "1").mkdir(parents=True)
    (tmp_path / "registry" / "asr" / "1" / "saved_model.pb").write_bytes(b"")
    with pytest.raises(WorkError, match="there is no registry here") as refused:
        model_names(store)
    assert "rename" not in str(refused.value)
    with pytest.raises(WorkError, match=f"did you mean {tmp_path}/registry\\?"):
        model_names(tmp_path)
    assert model_names(tmp_path / "registry") == ["asr"]


def test_a_model_whose_files_were_replaced_is_not_found(registry: Registry, tmp_path: Path) -> None:
    for place in (registry.uri, f"{registry.uri}/3"):
        folder = registry.folder / "3"
        assert find_model(place) == folder
        was = (folder / "saved_model.pb").read_text()
        (folder / "saved_model.pb").write_text("another program")
        with pytest.raises(WorkError, match=r"not the ones that were published .*not loaded.*rollback"):
            find_model(place)
        (folder / "saved_model.pb").write_text(was)
    copied = Path(shutil.copytree(registry.folder / "3", tmp_path / "elsewhere"))
    assert find_model(copied) == copied
    (copied / "model.json").write_text("[]")
    with pytest.raises(WorkError, match="not the ones that were published"):
        find_model(copied)
