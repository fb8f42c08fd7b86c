"""The commands on the pages of docs/cluster: ours are parsed with their configs, and what others name exists."""

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

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs" / "cluster").glob("*.md"))
OTHERS = {"aws", "az", "curl", "docker", "eksctl", "export", "gcloud", "helm", "k3s", "kind", "kubectl", "make", "sudo"}
"""Programs that a reader has; only what they name of this repository is looked up."""


def commands(page: Path) -> list[str]:
    """The lines of the page's shell blocks."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip().removesuffix(" &") for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


EVERY = [(page, line) for page in PAGES for line in commands(page)]
OURS = [(page, line) for page, line in EVERY if line.startswith("voxline ")]


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
    words = shlex.split(line)
    path = parse(words)
    files = [Path(word) for before, word in itertools.pairwise(words) if before in ("--config", "-c")]
    if not files:
        return
    given = [word for before, word in itertools.pairwise(words) if before == "--set"]
    pipeline = next((word for word in words if word in ("asr", "tts", "refresh")), None)
    config = load_config(files, given, pipeline=pipeline)
    if "vertex" in words:
        check_config(config)
    elif path[0] in ("submit", "compile", "schedule"):
        known = "corpus.uri is /data/"  # the run's config says where the corpus is on a laptop
        assert [one for one in config.unmounted_paths() if not one.startswith(known)] == []


def test_the_parser_refuses_what_the_command_would_refuse() -> None:
    for line in ("voxline submit asr --confg a.yaml", "voxline shedule list", "voxline submit asr"):
        with pytest.raises(Exception, match=r"No such option|No such command|Missing (option|parameter)"):
            parse(shlex.split(line))


def test_what_other_commands_name_of_this_repository_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {page.stem for page, _ in OURS} >= {"README", "vertex"}
    for page, line in EVERY:
        words = shlex.split(line)
        assert words[0] in OTHERS | {"voxline"}, (page.name, line)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), (page.name, line)
        for word in words:
            if re.match(r"(k8s|configs|docker|tests)/", word):
                assert (ROOT / word).exists(), (page.name, line)
        if words[:3] == ["kubectl", "apply", "-k"]:
            assert (ROOT / words[3] / "kustomization.yaml").is_file(), (page.name, line)
