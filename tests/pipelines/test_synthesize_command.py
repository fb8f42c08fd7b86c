"""`voxline synthesize` of many texts: a file and a status for each, and what was killed continues."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.closeness import assert_close
from tests.command import voxline
from tests.tone_asr_model import BLOCK, RATE
from tests.tone_tts_model import FRAMES, MakeTtsModel, add_onnx_graph
from tests.waiting import wait_until
from voxline.errors import SettingsError
from voxline.inference.pace import Pace
from voxline.inference.synthesizer import Synthesizer
from voxline.pipelines.cli import synthesis
from voxline.pipelines.cli.synthesis import synthesize_to_file, synthesize_to_folder


@pytest.fixture(scope="module")
def voice(make_tts_model: MakeTtsModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In ONNX, which starts fast."""
    return add_onnx_graph(Path(shutil.copytree(make_tts_model(), tmp_path_factory.mktemp("voice") / "voice")))


def digits(symbols: int) -> int:
    """Samples of a tone voice's text."""
    return (symbols * FRAMES - 1) * BLOCK // FRAMES


def spoken(ended: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_each_text_of_a_file_has_a_status_and_one_that_is_refused_stops_no_other(voice: Path, tmp_path: Path) -> None:
    texts = ["12.", "", "1☃2", "12 3. 4 5.", "<speak>1\n", '<speak>1<break time="1s"/>2</speak>', "1. " * 200_000]
    (tmp_path / "texts.txt").write_text("\ufeff" + "\r\n".join(texts) + "\r\n", encoding="utf-8")
    arguments = ("synthesize", "--texts", "texts.txt", "--model", voice, "-o", "said", "--json")
    ended = voxline(*arguments, cwd=tmp_path)
    assert ended.returncode == 1, ended.stderr
    results = spoken(ended)
    assert [one["file"] for one in results] == [f"said/{number:04d}.wav" for number in range(1, 9)]
    assert [(one["status"], one.get("reason")) for one in results] == [
        ("done", None),
        ("refused", "empty"),
        ("refused", "unknown_characters"),
        ("done", None),
        ("refused", "ssml"),
        ("refused", "empty"),
        ("done", None),
        ("refused", "too_long"),
    ]
    assert [one["pieces"] for one in results if one["status"] == "done"] == [1, 2, 2]
    assert sorted(file.name for file in tmp_path.glob("said/*.wav")) == ["0001.wav", "0004.wav", "0007.wav"]
    for number, samples in ((1, digits(3)), (4, digits(5) + RATE // 2 + digits(4)), (7, RATE + 2 * digits(1))):
        found, rate = soundfile.read(tmp_path / f"said/{number:04d}.wav")
        assert (len(found), rate) == (samples, RATE)
        assert results[number - 1]["seconds"] == pytest.approx(samples / RATE, abs=1e-3)
    assert "voxline: said/0003.wav: refused: the model cannot read the text '1☃2'" in ended.stderr
    again = voxline(*arguments[:-1], cwd=tmp_path)
    assert again.returncode == 1
    assert again.stdout.splitlines()[1] == f"said/0004.wav  {results[3]['seconds']:.1f} s, kept, 2 pieces"


def test_a_speaker_whom_the_voice_lacks_removes_no_recording(voice: Path, tmp_path: Path) -> None:
    list(synthesize_to_folder(tmp_path / "said", ["12."], ".wav", voice))
    before = (tmp_path / "said/0001.wav").read_bytes()
    with pytest.raises(SettingsError, match="'anm' is asked for"):
        list(synthesize_to_folder(tmp_path / "said", ["12."], ".wav", voice, speaker="anm"))
    assert (tmp_path / "said/0001.wav").read_bytes() == before


@pytest.mark.slow
def test_texts_are_spoken_together_and_one_that_fails_fails_alone(
    voice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decode, batches = Synthesizer._decode, []

    def counted(self: Synthesizer, text: dict[str, Any], **how: Any) -> Any:
        batches.append(len(text["symbols"]))
        decoded = decode(self, text, **how)
        decoded["mels"][text["lengths"] == 7] = np.nan
        return decoded

    monkeypatch.setattr(Synthesizer, "_decode", counted)
    texts = ["12 3. 22.", "?", "12345", "3"]
    together = [result for result, _ in synthesize_to_folder(tmp_path / "said", texts, ".wav", voice)]
    assert [one.status for one in together] == ["done", "refused", "done", "done"]
    assert [one.pieces for one in together] == [2, 0, 1, 1]
    assert batches == [1, 1, 3]  # of one, when a voice is loaded; of the text that is much shorter; of the others
    for text, result in zip(texts, together, strict=True):
        if result.succeeded:
            (alone,) = synthesize_to_folder(tmp_path / f"alone {text}", [text], ".wav", voice)
            assert Path(alone[0].file).read_bytes() == Path(result.file).read_bytes()
    failing = [one for one, _ in synthesize_to_folder(tmp_path / "failing", ["1", "123456.", "2"], ".wav", voice)]
    assert [one.status for one in failing] == ["done", "failed", "done"]
    assert "voxline: 3 texts together: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_changed_text_or_voice_is_spoken_again_and_a_refused_one_keeps_no_old_file(
    voice: Path, make_tts_model: MakeTtsModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def statuses(texts: list[str], model: Path = voice) -> str:
        results = [result for result, _ in synthesize_to_folder(tmp_path / "said", texts, ".wav", model)]
        return " ".join(result.status for result in results)

    assert statuses(["1", "22", "333"]) == "done done done"
    first = (tmp_path / "said/0001.wav").stat().st_mtime_ns
    assert statuses(["1", "☃", "333", "4"]) == "kept refused kept done"
    assert (tmp_path / "said/0001.wav").stat().st_mtime_ns == first
    assert not (tmp_path / "said/0002.wav").exists()
    (tmp_path / "said/0003.wav").unlink()
    assert statuses(["1", "22", "333", "4"]) == "kept done done kept"
    assert statuses(["1", "22", "333", "4"], make_tts_model(endless="3")) == "done done cut_off done"
    assert not (tmp_path / "said/0003.wav").exists()
    capsys.readouterr()
    assert statuses(["1"]) == "done"
    assert "0002.wav, 0004.wav: of another list of texts, and stay" in capsys.readouterr().err
    assert statuses(["1", "☃"]) == "kept refused"  # what was there of another list is known, and goes
    assert not (tmp_path / "said/0002.wav").exists()
    lines = map(json.loads, (tmp_path / "said" / synthesis.RECORD_FILE).read_text().splitlines())
    assert {line["file"]: line["status"] for line in lines} == {
        "0001.wav": "done", "0002.wav": "refused", "0004.wav": "done",
    }  # fmt: skip
    (tmp_path / "said/0003.wav").write_bytes(b"of somebody else")
    assert statuses(["1", "22", "333"]) == "kept done done"
    assert "0003.wav: of no earlier call; replaced" in capsys.readouterr().err


def test_a_text_at_which_the_voice_stops_at_once_leaves_no_file(make_tts_model: MakeTtsModel, tmp_path: Path) -> None:
    """Field case U2."""
    voice = make_tts_model(mute="8")
    results = [result for result, _ in synthesize_to_folder(tmp_path / "said", ["12", "8"], ".wav", voice)]
    assert [(result.status, Path(result.file).exists()) for result in results] == [("done", True), ("too_short", False)]
    assert results[1].error.startswith("the model stopped before its text was said")
    lines = synthesis.synthesize_to_file(tmp_path / "a.wav", "8", voice)
    assert "the model stopped before its text was said" in lines[1]
    accepted = synthesize_to_folder(tmp_path / "said", ["12", "8"], ".wav", voice, pace=Pace(0.0, 1.0))
    assert [result.status for result, _ in accepted] == ["done", "done"]


@pytest.mark.slow
def test_what_was_killed_continues_with_what_is_missing(voice: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("".join(f"{'12 3 ' * 4}{number % 8}\n" for number in range(400)))
    arguments = ["synthesize", "--texts", "texts.txt", "--model", str(voice), "-o", "said", "--json"]
    command = [sys.executable, "-m", "voxline.pipelines.cli.main", *arguments]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    said = tmp_path / "said"
    wait_until(lambda: len(list(said.glob("*.wav"))) >= 5, "five files")
    running.send_signal(signal.SIGKILL)
    running.wait()
    there = sorted(file.name for file in said.glob("*.wav"))
    with open(said / synthesis.RECORD_FILE, "a", encoding="utf-8") as record:
        record.write('{"text": "12 3", "fi')  # as a kill may leave it
    (said / ".0099.wav.abc.part").write_bytes(b"half")
    lines = (tmp_path / "texts.txt").read_text().splitlines()[:10]
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    ended = voxline(*arguments, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    statuses = [one["status"] for one in spoken(ended)]
    kept = statuses.count("kept")
    assert min(10, len(there) - 1) <= kept <= 10  # the last file may have no line yet
    assert statuses == ["kept"] * kept + ["done"] * (10 - kept)
    assert not list(said.glob(".*.part"))
    recorded = {json.loads(line)["file"] for line in (said / synthesis.RECORD_FILE).read_text().splitlines()}
    wanted = {f"{number:04d}.wav" for number in range(1, 11)}
    assert wanted <= recorded <= wanted | set(there)


def test_two_commands_do_not_write_to_one_folder(voice: Path, tmp_path: Path) -> None:
    results = synthesize_to_folder(tmp_path / "said", ["1", "2"], ".wav", voice)
    next(results)
    ended = voxline("synthesize", "1", "2", "--model", voice, "-o", "said", cwd=tmp_path)
    assert ended.returncode == 1
    assert "said: another process synthesizes to it; wait for it" in ended.stderr
    assert [result.status for result, _ in results] == ["done"]


def test_a_loud_text_is_scaled_as_a_whole_and_not_clipped(
    voice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waveforms = Synthesizer._waveforms

    def loud(self: Synthesizer, outputs: dict[str, Any], symbols: Any) -> list[Any]:
        return [one * (40 if text.startswith("1") else 1) for one, text in zip(
            waveforms(self, outputs, symbols), symbols, strict=True)]  # fmt: skip

    monkeypatch.setattr(Synthesizer, "_waveforms", loud)
    wanted = Synthesizer(voice).speak("12 3. 22.").waveform
    peak = np.abs(wanted).max()
    assert peak > 1
    synthesize_to_file(tmp_path / "a.wav", "12 3. 22.", voice)
    assert_close(soundfile.read(tmp_path / "a.wav")[0], wanted / peak, relative_to_peak=1e-4)
    synthesize_to_file(tmp_path / "a.flac", "12 3. 22.", voice)
    assert_close(soundfile.read(tmp_path / "a.flac")[0], wanted / peak, relative_to_peak=1e-4)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "give a TEXT, or several, or --texts FILE"),
        (("1", "--texts", "texts.txt"), "give a TEXT, or several, or --texts FILE"),
        (("1", "2", "-o", "a.wav"), "--output a.wav: several texts need a folder"),
        (("--texts", "texts.txt", "-o", "a.wav"), "--output a.wav: several texts need a folder"),
        (("1", "2", "-o", "no/such"), "the folder no does not exist"),
        (("1", "2", "--format", "mp4"), "--format mp4: accepted: wav, mp3"),
        (("--texts", "absent.txt"), "--texts absent.txt: no such file"),
        (("--texts", "empty.txt"), "--texts empty.txt: it is empty"),
        (("--texts", "latin.txt"), "latin.txt is not UTF-8"),
    ],
)
def test_what_cannot_be_meant_is_refused(voice: Path, tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    (tmp_path / "texts.txt").write_text("1\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    output = () if "-o" in arguments else ("-o", "said")
    ended = voxline("synthesize", *arguments, *output, "--model", voice, cwd=tmp_path)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert not (tmp_path / "said").exists()


@pytest.mark.parametrize(
    "work",
    [
        "from voxline.pipelines.cli.main import main\n"
        "main(['synthesize', '12. 3', '4', '--model', folder, '-o', 'said'])",
        "import voxline; voice = voxline.load_synthesizer(folder); list(voice.stream('12. 3'))",
        "from voxline.inference.synthesizer import Synthesizer; from voxline.serving.speech import *\n"
        "synthesize_speech(Synthesizer(folder), SpeechRequest('voice', '12. 3', 'mp3'))\n"
        "import voxline.serving.server",
    ],
    ids=["command", "library", "server"],
)
def test_a_process_with_a_voice_in_onnx_never_imports_tensorflow(voice: Path, tmp_path: Path, work: str) -> None:
    code = (
        f"import atexit, os, sys; folder = {str(voice)!r}\n"
        "heavy = {'tensorflow', 'keras', 'onnxruntime'}\n"
        "atexit.register(lambda: print(*(heavy & set(sys.modules)), file=sys.stderr))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code + work],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.split() == ["onnxruntime"]
