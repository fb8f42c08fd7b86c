"""What every image promises, asked of the images themselves."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.containers.conftest import Ran

ROOT = Path(__file__).parent.parent.parent
Inspected = Callable[[str, str], str]

each_image = pytest.mark.parametrize("which", ["data", "model", "validate"])


@each_image
def test_the_command_runs_as_a_numeric_user_on_a_read_only_root_without_network(which: str, ran: Ran) -> None:
    assert re.fullmatch(r"voxline \d\S+\n", ran(which, "voxline", "--version").stdout)
    seen = ran(which, "python3", "-c", "import os; print(os.getuid(), os.getgid()); open('/opt/x', 'w')", status=1)
    assert seen.stdout == "65532 65532\n"
    assert "Read-only file system" in seen.stderr


@each_image
def test_no_shell_is_needed(which: str, ran: Ran, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.touch(mode=0o644)
    shells = [f"--volume={nothing}:/usr/bin/{name}:ro" for name in ("dash", "bash", "sh")]
    ran(which, "sh", "-c", "true", flags=shells, status=127)
    assert ran(which, "voxline", "--version", flags=shells).stdout.startswith("voxline ")


def test_a_step_runs_without_a_shell(ran: Ran, corpus: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.touch(mode=0o644)
    (tmp_path / "tiny.yaml").write_text("name: tiny\npipeline: asr\ncorpus: {uri: /corpus}\n", encoding="utf-8")
    volumes = {nothing: "/usr/bin/dash", corpus: "/corpus", tmp_path / "tiny.yaml": "/opt/tiny.yaml"}
    command = ("voxline", "step", "ingest", "--config", "/opt/tiny.yaml", "--run-dir", "/tmp/run")
    seen = ran("data", *command, flags=[f"--volume={here}:{there}:ro" for here, there in volumes.items()])
    assert re.search(r"^manifest +/tmp/run/store/ingest/", seen.stdout, re.MULTILINE)


def test_the_data_image_has_no_tensorflow(ran: Ran) -> None:
    assert "No module named 'tensorflow'" in ran("data", "python3", "-c", "import tensorflow", status=1).stderr


@each_image
def test_no_installer_or_compiler_is_left(which: str, ran: Ran) -> None:
    program = (
        "import importlib.util as i, shutil; "
        "print([n for n in ('pip', 'uv', 'setuptools', 'ensurepip', 'hatchling') if i.find_spec(n)], "
        "[n for n in ('pip', 'pip3', 'uv', 'gcc', 'cc', 'g++', 'clang', 'ld', 'make', 'git') if shutil.which(n)])"
    )
    # TensorFlow itself requires setuptools; data, which has no TensorFlow, is without.
    needed = ["setuptools"] if which != "data" else []
    assert ran(which, "python3", "-c", program).stdout == f"{needed} []\n"
    base = ["--entrypoint=/usr/local/bin/python3"]
    assert "No module named pip" in ran(which, "-m", "pip", "--version", flags=base, status=1).stderr


@each_image
def test_no_trace_of_the_package_index_is_left(which: str, ran: Ran, inspected: Inspected) -> None:
    names = {entry.partition("=")[0] for entry in json.loads(inspected(which, "{{json .Config.Env}}"))}
    assert names == {
        *(
            "PATH",
            "HOME",
            "LANG",
            "PYTHONUTF8",
            "PYTHONUNBUFFERED",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONSAFEPATH",
            "ORT_DISABLE_TELEMETRY",
            "LD_LIBRARY_PATH",  # of the GPU driver that a node mounts
        ),
    } | {name for name in names if name in ("GPG_KEY", "PYTHON_VERSION", "PYTHON_SHA256")}  # the official image's
    look = (
        "import os; print([os.path.join(at, name) for top in ('/opt', '/etc', '/usr/local', '/root', '/build') "
        "for at, _, files in os.walk(top) for name in files "
        "if name in ('pip.conf', 'uv.toml', '.netrc', 'authorities.crt', '.git-credentials', 'direct_url.json')])"
    )
    assert ran(which, "python3", "-c", look).stdout == "[]\n"


@each_image
def test_labels_name_the_title_the_source_and_the_license(which: str, inspected: Inspected) -> None:
    labels = json.loads(inspected(which, "{{json .Config.Labels}}"))
    found = {name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()}
    assert found["title"] == f"voxline {which}"
    assert found["licenses"] == "Apache-2.0"
    assert found["source"] == "https://example.org/voxline"
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", found["revision"])
    assert re.fullmatch(r"\d[^-]+-[0-9a-f]{12}", found["version"])
    assert inspected(which, "{{.Config.Healthcheck.Test}} {{.Config.User}}") == "[NONE] 65532:65532"


@each_image
def test_the_bill_of_materials_matches_the_lock(which: str, ran: Ran) -> None:
    sbom = json.loads(ran(which, "python3", "-c", "print(open('/opt/voxline/sbom.cdx.json').read())").stdout)
    assert sbom["bomFormat"] == "CycloneDX"
    lock = (ROOT / "docker" / which / "requirements.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", lock, flags=re.MULTILINE))
    base = [part for part in sbom["components"] if part.get("bom-ref", "").startswith(("deb:", "base:"))]
    assert {"base-files", "libc6"} <= {part["name"] for part in base if part["licenses"]}
    listed = {
        re.sub(r"[-_.]+", "-", part["name"]).lower(): part["version"] for part in sbom["components"] if part not in base
    }
    listed.pop("voxline", None)
    bundled = [part for part in sbom["components"] if part.get("bom-ref", "").startswith("bundled:")]
    programs = {part["name"] for part in bundled}
    assert "libsndfile" in programs
    assert ("ffmpeg" in programs) == ("imageio-ffmpeg" in locked)
    for part in bundled:
        del listed[part["name"]]
    assert listed == locked


@each_image
def test_every_step_of_the_image_can_be_imported_in_it(which: str, ran: Ran) -> None:
    """Byte code included: a start compiles nothing."""
    steps = {
        "data": ("dataset", "ingest", "convert", "validate", "extract", "publish"),
        "model": ("train", "evaluate", "push"),
        "validate": ("validate",),
    }[which]
    program = "".join(f"import voxline.components.{step}.step as s; assert s.__cached__; " for step in steps)
    ran(which, "python3", "-c", program + "import os; assert os.path.exists(s.__cached__)")
