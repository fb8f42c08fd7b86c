"""A corpus format is a function that a package registers by an entry point (docs/extend/corpus-format.md)."""

import re
import tomllib
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

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package as pip would: a module and its metadata on the path."""

    def installed(name: str, entry_points: str, module: str = "", source: str = "") -> None:
        site = tmp_path / f"site-{name}"
        write(site / f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        write(site / f"{name}-1.0.dist-info/entry_points.txt", entry_points)
        if module:
            write(site / f"{module}.py", source)
        monkeypatch.syspath_prepend(str(site))

    return installed


@pytest.fixture
def tsv(install: Install, tmp_path: Path) -> None:
    """Installs the package of the page."""
    page = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (project,) = (tomllib.loads(text) for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL))
    ((name, target),) = project["project"]["entry-points"]["voxline.corpora"].items()
    install("my_corpora", f"[voxline.corpora]\n{name} = {target}\n", target.partition(":")[0], code)


@pytest.mark.usefixtures("tsv")
def test_the_page_s_format_is_ingested_with_the_checks_of_all_formats(
    corpus: Path, record: Callable[..., Path], ingest: Callable[..., Any], tmp_path: Path
) -> None:
    record("talks/ann-1.wav")
    record("talks/ben-1.wav")
    (tmp_path / "elsewhere").mkdir()
    (corpus / "linked").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    lines = ["ann-1.wav|good morning|ann", "ben-1.wav|good night", "gone.wav|good bye", "ann-1.wav", "ben-1.wav|x"]
    write(corpus / "talks" / "train.psv", "\n".join(lines))
    out = ingest("psv")
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
    assert out.details["ann-1.wav"].startswith("talks/train.psv:4: 1 fields; accepted: path, text and speaker")
    assert corpora.format_names()[-1] == "psv"


def test_our_own_formats_are_registered_as_others_are() -> None:
    modules = {path.stem for path in Path(corpora.__file__).parent.glob("*.py")} - {"__init__"}
    registered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["voxline.corpora"]
    assert sorted(corpora.BUILT_IN) == sorted(modules) == sorted(registered)
    assert list(registered) == list(corpora.BUILT_IN)
    assert all(callable(corpora.load_format(name)) for name in corpora.BUILT_IN)


def test_the_settings_and_the_documentation_list_every_format() -> None:
    description = str(CorpusSettings.model_fields["format"].description)
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    documentation = "".join(page.read_text(encoding="utf-8") for page in pages)
    for name in corpora.BUILT_IN:
        assert name in description
        assert f"`{name}`" in documentation
    with pytest.raises(SettingsError, match=", ".join(corpora.BUILT_IN)):
        CorpusSettings.of({"format": "csvs"})


def test_a_name_that_two_packages_register_is_refused_and_both_are_named(install: Install) -> None:
    install("theirs", "[voxline.corpora]\nfsdd = theirs:entries\nours = theirs:entries\n")
    install("others", "[voxline.corpora]\nours = others:read\n")
    with pytest.raises(SettingsError, match=r"'ours', which 2 packages.*others 1\.0: others:read, theirs 1\.0: theirs"):
        corpora.load_format("ours")
    with pytest.raises(SettingsError, match=r"'fsdd', which 2 packages register.*theirs 1\.0"):
        corpora.load_format("fsdd")
    assert callable(corpora.load_format("kaldi"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "import no_such_library",
            r"broken 1\.0: broken_format:entries cannot be imported: ModuleNotFoundError",
        ),
        ("def read(corpus): ...", r"cannot be imported: AttributeError.*entries.*uninstall"),
        ("raise SystemError('boom')", "cannot be imported: SystemError: boom"),
        ("entries = 3", "is no function"),
    ],
)
def test_a_package_that_cannot_be_imported_is_named_with_its_fault(
    install: Install, source: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "broken_format", raising=False)
    install("broken", "[voxline.corpora]\nbroken = broken_format:entries\n", "broken_format", source)
    with pytest.raises(SettingsError, match=message):
        corpora.load_format("broken")
