"""A manifest that is none is refused by its line, in words."""

from pathlib import Path

import pytest

from components.speech.errors import WorkError
from components.speech.utterances import read_manifest

GOOD = '{"id": "a", "audio_filepath": "a.wav", "duration": 1, "text": "x"'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fLaC\xff\xfe", "not UTF-8"),
        (b"5\n", "is a mapping with id"),
        (b"[" * 100_000, "not a JSON line"),
        (f'{GOOD}, "speaker": "\\ud800"}}'.encode(), "not a JSON line"),
        (f'{GOOD}, "offset": -1}}'.encode(), "`offset` is -1"),
        (f'{GOOD}, "duration": NaN}}'.encode(), "`duration` is nan"),
        (f'{GOOD}, "text": 5}}'.encode(), "`text` is 5"),
        (f'{GOOD}, "measured": 3}}'.encode(), "`measured` is 3"),
    ],
)
def test_a_line_that_is_no_utterance_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "manifest.jsonl").write_bytes(content)
    with pytest.raises(WorkError, match=message) as refused:
        read_manifest(tmp_path)
    assert str(tmp_path) in str(refused.value)
