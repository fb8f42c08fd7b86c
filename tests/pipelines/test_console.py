"""What a person sees, on a terminal and in a file."""

import io
import os

from voxline.pipelines.console import Console, redirect_stdout_to, verdict_lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_status_line_is_overwritten_by_the_next() -> None:
    terminal = Terminal()
    screen = Console(terminal)
    for line in ("▹ 1/2 recordings", "▹ 2/2 recordings", "▸ convert: 2 recordings"):
        screen.line(line)
    erase = "\r\x1b[K"
    assert terminal.getvalue() == f"  1/2 recordings{erase}  2/2 recordings{erase}▸ convert: 2 recordings\n"


def test_a_status_line_is_cut_to_the_width_of_the_terminal() -> None:
    terminal = Terminal()
    Console(terminal).line("▹ " + "long " * 200)
    assert "\n" not in terminal.getvalue()
    assert len(terminal.getvalue()) < 200


def test_colours_and_indentation_of_kfp_do_not_hide_a_line() -> None:
    out = io.StringIO()
    Console(out).line("    \x1b[96m▸ train: done\x1b[0m\n")
    assert out.getvalue() == "▸ train: done\n"


def test_output_reaches_the_screen_in_whole_lines() -> None:
    out = io.StringIO()
    with redirect_stdout_to(Console(out)):
        print("▸ convert: ", end="")
        print("2 recordings")
        print("▹ 1/2")
        print("a note of a library")
    assert out.getvalue() == "▸ convert: 2 recordings\na note of a library\n"


def test_a_closed_pipe_does_not_stop_the_run() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as out:
        screen = Console(out)
        screen.say("nobody reads this")
        screen.say("nor this")


def test_a_command_in_a_long_reason_can_be_copied() -> None:
    command = "voxline models rollback asr --to 3 --registry runs/a-registry-with-a-long-name/registry"
    lines = verdict_lines(f"Not pushed: the version in service knew a speaker who was erased ({command}); WER is 31%")
    assert len(lines) == 2
    assert command in lines[0]


def test_a_verdict_without_a_reason_is_shown_as_it_is() -> None:
    text = "x" * 100 + " Not pushed: "
    assert verdict_lines(text) == [text]
