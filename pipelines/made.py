"""Where in the store the last output of each step lies; `voxline step` takes its input from there."""

from pathlib import Path

from components.speech.storage import read_json, write_json

MADE = "made.json"


def remember(run_dir: Path, step: str, folder: Path) -> None:
    file = run_dir / MADE
    made = read_json(file) if file.is_file() else {}
    write_json(file, {**made, step: str(folder)})


def made_by(run_dir: Path, step: str) -> Path | None:
    file = run_dir / MADE
    folder = read_json(file).get(step) if file.is_file() else None
    return Path(folder) if folder else None
