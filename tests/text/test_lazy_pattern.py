"""Patterns that are compiled when they are first used: each of them must compile, which no import shows."""

import importlib
import re
from pathlib import Path

import pytest

import voxline
from voxline.text.lazy_pattern import lazy_pattern

SOURCES = Path(voxline.__file__).parent
MODULES = [
    ".".join(("voxline", *file.relative_to(SOURCES).with_suffix("").parts))
    for file in sorted(SOURCES.rglob("*.py"))
    if re.search(r"^_[A-Z_]+ = lazy_pattern\(", file.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("name", MODULES)
def test_each_pattern_of_a_module_compiles(name: str) -> None:
    lazy = type(lazy_pattern(""))
    patterns = [value for value in vars(importlib.import_module(name)).values() if isinstance(value, lazy)]
    assert patterns
    for pattern in patterns:
        assert pattern.fullmatch("\0") is None


def test_a_pattern_is_compiled_at_its_first_use_and_no_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_pattern = re.compile

    def noting(source: str, flags: int) -> re.Pattern[str]:
        compiled.append(source)
        return compile_pattern(source, flags)

    monkeypatch.setattr(re, "compile", noting)
    vowels = lazy_pattern("[aeiou]", re.IGNORECASE)
    assert not compiled
    assert vowels.findall("Each") == ["E", "a"]
    assert vowels.findall("Other") == ["O", "e"]
    assert compiled == ["[aeiou]"]
