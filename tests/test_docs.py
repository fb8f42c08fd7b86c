"""The docs: the tutorial's commands work, its config is the one that init writes, pages link to what exists."""

import json
import re
import shlex
import wave
from pathlib import Path

import numpy as np
import pytest
import typer
import yaml
from typer.testing import CliRunner

from benchmarks import hours
from tests.conftest import ROOT
from voxline.families.asr import published_weights
from voxline.pipelines.cli.main import app

TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
TRAINS_OR_LOADS = {
    ("run", "asr"),
    ("transcribe",),
    ("doctor",),
    ("models", "list"),
    ("models", "show"),
    ("runs", "list"),
}
"""Commands that train, import TensorFlow, or need a model or a run: only their options are checked."""


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", TUTORIAL, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with 40 recordings, and a manifest whose first lines are the tutorial's but for the speakers."""
    monkeypatch.chdir(tmp_path)
    first = [json.loads(line) for line in blocks("json")[0].splitlines()]
    (tmp_path / "recordings/clips").mkdir(parents=True)
    samples = (3000 * np.sin(np.arange(8_000) / 9)).astype("<i2").tobytes()
    lines = []
    for number in range(40):
        values = {key: value for key, value in first[number % 2].items() if key != "speaker"}
        values["audio_filepath"] = f"clips/{number}.wav"
        lines.append(json.dumps(values))
        with wave.open(f"recordings/clips/{number}.wav", "wb") as out:
            out.setparams((1, 2, 8_000, 0, "NONE", ""))
            out.writeframes(samples)
    Path("recordings/manifest.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_the_tutorials_commands_work(folder: Path) -> None:
    command = typer.main.get_command(app)
    typed = [shlex.split(line)[1:] for block in blocks("sh") for line in block.splitlines()]
    assert len(typed) >= 12
    for words in typed:
        group, arguments = command, list(words)
        while arguments and arguments[0] in getattr(group, "commands", {}):
            group = group.commands[arguments.pop(0)]  # type: ignore[attr-defined]
        group.make_context(" ".join(words), list(arguments))  # refuses an unknown option
        if words[:2] == ["run", "asr"]:
            words = [*words, "--dry-run"]
        elif tuple(words[:2]) in TRAINS_OR_LOADS or tuple(words[:1]) in TRAINS_OR_LOADS:
            continue
        ended = CliRunner().invoke(app, words, catch_exceptions=False)
        assert ended.exit_code == 0, (words, ended.output)
    written = yaml.safe_load(Path("recordings.yaml").read_text(encoding="utf-8"))
    assert written == yaml.safe_load(blocks("yaml")[0])


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"])
def test_links_of_the_pages_at_the_top_lead_to_files(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert targets
    assert [target for target in targets if target and not (ROOT / target).exists()] == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(file.relative_to(ROOT / "docs")) for file in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in nav and not re.match(r"decisions/\d", page)] == []


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    pages = [file.name for file in (ROOT / "docs/decisions").glob("0*.md")]
    assert [page for page in pages if page not in index] == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def check_commands(page: str) -> None:
    """Fails for an unknown command or option in the blocks of a page."""
    command = typer.main.get_command(app)
    typed = "".join(re.findall(r"^```sh\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    assert typed
    for line in typed.splitlines():
        group, arguments = command, shlex.split(line, comments=True)
        if arguments.pop(0) != "voxline":
            continue
        while arguments and arguments[0] in getattr(group, "commands", {}):
            group = group.commands[arguments.pop(0)]  # type: ignore[attr-defined]
        group.make_context(line, arguments)


def test_the_settings_and_commands_of_warm_start_are_accepted(tmp_path: Path) -> None:
    from voxline.pipelines.config.load import load_config

    text = (ROOT / "docs/warm-start.md").read_text(encoding="utf-8")
    settings, public, published = re.findall(r"^```yaml\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    given = {"corpus": {"uri": str(tmp_path)}, "name": "asr"}
    config = load_config({**given, **yaml.safe_load(settings)})
    assert config.train.start.model == "asr@production"  # type: ignore[attr-defined]
    stored = ROOT / "tests/families/networks/hub/whisper"
    config = load_config({**given, **yaml.safe_load(re.sub(r"hf://[^,]*", str(stored), public))})
    assert config.train.model.kind == "whisper"  # type: ignore[attr-defined]
    assert (config.train.model.units, config.extract.features.mels) == (16, 8)  # type: ignore[attr-defined]
    config = load_config({**given, **yaml.safe_load(published)})
    assert config.extract.features == published_weights.FEATURES  # type: ignore[attr-defined]
    check_commands(text)


def test_the_configs_and_commands_of_voice_conversion_are_accepted() -> None:
    from voxline.families.conversion.settings import ConversionTrainSettings
    from voxline.pipelines.config.load import apply_assignments, load_config

    text = (ROOT / "docs/voice-conversion.md").read_text(encoding="utf-8")
    (dataset,) = re.findall(r"^```yaml\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    load_config(yaml.safe_load(dataset))
    check_commands(text)
    (train,) = re.findall(r"^voxline voices train (.*?[^\\])$", text, flags=re.MULTILINE | re.DOTALL)
    words = shlex.split(train.replace("\\\n", " "))
    given = [words[index + 1] for index, word in enumerate(words) if word == "--set"]
    assert ConversionTrainSettings.of(apply_assignments({}, given)[0]).model.channels == 16
    listed = set(re.findall(r"^\| `([a-z_.]+)` \|", text.partition("## Settings")[2], flags=re.MULTILINE))
    for section in ("model", "losses"):
        fields = type(getattr(ConversionTrainSettings(), section)).model_fields
        assert {name for name in listed if name.startswith(section)} == {f"{section}.{name}" for name in fields}


def test_the_space_and_the_commands_of_searches_are_accepted() -> None:
    from voxline.pipelines.config.load import load_config
    from voxline.pipelines.search.space import KINDS, Space

    text = (ROOT / "docs/search.md").read_text(encoding="utf-8")
    (ranges,) = re.findall(r"^```yaml\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    space = Space(yaml.safe_load(ranges))
    space.check(load_config({"corpus": {"uri": "corpus"}, "name": "asr", "language": {"kind": "ngram"}}))
    assert {one.kind for one in space.ranges} == set(KINDS)
    check_commands(text)


def test_the_words_for_newcomers_are_keys_and_commands() -> None:
    """Every setting and every command of docs/coming-from.md exists."""
    page = (ROOT / "docs/coming-from.md").read_text(encoding="utf-8")
    assert len(page.split()) <= 700
    reference = (ROOT / "docs/config.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^##+ `([a-z_.]+)`\n(.*?)(?=^##|\Z)", reference, flags=re.MULTILINE | re.DOTALL))
    ours = [line.split("|")[-2] for line in page.splitlines() if line.startswith("| ") and "`" in line]
    keys = [code for cell in ours for code in re.findall(r"`((?:corpus|train|convert)\.[a-z_.]+)", cell)]
    assert len(keys) > 12
    for key in keys:
        section, _, name = key.rpartition(".")
        assert f"| `{name}` |" in sections.get(section, "") or key in sections, key
    command = typer.main.get_command(app)
    for words in re.findall(r"`voxline ([a-z -]+)", page.replace("voxline train", "")):
        group = command
        for word in words.split():
            if not hasattr(group, "commands"):
                break
            assert word in group.commands, words
            group = group.commands[word]


def test_the_page_of_100_000_hours_is_computed_from_what_was_measured() -> None:
    """`python -m benchmarks.hours` writes it."""
    page = hours.PAGE.read_text(encoding="utf-8")
    assert hours.filled(page) == page
    assert all(page.count(f"<!-- {part} -->") == 1 for part in hours.PARTS)
