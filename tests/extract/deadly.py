"""A recording that kills the process that opens it, like a bug in a decoder's C code: Python watches for its name."""

from pathlib import Path

DEADLY = "deadly.wav"


def written_deadly(folder: Path) -> Path:
    """Writes the module that Python imports at start; put the folder into PYTHONPATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "def watch(event, arguments):\n"
        f"    if event == 'open' and str(arguments[0]).endswith({DEADLY!r}):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.addaudithook(watch)\n"
    )
    return folder
