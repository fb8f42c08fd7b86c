"""A corpus format is added in two places: a module, and the registry of formats (docs/extend/corpus-format.md)."""

import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.listed import write
from voxline.components.ingest import corpora
from voxline.components.ingest.settings import CorpusSettings
from voxline.errors import SettingsError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/extend/corpus-format.md"


@pytest.fixture
def tsv(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers the page's module, as `FORMATS` would."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    module = types.ModuleType("voxline.components.ingest.corpora.tsv")
    exec(compile(code, str(PAGE), "exec"), module.__dict__)  # noqa: S102
    monkeypatch.setitem(corpora.CORPORA, "tsv", module.entries)


@pytest.mark.usefixtures("tsv")
def test_the_page_s_format_is_ingested_with_the_checks_of_all_formats(
    corpus: Path, record: Callable[..., Path], ingest: Callable[..., Any], tmp_path: Path
) -> None:
    record("talks/ann-1.wav")
    record("talks/ben-1.wav")
    (tmp_path / "elsewhere").mkdir()
    (corpus / "linked").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    lines = ["ann-1.wav\tgood morning\tann", "ben-1.wav\tgood night", "gone.wav\tgood bye", "ann-1.wav", "ben-1.wav\tx"]
    write(corpus / "talks" / "train.tsv", "\n".join(lines))
    out = ingest("tsv")
    assert [(one.id, one.text, one.speaker) for one in out.utterances.values()] == [
        ("talks/ann-1.wav", "good morning", "ann"),
        ("talks/ben-1.wav", "good night", ""),
    ]
    assert out.rejects == {
        "ann-1.wav": "bad_entry",
        "ben-1.wav": "duplicate_id",
        "gone.wav": "missing_file",
        "linked": "outside_corpus",
    }
    assert out.details["ann-1.wav"].startswith("talks/train.tsv:4: 1 fields; accepted: path, text and speaker")


def test_the_registry_names_each_module_of_the_folder_once() -> None:
    modules = {path.stem for path in Path(corpora.__file__).parent.glob("*.py")} - {"__init__"}
    assert sorted(corpora.CORPORA) == sorted(modules)


def test_the_settings_and_the_documentation_list_every_format() -> None:
    description = str(CorpusSettings.model_fields["format"].description)
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    documentation = "".join(page.read_text(encoding="utf-8") for page in pages)
    for name in corpora.CORPORA:
        assert name in description
        assert f"`{name}`" in documentation
    with pytest.raises(SettingsError, match=", ".join(corpora.CORPORA)):
        CorpusSettings.of({"format": "csvs"})
