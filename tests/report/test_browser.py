"""Our pages in headless Chromium: in both themes, on a desk and on a phone, with and without scripts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.conftest import Browser
from tests.report.test_page import HOSTILE, full_page, tone
from tests.tone_asr_model import MakeAsrModel, write_corpus
from voxline.components.evaluate.step import run as evaluate
from voxline.components.push.step import run as push
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run as validate
from voxline.data.manifest import Utterance, read_manifest, write_manifest
from voxline.errors import WorkError
from voxline.families.asr.settings import AsrEvaluateSettings, AsrPushSettings
from voxline.report import Page, Panel, data_table, figure, image_panels, word_diff

AUDIT = """(async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations.map(one => one.id + ": " + one.nodes.map(node => node.html.slice(0, 90)).join(" | "));
})()"""
LAYOUTS = [(1400, False), (1400, True), (400, False), (400, True)]
SENTENCES = [
    ("ada", "one two three four"), ("ben", "two seven one"), ("zoë", "seven seven five"), ("ada", "four five"),
    ("ben", "six six one"), ("zoë", "three two seven one five six"),
]  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, make_asr_model: MakeAsrModel) -> dict[str, Path]:
    """The pages of a run that is refused: its model mishears "seven", and mends the "five" of the one in service."""
    folder = tmp_path_factory.mktemp("pages é")
    corpus = write_corpus(folder / "wavs", SENTENCES * 4)
    lines = list(read_manifest(corpus))
    trained = [Utterance(f"t{one.id}", one.audio_filepath, one.duration, one.text, "tom", "train") for one in lines[:3]]
    write_manifest(corpus / "manifest.jsonl", [*lines, *trained])
    settings = AsrEvaluateSettings(bootstrap_samples=200, slices=["accent"], worst_utterances=6)
    judge = AsrPushSettings(smoke_test=False, limits={"wer": 1.0})
    first, second = make_asr_model({"five": "four"}), make_asr_model({"seven": "six"})
    (second.parent / "curves.json").write_text(json.dumps(CURVES))
    registry, store = folder / "registry", folder / "store"
    for model in (first, second):
        evaluated = evaluate(model.parent, corpus, registry, store, settings)
        judged = push(model.parent, evaluated.folder, registry, store, judge)
    with pytest.raises(WorkError, match="empty_splits"):
        validate(corpus, store, ValidateSettings(tfdv="off"))
    (validation,) = store.glob("validate/*/report.html")
    every_block = folder / "Seite für <alle>.html"
    full_page(HOSTILE).write(every_block)
    wide = full_page(audio=tone(0.1))
    wide.add_section(
        "Wide", data_table([f"column {n}" for n in range(30)], [list(range(30))]), word_diff("a " * 60, "b " * 60)
    )
    wide.write(folder / "wide.html")
    voice = Page("A voice")
    mels = np.random.default_rng(1).random((60, 20))
    titles = ("recorded", "teacher-forced", "synthesized", "attention, synthesized")
    for name in ("lj-1", "lj-2"):
        picture = image_panels([Panel(title, mels) for title in titles], f"Mel spectrograms and attention of {name}")
        voice.add_section(name, figure(picture, name))
    voice.write(folder / "voice.html")
    return {
        "evaluation": judged.path("report"),
        "validation": validation,
        "every block": every_block,
        "wide": folder / "wide.html",
        "voice": folder / "voice.html",
    }


CURVES: dict[str, Any] = {
    "train": [{"step": n, "loss": 9.0 / n, "learning_rate": 0.001, "gradient_norm": 2.0} for n in range(20, 200, 20)],
    "dev": [{"epoch": n, "step": 60 * n, "wer": 0.5 / n, "loss": 8.0 / n} for n in (1, 2, 3)],
}


@pytest.mark.parametrize(("width", "dark"), LAYOUTS)
def test_in_a_browser_pages_are_quiet_fit_the_window_and_load_nothing(
    browser: Browser, pages: dict[str, Path], width: int, dark: bool
) -> None:
    for name, page in pages.items():
        opened = browser.open(
            page, "[document.documentElement.scrollWidth, document.documentElement.clientWidth]", width=width, dark=dark
        )
        assert opened.said == [], name
        assert opened.requests == [], name
        assert opened.value[0] <= opened.value[1] <= width, name


@pytest.mark.parametrize("width", [400, 1400])
def test_in_a_browser_no_text_of_a_panel_is_too_small_to_read(
    browser: Browser, pages: dict[str, Path], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    # The text is drawn into the picture, so its size there is Matplotlib's, and the browser's is the picture's scale.
    sizes: list[float] = []

    def measure(drawn: Figure, *_: Any, dpi: float, **__: Any) -> None:
        drawn.canvas.draw()
        texts = [text for text in drawn.findobj(Text) if text.get_text() and text.get_visible()]
        sizes.extend(float(text.get_fontsize()) * dpi / 72 for text in texts)

    with monkeypatch.context() as unsaved:
        unsaved.setattr(Figure, "savefig", measure)
        image_panels([Panel("recorded", np.zeros((60, 20)))], "as those of the page")
    script = """Promise.all([...document.querySelectorAll("img")].map(async image => {
      image.loading = "eager";
      await image.decode();
      const box = image.closest(".scrolls");
      box.scrollLeft = 1e6;
      return [image.getBoundingClientRect().width / image.naturalWidth, box.clientWidth,
        image.getBoundingClientRect().right - box.getBoundingClientRect().right, getComputedStyle(box).overflowX];
    }))"""
    pictures = browser.open(pages["voice"], script, width=width).value
    assert len(pictures) == 2
    for scale, room, hidden, overflow in pictures:
        assert scale * min(sizes) >= 9
        assert room < width
        assert hidden < 1  # its end can be scrolled to, by a person too
        assert overflow == "auto"


@pytest.mark.parametrize("name", ["evaluation", "validation"])
def test_in_a_browser_what_checks_found_is_read_on_a_phone_without_scrolling_sideways(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    script = """(() => {
      for (const folded of document.querySelectorAll("details")) folded.open = true;
      const cells = [...document.querySelectorAll(".results td")];
      return cells.map(cell => [cell.textContent, cell.getBoundingClientRect().right]);
    })()"""
    cells = browser.open(pages[name], script, width=400).value
    assert len(cells) > 8
    for text, right in cells:
        assert right <= 400, text


@pytest.mark.parametrize(("width", "dark"), LAYOUTS)
def test_in_a_browser_axe_finds_nothing(
    browser: Browser, axe: str, pages: dict[str, Path], width: int, dark: bool
) -> None:
    for name, page in pages.items():
        unfold = "for (const one of document.querySelectorAll('details')) one.open = true;"
        opened = browser.open(page, f"{unfold}{axe};{AUDIT}", width=width, dark=dark)
        assert opened.value == [], name


def test_in_a_browser_every_player_plays(browser: Browser, pages: dict[str, Path]) -> None:
    script = """(async () => {
      const players = [...document.querySelectorAll("audio")];
      for (const player of players) { player.playbackRate = 8; await player.play(); }
      await Promise.all(players.map(player => player.ended || new Promise(done => { player.onended = done; })));
      return [players.length, players.every(player => player.duration > 0.1 && player.getAttribute("aria-label"))];
    })()"""
    opened = browser.open(pages["evaluation"], script)
    count, named = opened.value
    assert count >= 6
    assert named
    assert opened.said == []


def test_in_a_browser_the_table_can_be_searched_and_sorted(browser: Browser, pages: dict[str, Path]) -> None:
    script = """(() => {
      const table = document.querySelector("table[data-explorer]");
      const rows = () => [...table.tBodies[0].rows].filter(row => !row.hidden);
      const column = name => [...table.tHead.rows[0].cells].findIndex(cell => cell.textContent === name);
      const values = name => rows().map(row => row.cells[column(name)].textContent);
      const found = {all: rows().length};
      const input = document.querySelector(".tools input");
      input.value = "Zoë five";
      input.dispatchEvent(new Event("input"));
      found.zoe = values("speaker");
      found.count = document.querySelector(".tools [role=status]").textContent;
      input.value = "";
      input.dispatchEvent(new Event("input"));
      const click = name => table.tHead.rows[0].cells[column(name)].querySelector("button").click();
      click("seconds"); found.longest = values("seconds").map(Number);
      click("seconds"); found.shortest = values("seconds").map(Number);
      click("reference"); found.first = values("reference")[0];
      found.sorted = table.tHead.rows[0].cells[column("reference")].getAttribute("aria-sort");
      return found;
    })()"""
    found = browser.open(pages["evaluation"], script).value
    assert found["all"] == 24
    assert found["zoe"] == ["zoë"] * 8
    assert found["count"] == "8 of 24 rows"
    assert found["longest"] == sorted(found["longest"], reverse=True)
    assert found["shortest"] == sorted(found["longest"])
    assert (found["first"], found["sorted"]) == ("four five", "ascending")


def test_in_a_browser_without_scripts_everything_is_there(browser: Browser, pages: dict[str, Path]) -> None:
    script = """[document.querySelectorAll(".tools").length,
      [...document.querySelectorAll("table[data-explorer] tbody tr")].filter(row => row.offsetHeight > 0).length,
      document.querySelectorAll("audio").length > 5, document.querySelectorAll("svg image").length]"""
    opened = browser.open(pages["evaluation"], script, scripts=False)
    assert opened.value == [0, 24, True, 8]
    assert opened.requests == []


def test_in_a_browser_only_the_script_of_the_page_can_run(browser: Browser, pages: dict[str, Path]) -> None:
    script = """(() => {
      const injected = document.createElement("script");
      injected.textContent = "window.ran = true";
      document.body.append(injected);
      return [window.ran === undefined, document.querySelectorAll(".tools").length];
    })()"""
    assert browser.open(pages["evaluation"], script).value == [True, 1]


def test_in_a_browser_hostile_texts_stay_texts_and_audio_plays(browser: Browser, pages: dict[str, Path]) -> None:
    played = browser.open(
        pages["every block"],
        """(async () => {
          const audio = document.querySelector("audio");
          await audio.play();
          await new Promise(done => { audio.onended = done; });
          return [audio.duration, audio.currentTime, document.scripts.length];
        })()""",
    )
    assert played.said == []
    assert played.value == [pytest.approx(0.5, abs=0.01), pytest.approx(0.5, abs=0.01), 0]


def test_the_page_opened_in_a_browser_is_below_three_megabytes(pages: dict[str, Path]) -> None:
    assert pages["evaluation"].stat().st_size < 3_000_000
