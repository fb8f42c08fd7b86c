"""The server's page in headless Chromium, whose microphone is a file."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import soundfile

from tests.report.conftest import Browser, find_chromium, start_browser
from tests.serving.test_server import Served, push
from tests.tone_asr_model import RATE, export_onnx_tones, render_words
from tests.tone_tts_model import MakeTtsModel
from tests.waiting import wait_until
from voxline.inference.synthesizer import Synthesizer

SPOKEN_SECONDS = 10
TALK = """(async () => {
  const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
  const record = document.getElementById("record"), media = navigator.mediaDevices;
  const ask = media.getUserMedia.bind(media);
  let asked = 0;
  media.getUserMedia = (wanted) => { asked += 1; return ask(wanted); };
  record.click();
  record.click();  // impatient: the microphone is not there yet
  while (record.textContent != "Stop") await wait(0.05);
  await wait(2);
  record.click();
  while (!document.getElementById("text").value) {
    await wait(0.05);
    if (document.getElementById("status").textContent.startsWith("no ")) break;
  }
  const shown = document.querySelectorAll("#text > span, #text > mark").length;
  const sizes = [document.documentElement.scrollWidth, innerWidth];
  return [
    document.getElementById("text").value, document.getElementById("status").textContent, asked, shown,
    document.getElementById("heard").textContent, document.getElementById("level").hidden,
    document.getElementById("recorded").src.startsWith("blob:"), sizes[0] <= sizes[1],
  ];
})()"""


TYPE = """(async () => {
  const speech = document.getElementById("speech");
  const ended = new Promise((done) => { speech.onended = done; });
  document.getElementById("words").value = "3-1";
  document.getElementById("say").click();
  await ended;
  const hidden = ["listen", "speak"].map((id) => document.getElementById(id).hidden);
  return [speech.duration, document.getElementById("status").textContent, hidden];
})()"""


@pytest.fixture
def speaking(tmp_path: Path) -> Iterator[Browser]:
    """A browser into whose microphone somebody says "four" all the time."""
    if find_chromium() is None:
        pytest.skip("no Chromium on this machine: install it to see the server's page used")
    pytest.importorskip("websocket")
    soundfile.write(tmp_path / "speech.wav", render_words(["four"] * 10 * SPOKEN_SECONDS), RATE, subtype="PCM_16")
    microphone = f"--use-file-for-fake-audio-capture={tmp_path / 'speech.wav'}"
    with start_browser("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream", microphone) as started:
        yield started


def use(browser: Browser, served: Served, script: str, models: str) -> Any:
    """Opens the page of a server, waits for its list of models, and returns what a script comes to."""
    browser.call("Page.navigate", url=served.url)
    loaded = f"document.readyState == 'complete' && document.getElementById('{models}').length == 1"
    wait_until(lambda: browser.call("Runtime.evaluate", expression=loaded)["result"]["result"].get("value"), "the page")
    # A click of the page's own is a person's: Chromium asks nobody for the microphone here.
    answer = browser.call(
        "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
    )
    assert "exceptionDetails" not in answer["result"], answer
    return answer["result"]["result"]["value"]


def test_in_a_browser_the_page_transcribes_what_its_microphone_hears(speaking: Browser, tmp_path: Path) -> None:
    push(tmp_path / "registry", export_onnx_tones(tmp_path / "tones"))
    served = Served(tmp_path / "registry")
    try:
        text, status, asked, shown, heard, *true = use(speaking, served, TALK, "model")
    finally:
        served.stop()
    words = text.split()
    assert (status, asked) == ("version 1", 1)
    assert shown == len(words), "each word tells its times and confidence"
    assert re.fullmatch(r"\d\.\d s, heard in \d+\.\d s, confidence \d+%", heard)
    assert true == [True] * 3, "no meter is left, the recording can be heard, and nothing is wider than the page"
    assert 15 <= len(words) <= 30  # ten a second; its begin is the browser's
    (word, count), *_ = Counter(words).most_common()
    assert (word, count > 0.8 * len(words)) == ("four", True)


def test_in_a_browser_the_page_says_what_is_typed(
    speaking: Browser, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    model = make_tts_model()
    push(tmp_path / "registry", model, name="voice")
    served = Served(tmp_path / "registry", names=("voice",))
    try:
        seconds, status, hidden = use(speaking, served, TYPE, "voice")
    finally:
        served.stop()
    assert (status, hidden) == ("version 1", [True, False])
    assert seconds == pytest.approx(len(Synthesizer(model).synthesize("3-1").waveform) / RATE, abs=0.01)
