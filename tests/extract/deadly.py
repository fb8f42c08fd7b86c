"""A recording that ends whoever opens it, as a fault in a decoder's C does: Python is told to watch for its name."""

from pathlib import Path

DEADLY = "deadly.wav"


def written_deadly(folder: Path) -> Path:
    """Writes the module that Python imports as it starts; the folder goes into PYTHONPATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "def watch(event, arguments):\n"
        f"    if event == 'open' and str(arguments[0]).endswith({DEADLY!r}):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.addaudithook(watch)\n"
    )
    return folder
