"""Lists of recordings, as the corpora of these tests have them."""

import json
from pathlib import Path
from typing import Any


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_lines(path: Path, *lines: dict[str, Any]) -> None:
    write(path, "".join(json.dumps(line) + "\n" for line in lines))
