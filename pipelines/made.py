"""A run's folder, and where in the store the last output of each step lies; `voxline step` takes its input there."""

from pathlib import Path

from components.speech.errors import SettingsError
from components.speech.storage import read_json, write_json

MADE = "made.json"


def make_run_dir(run_dir: Path) -> Path:
    """The run's folder, absolute; made if need be.

    Raises:
      SettingsError: it is no folder, or must not be made.
    """
    run_dir = run_dir.absolute()
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"--run-dir {run_dir}: cannot be made ({error.strerror}); give a folder that you may write to"
        ) from None
    return run_dir


def remember(run_dir: Path, step: str, place: str) -> None:
    file = run_dir / MADE
    made = read_json(file) if file.is_file() else {}
    write_json(file, {**made, step: place})


def made_by(run_dir: Path, step: str) -> str | None:
    """Where it lies: a folder, or gs://…"""
    file = run_dir / MADE
    place: str | None = read_json(file).get(step) if file.is_file() else None
    return place
