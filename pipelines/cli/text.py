"""The command of text: show what the text frontends make of a text."""

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from voxline.errors import SettingsError, WorkError
from voxline.pipelines.cli.options import CommandGroup

text_commands = CommandGroup(help="Show how texts are normalized.", no_args_is_help=True)

PLAIN = "none"
STDIN = "-"


@text_commands.callback()
def _group() -> None:
    """Keeps `normalize` a subcommand although there is no other."""


@text_commands.command("normalize")
def normalize_text(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Transcripts; - reads lines from stdin.")],
    language: Annotated[
        str, typer.Option(help="en or zh: spell out numbers, times, money; none: letters and digits as they are.")
    ] = PLAIN,
) -> None:
    """Print transcripts as an ASR model learns them.

    A line that cannot be spelled out is named on stderr, and the others go on; the exit status is then 1. In a config
    the same is convert.frontend.kind: english_transcript, mandarin_transcript or transcript.

    Example: voxline text normalize --language en "Meet me at 7:30."
    """
    from voxline.text.alphabet import UnsupportedText
    from voxline.text.frontend import LANGUAGES, apply_frontend
    from voxline.text.settings import FrontendSettings

    # The languages are those of the frontends; without one, `transcript` keeps letters and digits.
    kinds = {PLAIN: "transcript", **LANGUAGES}
    if language not in kinds:
        raise SettingsError(f"--language {language}: {', '.join(kinds)} are accepted")
    settings = FrontendSettings.of({"kind": kinds[language]})

    # Each line is printed as it is read, so that the command works in a pipe.
    failed = 0
    for line in _lines(texts):
        try:
            typer.echo(apply_frontend(line, settings).normalized_text)
        except UnsupportedText as error:
            failed += 1
            typer.echo(f"voxline: {error}", err=True)
    if failed:
        raise WorkError(f"{failed:,} of the texts cannot be normalized; as transcripts they would be rejects")


def _lines(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        if text != STDIN:
            yield text
            continue
        sys.stdin.reconfigure(encoding="utf-8-sig")  # type: ignore[union-attr]  # standard input is a text file
        yield from (line.rstrip("\r\n") for line in sys.stdin)
