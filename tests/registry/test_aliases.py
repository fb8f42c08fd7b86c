"""Aliases: one truth of what is in service, which the journal holds and everything else follows."""

import re
import shutil
from pathlib import Path

import pytest

from tests.registry.published import exported, served
from voxline.errors import SettingsError, WorkError
from voxline.inference.saved_model import model_digest
from voxline.pipelines.cli.main import main
from voxline.registry.journal import CANDIDATE, PRODUCTION
from voxline.registry.models import find_model, resolve_version
from voxline.registry.models_config import MODELS_CONFIG, models_config, write_models_config
from voxline.registry.registry import Registry


def push(registry: Registry, folder: Path, content: str, alias: str = PRODUCTION) -> int:
    model = exported(folder / content, content)
    with registry.locked(), registry.publishing(model, model_digest(model), "push", alias=alias) as (version, _):
        pass
    return version


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """Versions 1 and 2 went into production; 3 is a candidate."""
    made = Registry(tmp_path / "registry", "asr")
    for content, alias in (("a", PRODUCTION), ("b", PRODUCTION), ("c", CANDIDATE)):
        push(made, tmp_path, content, alias)
    return made


def test_a_candidate_leaves_production_alone_until_it_is_promoted(registry: Registry) -> None:
    assert (registry.in_service(), registry.candidate(), served(registry)) == (2, 3, "b")
    change = registry.promote(CANDIDATE, note="heard by Mara")
    assert (change.version, change.action, change.replaces, change.note) == (3, "promote", 2, "heard by Mara")
    assert (registry.in_service(), registry.candidate(), served(registry)) == (3, None, "c")
    assert registry.versions() == [1, 2, 3], "a promotion makes no version"
    assert registry.journal()[-1] == change
    assert registry.event(3).action == "push", "how the version came to be"
    with pytest.raises(WorkError, match="no version is candidate"):
        registry.promote(CANDIDATE)
    with pytest.raises(WorkError, match="version 3 of asr is production already"):
        registry.promote(3)
    with pytest.raises(WorkError, match="version 3 of asr is production already"):
        registry.promote(3, CANDIDATE)
    with pytest.raises(SettingsError, match="production or candidate is accepted"):
        registry.promote(1, "live")


def test_a_push_to_production_overtakes_a_candidate(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "d")
    assert (registry.in_service(), registry.candidate()) == (4, None)
    registry.promote(3, CANDIDATE)
    assert registry.candidate() == 3, "a person may name it again"


def test_a_rollback_goes_to_what_was_in_production_and_not_to_a_candidate(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "d")
    change = registry.rollback()
    assert (change.version, change.copy_of, change.replaces) == (5, 2, 4)
    assert served(registry) == "b"


def test_a_rollback_does_not_go_to_what_was_rolled_back(registry: Registry) -> None:
    assert registry.rollback(note="b is bad").copy_of == 1
    registry.promote(CANDIDATE)  # its number is below that of the rollback
    assert registry.history().rolled_back == {registry.event(2).digest: 2}
    change = registry.rollback(note="c is bad, too")
    assert (change.copy_of, served(registry)) == (1, "a")


def test_promoting_an_older_version_takes_the_newer_out_of_service(registry: Registry) -> None:
    registry.promote(1)
    assert (registry.in_service(), registry.candidate()) == (1, 3)
    assert registry.history().rolled_back == {registry.event(2).digest: 2}
    registry.promote(2)
    assert registry.history().rolled_back == {}, "a person wanted it back"


def test_a_withdrawn_candidate_waits_no_more_and_is_not_pushed_again(registry: Registry) -> None:
    change = registry.withdraw(3, note="empty texts 30% for 2%")
    assert (change.version, change.action, change.alias, change.replaces) == (3, "withdraw", CANDIDATE, 2)
    assert (registry.in_service(), registry.candidate(), registry.versions()) == (2, None, [1, 2, 3])
    assert registry.journal()[-1] == change
    assert registry.history().rolled_back == {registry.event(3).digest: 3}
    assert registry.event(3).action == "push", "how the version came to be"
    with pytest.raises(WorkError, match="version 3 of asr is not the candidate"):
        registry.withdraw(3)
    with pytest.raises(WorkError, match="version 2 of asr is not the candidate"):
        registry.withdraw(2)
    registry.promote(3, CANDIDATE)
    assert registry.candidate() == 3
    assert registry.history().rolled_back == {}, "a person wanted it back"


def test_production_goes_back_where_its_version_was_deleted(registry: Registry) -> None:
    shutil.rmtree(registry.folder / "2")
    assert registry.in_service() == 1


def test_aliases_survive_a_lost_line(registry: Registry) -> None:
    journal = registry.folder / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[1:3]))  # the line of version 1 is restored after those of 2 and 3
    assert (registry.in_service(), registry.candidate()) == (2, 3)
    with registry.locked():
        pass
    assert (registry.in_service(), registry.candidate()) == (2, 3)


def test_a_damaged_version_is_not_promoted(registry: Registry) -> None:
    (registry.folder / "3" / "saved_model.pb").write_text("x")
    with pytest.raises(WorkError, match="damaged since it was published; promote another"):
        registry.promote(CANDIDATE)
    assert registry.in_service() == 2


def test_a_version_that_lost_its_marker_is_still_held_to_the_journal(registry: Registry) -> None:
    version = registry.folder / "2"
    (version / "version.json").unlink()
    assert registry.intact_path(2) == version
    (version / "saved_model.pb").write_text("x")
    with pytest.raises(WorkError, match="not the ones that were published"):
        registry.intact_path(2)


def test_a_promotion_does_not_undo_a_push_that_was_killed(registry: Registry) -> None:
    """The staging folder of a decided version is completed, also if a promotion of it is in the journal."""
    (registry.folder / "3").rename(registry.folder / ".incoming-3-0000")
    with registry.locked():
        pass
    assert registry.versions() == [1, 2, 3]


@pytest.mark.parametrize(
    ("reference", "version"), [("asr", 2), ("asr@production", 2), ("asr@candidate", 3), ("asr@1", 1)]
)
def test_a_reference_names_a_version_everywhere(
    registry: Registry, tmp_path: Path, reference: str, version: int
) -> None:
    assert resolve_version(tmp_path / "registry", reference)[1] == version
    assert find_model(tmp_path / "registry" / reference) == registry.path(version)


def test_an_unknown_alias_or_number_is_refused(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="production or candidate is accepted"):
        find_model(tmp_path / "registry" / "asr@latest")
    with pytest.raises(WorkError, match="no version 9; existing: 1, 2, 3"):
        find_model(tmp_path / "registry" / "asr@9")


def test_tensorflow_serving_is_told_what_the_aliases_say(registry: Registry, tmp_path: Path) -> None:
    root = tmp_path / "registry"

    def loaded() -> list[tuple[str, str, str]]:
        text = (root / MODELS_CONFIG).read_text()
        return re.findall(
            r'name: "(.*)"\n    base_path: "(.*)"\n.*\n.*\n      specific {\n        versions: (.*)', text
        )

    write_models_config(root)
    at = str(root / "asr")
    assert loaded() == [("asr", at, "2"), ("asr@candidate", at, "3")]
    registry.promote(CANDIDATE)
    push(Registry(root, "tts"), tmp_path, "voice")
    write_models_config(root)
    assert loaded() == [("asr", at, "3"), ("tts", str(root / "tts"), "1")]
    assert 'base_path: "/mnt/registry/asr"' in models_config(root, "/mnt/registry/")
    (root / MODELS_CONFIG).write_text("# mine\n")
    write_models_config(root)
    assert (root / MODELS_CONFIG).read_text() == "# mine\n"


@pytest.mark.slow
def test_the_command_promotes_and_what_serves_follows(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def voxline(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["models", *arguments, "--registry", str(tmp_path / "registry")])
        assert not ended.value.code
        return capsys.readouterr().out

    assert "version 3 is the candidate" in voxline("list")
    assert voxline("promote", "asr") == "asr: version 3 is in service in place of version 2\n"
    assert "versions: 3" in (tmp_path / "registry" / MODELS_CONFIG).read_text()
    assert voxline("promote", "asr", "1", "--to", "candidate") == "asr: version 1 is the candidate\n"
    shown = voxline("show", "asr").splitlines()
    assert [line[0] for line in shown] == [" ", " ", " ", "▸", "▹"]
    assert "promote to production" in shown[3]
    voxline("rollback", "asr")
    assert "versions: 4" in (tmp_path / "registry" / MODELS_CONFIG).read_text()
    assert voxline("serving-config") == (tmp_path / "registry" / MODELS_CONFIG).read_text()
