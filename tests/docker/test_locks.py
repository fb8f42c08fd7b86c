"""The images' locks: within the project's lock, by hash, and holding what the images' steps import."""

import re
import runpy
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest
import yaml
from packaging.markers import Marker

ROOT = Path(__file__).parent.parent.parent
PYTHON: str = runpy.run_path(str(ROOT / "docker" / "lock.py"))["PYTHON"]
IMAGES = ("tools", "cli", "data", "model", "model-gpu", "model-tpu", "validate")
FREE = {"model-tpu": {"tensorboard"}, "validate": {"absl-py"}}
"""Packages whose version is not the project's; the same as docker/lock.py says, and why."""

STEPS = {
    "data": ("dataset", "ingest", "convert", "validate", "extract", "publish"),
    "model": ("train", "evaluate", "push"),
}
PUBLIC_MODELS = {"huggingface-hub", "sentencepiece", "tokenizers"}
NOT_THERE = {
    "data": {"numba", "onnxruntime", "pyarrow", "tensorflow", *PUBLIC_MODELS},
    "model": {"imageio-ffmpeg", "pydub"},
}
"""What is imported only where it is asked for: TFX's statistics, in an image of their own; recognizers and public
models, which validate reaches by `import voxline` alone; and compressed audio, which the steps after convert do not
meet."""


def pins(file: Path) -> dict[str, set[str]]:
    """Package → its versions in a lock, for the Python of the images."""
    found: dict[str, set[str]] = {}
    python = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0"}
    pinned = r"^([a-z0-9._-]+)==([^\s;]+)(?: *; *([^\\\n]+))?"
    for name, version, marker in re.findall(pinned, file.read_text(encoding="utf-8"), re.MULTILINE):
        if not marker or Marker(marker).evaluate({**python}):
            found.setdefault(name, set()).add(version)
    return found


def test_the_base_has_the_python_of_the_locks() -> None:
    recipe = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^ARG PYTHON=(.*)$", recipe, re.MULTILINE) == [PYTHON]
    (base,) = re.findall(r"^ARG BASE=(.*)$", recipe, re.MULTILINE)
    assert base.startswith(f"python:{PYTHON}-")


def test_a_job_that_installs_an_images_lock_has_its_python() -> None:
    jobs = [
        (file.name, name, job.get("steps", []))
        for file in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for name, job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].items()
    ]
    pythons = {
        (file, name): [step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", "")]
        for file, name, steps in jobs
        if any(re.search(r"-r \S*docker/[\w-]+/requirements\.lock", step.get("run", "")) for step in steps)
    }
    assert pythons == {("models.yml", "hub"): [PYTHON], ("refresh.yml", "run"): [PYTHON]}


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_the_versions_of_the_projects_lock(image: str) -> None:
    project = pins(ROOT / "requirements.lock") | pins(ROOT / "requirements.bootstrap")
    project["tensorflow"] = project["tensorflow-cpu"]
    ours = pins(ROOT / "docker" / image / "requirements.lock")
    other = {name for name, versions in ours.items() if not versions <= project.get(name, versions)}
    assert other == FREE.get(image, set())


@pytest.mark.parametrize("image", IMAGES)
def test_a_lock_pins_each_package_with_hashes_and_names_no_index(image: str) -> None:
    file = ROOT / "docker" / image / "requirements.lock"
    text = file.read_text(encoding="utf-8")
    assert all(len(versions) == 1 for versions in pins(file).values())
    blocks = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text
    assert "--index" not in text


@pytest.mark.parametrize("image", sorted(STEPS))
def test_a_lock_has_what_the_steps_of_its_image_import(image: str) -> None:
    graph = grimp.build_graph("voxline", include_external_packages=True, exclude_type_checking_imports=True)
    roots = [f"voxline.components.{step}" for step in STEPS[image]]
    modules = {module for root in roots for module in (root, *graph.find_descendants(root))}
    modules |= {upstream for module in tuple(modules) for upstream in graph.find_upstream_modules(module)}
    names = {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names) - {"voxline"}
    of = packages_distributions()
    needed = {re.sub(r"[-_.]+", "-", of[name][0]).lower() for name in names - {"google"} if name in of}
    # The same modules in both packages; which of them is installed here, the project's lock says.
    needed = {"tensorflow" if name == "tensorflow-cpu" else name for name in needed}
    held = set(pins(ROOT / "docker" / image / "requirements.lock"))
    held |= {"tensorflow"} if "tensorflow-cpu" in held else set()
    assert needed - held - NOT_THERE[image] == set()


@pytest.mark.parametrize("image", IMAGES)
def test_a_lock_has_all_listed_requirements(image: str) -> None:
    """Nobody edits a list and forgets `make image-locks`."""
    asked = (ROOT / "docker" / image / "requirements.in").read_text(encoding="utf-8")
    if "-r ../model/requirements.base" in asked:
        asked += (ROOT / "docker" / "model" / "requirements.base").read_text(encoding="utf-8")
    names = set(re.findall(r"^([a-z][a-z0-9-]*)", asked, re.MULTILINE))
    assert names <= set(pins(ROOT / "docker" / image / "requirements.lock"))


def test_an_unknown_image_is_refused_by_name() -> None:
    ran = subprocess.run([sys.executable, ROOT / "docker" / "lock.py", "nosuch"], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "image 'nosuch': accepted: tools, cli, data, model" in ran.stderr
