"""Pages show exactly what they are given, are self-contained, and run nothing."""

import base64
import hashlib
import html
import html.parser
import importlib.util
import io
import itertools
import marshal
import os
import re
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from tests.audio.hostile import wide_flac
from voxline.errors import WorkError
from voxline.report import (
    Page,
    Panel,
    PlayerBudget,
    SpokenWord,
    WordRow,
    audio_player,
    badge,
    bar_plot,
    compare_texts,
    data_table,
    details,
    explorer_table,
    figure,
    fill_slot,
    histogram,
    image_panels,
    item_list,
    line_plot,
    paragraphs,
    scatter_plot,
    side_by_side,
    slot,
    small_print,
    spectrogram_view,
    stat_cards,
    verdict_banner,
    word_diff,
)
from voxline.report.charts import quantiles
from voxline.report.svg import Scale, text_width
from voxline.store.hashing import hash_bytes

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> --> <!-- slot: verdict --> $\\frac{1}{2}$ ]]>"
RATE = 16_000


def tone(seconds: float, rate: int = RATE) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 220 * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def full_page(text: str = "plain words", audio: np.ndarray | Path | None = None) -> Page:
    """A page with every kind of block, each with `text`."""
    page = Page(text, lead=text, footer=text)
    values = np.random.default_rng(0).gamma(3.0, 1.0, 200)
    page.add_opening(slot("verdict", verdict_banner(text, text, "caution")), text)
    page.add_section(
        text,
        paragraphs(text),
        small_print(text),
        stat_cards({text: text}),
        data_table([text], [[text]], text),
        badge(text, "bad"),
    )
    page.add_section(
        "Plots",
        side_by_side(
            figure(histogram({text: values, "other": values[:50]}, text, bounds=[1.0]), text, text),
            figure(bar_plot({text: 0.2, "b": 0.4}, text, intervals={text: (0.1, 0.3)}, percent=True), text, text),
            figure(line_plot([1, 2, 3], {text: [1, float("nan"), 2], "other": [1, 2, 3]}, text, text), text),
            figure(scatter_plot(values, values[::-1], text, text, diagonal=True), text),
        ),
    )
    sound = tone(0.5) if audio is None else audio
    page.add_section(
        "Speech", item_list(audio_player(sound, text, sample_rate=RATE), word_diff(text, f"{text} {text}"))
    )
    page.add_section("More", details(text, paragraphs(text), "a < b", opened=True))
    return page


class Elements(html.parser.HTMLParser):
    """Collects the elements of a page, and checks that they close in order."""

    VOID = frozenset({"meta", "img", "br", "hr", "input", "link"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def test_text_from_a_corpus_never_becomes_markup() -> None:
    harmless, hostile = Elements(full_page().html()), Elements(full_page(HOSTILE).html())
    assert not hostile.open
    assert not {tag for tag, _ in hostile.found} & {"script", "img", "iframe", "object", "link"}
    assert not [name for _, attributes in hostile.found for name in attributes if name.startswith("on")]
    assert {tag for tag, _ in hostile.found} == {tag for tag, _ in harmless.found}


def test_hostile_text_is_still_shown_as_it_was() -> None:
    shown = html.unescape(full_page(HOSTILE).html())
    assert shown.count("<script>alert(1)</script>") > 10


def test_a_page_refers_to_nothing_outside_itself() -> None:
    text = full_page().html()
    for tag, attributes in Elements(text).found:
        for name in ("src", "href", "data", "poster", "action", "srcset"):
            target = attributes.get(name)
            assert target is None or target.startswith(("data:", "#")), (tag, target)
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_every_reference_inside_the_page_has_its_target_once() -> None:
    text = full_page().html()
    named = re.findall(r' id="([^"]+)"', text)
    assert len(named) == len(set(named))
    for target in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text):
        assert "".join(target) in named


def test_the_policy_forbids_scripts_and_the_network() -> None:
    policy = next(a["content"] for tag, a in Elements(Page("x").html()).found if a.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script" not in policy
    assert "media-src data:" in policy


def test_the_same_values_make_the_same_bytes() -> None:
    assert full_page().html() == full_page().html()


def test_a_table_to_explore_brings_one_script_and_its_hash() -> None:
    page = Page("x")
    page.add_section("All", explorer_table(["utterance", "errors"], [[HOSTILE, 2], ["b", 1]], HOSTILE))
    text = page.html()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in text
    assert "<table data-explorer>" in text
    assert text.index(html.escape("<script>alert(1)").replace("'", "&#39;")) < text.index('<td class="number">1<')


def test_a_bar_below_zero_has_its_label_on_its_left_within_the_drawing() -> None:
    plot = bar_plot({"a": -120.0, "b": 40.0}, "seconds more")
    found = re.search(r'<text x="([0-9.]+)"[^>]*text-anchor: end[^>]*>−120<', plot)
    assert found is not None
    assert float(found[1]) > 40
    bar = re.search(r'<rect x="([0-9.]+)"', plot)
    assert bar is not None
    assert float(found[1]) < float(bar[1])


def test_a_limit_is_named_where_it_is_drawn_and_only_there() -> None:
    assert histogram({"a": [1.0, 2.0]}, "x", bounds=[1.5]).count(">limit</text>") == 1
    assert "limit" not in histogram({"a": [1.0, 2.0]}, "x", bounds=[50.0])


def test_texts_of_two_models_share_one_alignment() -> None:
    block = compare_texts("call anna now", {"version 1": "call hannah now", "this model": "please call anna"})
    rows = re.findall(r'<span class="pair">(.*?)</span>\n', block, re.DOTALL)
    assert len(rows) == 4
    assert rows[0].startswith('<span class="reference">+</span><span class="cell">\u00a0</span><ins class="cell insert')
    assert 'title="substitution">hannah</ins><span class="cell">anna</span>' in rows[2]
    assert rows[3].endswith('<span class="cell">now</span><span class="cell delete" title="deletion">−</span>')


def test_a_player_may_hold_mp3(tmp_path: Path) -> None:
    block = audio_player(tone(1.0), "a", sample_rate=RATE, codec="mp3", label="utterance a")
    data = base64.b64decode(block.partition("audio/mpeg;base64,")[2].partition('"')[0])
    samples, rate = soundfile.read(io.BytesIO(data))
    assert rate == RATE
    assert abs(len(samples) / RATE - 1) < 0.15
    assert len(data) < 10_000
    assert 'aria-label="utterance a"' in block


def test_a_spectrogram_shows_a_tone_where_it_is_and_its_words() -> None:
    from PIL import Image

    silence = np.zeros(RATE // 2, np.float32)
    words = [SpokenWord("a <tone>", 0.5, 1.0, 0.42)]
    block = spectrogram_view(np.concatenate([silence, tone(0.5)]), RATE, [WordRow("hypothesis", words)], "of a")
    png = base64.b64decode(block.partition("image/png;base64,")[2].partition('"')[0])
    image = np.asarray(Image.open(io.BytesIO(png)).convert("L"), np.float64)
    rows, columns = image.shape
    brightest = np.unravel_index(image.argmax(), image.shape)
    assert abs(rows - 1 - brightest[0] - 220 / (RATE / 2) * rows) <= 1
    assert brightest[1] > columns * 0.48
    assert image[:, : int(columns * 0.45)].max() < 10
    assert "a &lt;tone&gt; 42% at 0.50 s" in block
    assert "var(--bad-tint)" in block
    assert len(block) < 30_000


def test_plots_take_their_colours_from_the_page_and_leave_no_background() -> None:
    plot = histogram({"train": [1.0, 2.5, 3.0], "test": [2.0, 2.2]}, "seconds")
    assert "var(--series-1)" in plot
    assert "var(--series-2)" in plot
    assert "currentColor" in plot
    assert not re.search(r"#[0-9a-f]{6}\b", re.sub(r'(id="|url\(#|href="#)[^")]*', "", plot))


@pytest.mark.parametrize("values", [[], [float("nan")], [3.0], [3.0, 3.0, float("inf")], [1e-300, 1e300]])
def test_plots_bear_values_that_are_absent_alike_or_not_finite(values: list[float]) -> None:
    for plot in (
        histogram({"a": values}, "x"),
        scatter_plot(values, values, "x", "y"),
        line_plot(values, {"a": values}, "x", "y"),
    ):
        assert plot.startswith("<svg")
        assert plot.endswith("</svg>")


def test_a_scatter_of_many_points_shows_a_part_and_says_so() -> None:
    plot = scatter_plot(np.arange(50_000), np.arange(50_000), "x", "y")
    assert "2,000 of 50,000" in plot
    assert len(plot) < 400_000


def test_a_plot_has_a_description() -> None:
    plot = histogram({"train": [1.0, 2.0, 4.0], "test": [2.5]}, "seconds")
    assert "<title>Distribution of seconds</title>" in plot
    assert "<desc>train: 3 values from 1 to 4, median 2; test: 1 value from 2.5 to 2.5, median 2.5</desc>" in plot
    assert "<desc>a: 20.0%; b: —</desc>" in bar_plot({"a": 0.2, "b": float("nan")}, "share", percent=True)
    assert "<desc>a: 0.07%; b: 0.0%</desc>" in bar_plot({"a": 0.00065, "b": 0.0}, "share", percent=True)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_are_those_of_numpy(values: list[float], share: float) -> None:
    assert quantiles(np.array(values), share) == [pytest.approx(float(np.quantile(values, share)), rel=1e-12, abs=1e-9)]


def heights_of(plot: str) -> list[float]:
    """The heights of a histogram's steps, as shares of the total."""
    way = re.search(r'd="M([^"]+)Z"', plot)
    assert way is not None
    ways = [float(point.split()[1]) for point in way[1].split("L")]
    above = [ways[0] - way for way in ways[1:-1:2]]
    return [height / sum(above) for height in above]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=50))
def test_the_stairs_of_a_histogram_are_as_high_as_counting_gives(values: list[int]) -> None:
    plot = histogram({"a": values}, "x")
    counted = [values.count(value) / len(values) for value in range(min(values), max(values) + 1)]
    np.testing.assert_allclose(heights_of(plot), counted, atol=0.003)


@settings(deadline=None, max_examples=200)
@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12), st.booleans())
def test_ticks_are_few_and_lie_on_their_axis(low: float, span: float, whole: bool) -> None:
    scale = Scale.around(low, low + span, whole=whole)
    values = [value for value, _ in scale.ticks]
    assert (0 if whole else 1) <= len(values) <= 8
    assert all(-1e-6 <= scale.share(value) <= 1 + 1e-6 for value in values)


def test_pages_with_plots_import_no_plotting_library() -> None:
    made = (
        "import sys\nfrom voxline.report import bar_plot, histogram\n"
        "histogram({'a': [1, 2]}, 'x'), bar_plot({'a': 1.0}, 'x')\n"
        "print({'matplotlib', 'soundfile', 'scipy'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", made], text=True).strip() == "set()"


def test_a_table_aligns_numbers_and_marks_missing_values() -> None:
    text = data_table(["name", "n", "share"], [["a", 12_345, 0.123456], ["b", None, float("nan")]])
    assert '<td>a</td><td class="number">12,345</td><td class="number">0.1235</td>' in text
    assert text.count("—") == 2


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        data_table(["a", "b"], [[1]], "counts")


def test_a_slot_is_filled_and_filled_again() -> None:
    page = full_page(HOSTILE).html()
    refused = fill_slot(page, "verdict", verdict_banner("Refused", "3 < 4", "bad"))
    pushed = fill_slot(refused, "verdict", verdict_banner("Pushed", "", "good"))
    assert "3 &lt; 4" in refused
    assert "Refused" not in pushed
    assert fill_slot(refused, "verdict", "x") == fill_slot(page, "verdict", "x")


def test_filling_a_slot_that_is_not_there_is_an_error() -> None:
    with pytest.raises(WorkError, match="no slot 'other'"):
        fill_slot(full_page().html(), "other", "x")


def samples_of(block: Markup) -> tuple[np.ndarray, int]:
    """The decoded data URI of a player."""
    found = re.search(r'src="data:audio/wav;base64,([^"]+)"', block)
    assert found is not None
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(found[1])), dtype="int16")
    return samples, rate


def test_a_player_holds_the_samples_of_the_file(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", tone(1.0), RATE)
    wanted, _ = soundfile.read(tmp_path / "a.flac", dtype="int16")
    samples, rate = samples_of(audio_player(tmp_path / "a.flac"))
    assert rate == RATE
    np.testing.assert_array_equal(samples, wanted)


def test_a_player_holds_the_segment_that_is_meant(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(-9_000, 9_000, 2 * RATE).astype(np.int16)
    soundfile.write(tmp_path / "a.wav", noise, RATE)
    samples, _ = samples_of(audio_player(tmp_path / "a.wav", offset=0.5, duration=0.25))
    np.testing.assert_array_equal(samples, noise[8_000:12_000])


def test_a_player_says_how_much_it_omits() -> None:
    block = audio_player(tone(3.0), sample_rate=RATE, seconds=1.0)
    assert len(samples_of(block)[0]) == RATE
    assert "The first 1 s of 3.0 s." in block


@pytest.mark.parametrize("content", [None, b"", b"RIFF no wav at all"])
def test_a_player_of_an_unreadable_file_says_so(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "a.wav").write_bytes(content)
    block = audio_player(tmp_path / "a.wav", "the one")
    assert "<audio" not in block
    assert "a.wav cannot be read" in block


@pytest.mark.slow
def test_a_player_decodes_no_recording_that_no_page_has_room_for(tmp_path: Path) -> None:
    """The page of a run that failed plays examples of a corpus, and one of 17 kB took a gigabyte."""
    wide = wide_flac(tmp_path / "wide.flac", 26.0)
    assert wide.stat().st_size < 50_000
    tracemalloc.start()
    try:
        block = audio_player(wide, "a")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "No player: wide.flac is larger than all audio of a page may be." in block
    assert peak < 20e6


def test_a_player_budget_stays_within_its_limit_and_names_what_it_omits() -> None:
    reel = PlayerBudget(limit=100_000)
    blocks = [reel.player(tone(1.0), f"clip {place}", sample_rate=RATE) for place in range(5)]
    assert sum("<audio" in block for block in blocks) == 2
    assert reel.omitted == 3
    assert sum(map(len, blocks)) < 102_000
    assert all("used up" in block for block in blocks[2:])


words = st.lists(st.sampled_from(["one", "two", "three", "<b>", "&", "o'clock"]), max_size=12)


@settings(deadline=None, max_examples=60)
@given(words, words)
def test_a_diff_holds_both_texts_and_as_many_errors_as_jiwer_counts(
    reference: list[str], hypothesis: list[str]
) -> None:
    block = word_diff(" ".join(reference), " ".join(hypothesis))
    rows = {
        row: [html.unescape(word) for word in re.findall(rf'<(?:span|del|ins) class="{row}">([^<]*)<', block)][1:]
        for row in ("reference", "hypothesis")
    }
    assert rows == {"reference": reference, "hypothesis": hypothesis}
    errors = len(re.findall(r'"pair (?:delete|insert|substitute)"', block))
    if reference and hypothesis:
        import jiwer

        measured = jiwer.process_words(" ".join(reference), " ".join(hypothesis))
        assert errors == measured.insertions + measured.deletions + measured.substitutions
    else:
        assert errors == len(reference) + len(hypothesis)


@pytest.mark.slow
@pytest.mark.parametrize(("frames", "spans"), [(1, None), (2, None), (4000, None), (400, (123.4, 8000.0))])
def test_labels_of_a_panels_axes_are_apart(
    frames: int, spans: tuple[float, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    image_panels([Panel("synthesized", np.zeros((frames, 16)), spans=spans)], "a voice that stops at once")
    figures[0].canvas.draw()
    axis = figures[0].axes[0].xaxis
    labels = [label for label in axis.get_ticklabels() if label.get_text() and label.get_visible()]
    low, high = sorted(figures[0].axes[0].get_xlim())
    shown = [label for label in labels if low <= label.get_position()[0] <= high]
    boxes = [label.get_window_extent() for label in shown]
    assert boxes
    assert all(left.x1 + 2 < right.x0 for left, right in itertools.pairwise(boxes))
    # There is no half of a frame.
    assert spans or all(label.get_text().isdigit() for label in shown)


@pytest.mark.slow
def test_image_panels_are_one_png_with_a_description() -> None:
    values = np.random.default_rng(1).random((60, 20))
    block = image_panels(
        [Panel("recorded", values), Panel("$attention$", values, "step", "symbol", 0, 1)], 'of "a" <b>'
    )
    kind, _, rest = block.partition('src="')[2].partition(";base64,")
    width, height = struct.unpack(">II", base64.b64decode(rest.partition('"')[0])[16:24])
    assert kind == "data:image/png"
    assert width > 2 * height
    assert 'alt="of &#34;a&#34; &lt;b&gt;"' in block


def test_control_characters_of_a_corpus_are_shown_and_not_obeyed() -> None:
    """Neither by a browser, which would turn the order of a text, nor by a terminal that prints the file."""
    page = Page("A model")
    page.add_section("Speakers", "ada\x1b]0;title\x07 \u202eben", slot("verdict"))
    html = fill_slot(page.html(), "verdict", "cy\x9b")
    assert r"ada\u001b]0;title\u0007 \u202eben" in html
    assert r"cy\u009b" in html


LEGEND = ["WER of the runs of the nightly", "lower end of its interval", "upper end", "stands out"]
AXIS = "share of utterances whose text is another one"


def test_legends_rows_and_axes_of_a_plot_are_whole() -> None:
    curves = {name: [0.1 * (1 + place), 0.2] for place, name in enumerate(LEGEND)}
    plot = line_plot([0.0, 1.0], curves, "days since the first run", AXIS, percent=True)
    shown = re.findall(r"<text [^>]*>([^<]*)<", plot)
    assert set(LEGEND) <= set(shown)
    assert not any("…" in text for text in shown)

    # A long label is in two lines beside its axis, neither longer than that.
    turned = re.findall(r'<text x="([\d.]+)"[^>]*rotate[^>]*>([^<]*)<', plot)
    assert " ".join(text for _, text in turned) == AXIS
    height = float(re.findall(r'viewBox="0 0 \d+ (\d+)"', plot)[0])
    assert all(text_width(text) * 10 / 9 < height - 34 - 22 for _, text in turned)
    assert len({across for across, _ in turned}) == 2

    bars = bar_plot({"version 112, in service, anchor": 0.1}, "word error rate", percent=True)
    assert "version 112, in service, anchor<" in bars


def test_templates_are_compiled_once_and_again_where_what_is_kept_is_damaged(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", "from voxline.report import badge; print(badge('drifted', 'bad'))"]

    def shown(**variables: str) -> str:
        variables = {**environment, "PYTHONPYCACHEPREFIX": str(tmp_path), **variables}
        return subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout

    page = shown(PYTHONDONTWRITEBYTECODE="1")
    assert "drifted" in page
    assert not list(tmp_path.rglob("*.jinja"))

    assert shown() == page
    (kept,) = tmp_path.rglob("*.jinja")
    content = kept.read_bytes()
    assert shown() == page
    flipped = content[:-30] + bytes([content[-30] ^ 4]) + content[-29:]
    for damaged in (b"", content[:100], content[:-20], flipped, b"not a template"):
        kept.write_bytes(damaged)
        assert shown() == page
        assert kept.read_bytes() == content

    # Byte code of another Python, which would end the process by SIGSEGV where it runs. None is read by its name alone.
    assert sys.implementation.cache_tag in kept.name
    magic = importlib.util.MAGIC_NUMBER.hex().encode()
    header, _, code = content.partition(b"\n")
    assert magic in header
    other = marshal.dumps(compile("raise SystemExit('byte code of another Python')", "other", "exec"))
    header = header.replace(hash_bytes(code).encode(), hash_bytes(other).encode())
    kept.write_bytes(header.replace(magic, b"ffffffff") + b"\n" + other)
    assert shown() == page
    assert kept.read_bytes() == content
