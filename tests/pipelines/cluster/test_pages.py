"""The commands on the pages: ours are parsed with their configs; of docs/cluster, what others name exists."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from voxline.pipelines.cli.main import app
from voxline.pipelines.cluster.vertex import check_config
from voxline.pipelines.config.load import load_config
from voxline.pipelines.graphs import pipeline_names

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = ROOT / "docs" / "cluster"
EXTEND = ROOT / "docs" / "extend"
"""Pages that tests/extend carries out: they add the commands that they use."""
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent != EXTEND)]
PAGES = [page for page in PAGES if page.parent.name != "decisions"]
SHELLS = ("", "sh", "bash", "console", "shell")
"""Languages of fenced blocks that hold commands; without one, only our own are read."""
OTHERS = {
    "aws",
    "az",
    "curl",
    "docker",
    "eksctl",
    "export",
    "gcloud",
    "helm",
    "k3s",
    "kind",
    "kubectl",
    "make",
    "sudo",
    "tar",
}
"""Programs that a reader has; only what they name of this repository is looked up."""


def commands(page: Path) -> list[str]:
    """The commands of the page's fenced blocks, without prompts, comments and `&`."""
    found: list[str] = []
    language, inside = "", False
    for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if fence := re.match(r"^```(\w*)", line):
            language, inside = fence[1], not inside
        elif inside and language in SHELLS:
            prompted = line.startswith("$ ")
            command = line.removeprefix("$ ").strip().removesuffix(" &")
            ours = command.startswith("voxline ")
            ours = ours and not re.match(r"voxline \w+ \w+:", command)  # what `voxline search` prints
            printed = (language == "console" and not prompted) or (not language and not ours)
            if command and not command.startswith("#") and not printed:
                found.append(command)
    return found


ALL = [(page, line) for page in PAGES for line in commands(page)]
EVERY = [(page, line) for page, line in ALL if page.parent == CLUSTER]
OURS = [(page, line) for page, line in ALL if line.startswith("voxline ")]


def parse(words: list[str]) -> list[str]:
    """Parses a command as the shell would hand it over, and does not run it. Returns the subcommands."""
    command: Any = typer.main.get_command(app)
    path: list[str] = []
    while True:
        context = command.make_context(words[0], words[1:])
        if not hasattr(command, "resolve_command"):
            return path
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        path.append(name)
        words = [name, *rest]


@pytest.mark.parametrize(("page", "line"), OURS, ids=[f"{page.stem}: {line[:60]}" for page, line in OURS])
def test_our_commands_are_parsed_and_their_configs_load(page: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(re.sub(r"\{(\w+),(\w+)\}", r"\1 \2", line), comments=True)
    words = list(itertools.takewhile(lambda word: word not in ("|", ">", "<"), words))
    path = parse(words)
    files = [Path(word) for before, word in itertools.pairwise(words) if before in ("--config", "-c")]
    if not files or any(len(file.parts) == 1 for file in files):
        return  # a file of the reader's own
    given = [word for before, word in itertools.pairwise(words) if before == "--set"]
    pipeline = next((word for word in words if word in pipeline_names()), None)
    config = load_config(files, given, pipeline=pipeline)
    if "vertex" in words:
        check_config(config)
    elif page.parent == CLUSTER and path[0] in ("submit", "compile", "schedule"):
        assert not config.unmounted_paths()


def test_the_parser_refuses_what_the_command_would_refuse() -> None:
    for line in ("voxline submit asr --confg a.yaml", "voxline shedule list", "voxline submit asr"):
        with pytest.raises(Exception, match=r"No such option|No such command|Missing (option|parameter)"):
            parse(shlex.split(line))


def test_what_other_commands_name_of_this_repository_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {page.stem for page, _ in OURS} >= {"README", "vertex", "eks", "vocoders", "intents", "tutorial"}
    for page, line in EVERY:
        words = shlex.split(line)
        assert words[0] in OTHERS | {"voxline"}, (page.name, line)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), (page.name, line)
        for word in words:
            if re.match(r"(k8s|configs|docker|tests)/", word):
                assert (ROOT / word).exists(), (page.name, line)
        # The reader's own overlay is built by tests/cluster/test_page.py.
        if words[:3] == ["kubectl", "apply", "-k"] and words[3] != "my-cluster":
            assert (ROOT / words[3] / "kustomization.yaml").is_file(), (page.name, line)
