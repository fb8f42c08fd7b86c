"""Spoken words are written as a person writes them, and are read back as the same words."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxline.text.english_numbers import cardinal, money, ordinal, year
from voxline.text.frontend import normalize_spoken
from voxline.text.inverse_english import write_english
from voxline.text.inverse_mandarin import write_mandarin
from voxline.text.mandarin_numbers import hanzi_number

FOLDER = Path(__file__).parent


def english(text: str) -> str:
    return " ".join(word.text for word in write_english(text.split()))


def mandarin(text: str) -> str:
    return "".join(word.text for word in write_mandarin(list(text)))


def lines_of(name: str) -> list[list[str]]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("# ")]


@pytest.mark.parametrize("row", lines_of("english-lines.tsv"), ids=lambda row: row[0])
def test_english_is_written_as_a_person_writes_it(row: list[str]) -> None:
    """The third column where a person has several ways, or the words do not say which: $0.99 and 99 cents."""
    assert english(row[1]) == (row[2] if len(row) > 2 else row[0])


def written_examples() -> list[tuple[str, str]]:
    """The table of the page: spoken, written."""
    page = (FOLDER.parent.parent / "docs" / "text-normalization.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.split("## Inverse")[1].splitlines()]
    return [(row[0].strip("`"), row[1].strip("`")) for row in rows if len(row) == 2 and row[0].startswith("`")]


@pytest.mark.parametrize(("spoken", "written"), written_examples())
def test_the_examples_of_the_page_hold(spoken: str, written: str) -> None:
    assert (english(spoken) if spoken.isascii() else mandarin(spoken)) == written


PROSE = """
i have two dogs and one cat
may i have the first one please
he may second that motion
march on and we won five games
one of them said no to me
the second one is better than the first
i will be there in five minutes or so
a hundred people came
it takes one to know one
four score and seven years ago
one two three go
one two three four five go
o say can you see
nine to five job
fifty fifty chance
a thousand and one nights
at one point he left
twenty one twenty two twenty three
it was a second chance
call me at eight
the three of us five of you
plan b is a go
half a million people
five pounds of sugar
first second third
three sixty degrees
one fifth avenue
plus or minus five units
""".strip().splitlines()


@pytest.mark.parametrize("text", PROSE)
def test_prose_and_what_has_two_readings_stays(text: str) -> None:
    assert english(text) == text


@pytest.mark.parametrize(
    ("spoken", "written"),
    [
        ("half past nine or a quarter to ten", "9:30 or 9:45"),
        ("a thirty second break in the thirty second street", "a 30 second break in the 32nd street"),
        ("twenty to two friends, sixteen to nine", "20 to two friends, 16 to 9"),
        ("twenty five dollars. thirty people", "$25. 30 people"),
        ("in twenty thirty at twenty thirty", "in 2030 at 20:30"),
        ("since two thousand five two thousand people came", "since 2005 2,000 people came"),
        ("five pounds of sugar for two pounds fifty pence", "five pounds of sugar for £2.50"),
        ("we won ten games for ten thousand won", "we won 10 games for ₩10,000"),
        ("one hundred and two hundred", "100 and 200"),
        ("seven thirty", "7:30"),
        ("two thousand three thousand people", "2,000 3,000 people"),
        ("fifteen metres, twenty kilometres per hour", "15 m, 20 km/h"),
    ],
)
def test_neighbors_decide_how_numbers_are_written(spoken: str, written: str) -> None:
    assert english(spoken) == written


def spoken(words: str) -> str:
    return words.replace("-", " ")


@settings(max_examples=300, deadline=None)
@given(number=st.integers(10, 10**15 - 1), cents=st.integers(0, 99), first=st.integers(1100, 2099))
def test_numbers_are_read_back_as_they_were_said(number: int, cents: int, first: int) -> None:
    for words in (
        spoken(cardinal(str(number))),
        spoken(ordinal(str(number))),
        spoken(money("$", f"{number}.{cents:02d}", "")),
        f"in {spoken(year(str(first)))}",
        f"on march fifth {spoken(year(str(first)))}",
    ):
        written = english(words)
        assert any(character.isdigit() for character in written)
        assert normalize_spoken(written, "english_transcript") == words


WORDS = """
one two five nine ten eleven twelve twenty thirty ninety hundred thousand million first second third fifth twentieth
and a point oh zero o'clock a m p dollars cents pounds percent degrees kilometers march may of to at in half quarter
past minus plus the room street call nineteen eighty
""".split()  # noqa: SIM905


@settings(max_examples=500, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=12))
def test_every_word_is_written_once_and_in_order(words: list[str]) -> None:
    written = write_english(words)
    places = [place for word in written for place in range(word.first, word.last)]
    assert places == list(range(len(words)))
    assert all(word.text for word in written)


@pytest.mark.parametrize("row", lines_of("mandarin-lines.tsv"), ids=lambda row: row[0])
def test_mandarin_is_written_as_a_person_writes_it(row: list[str]) -> None:
    assert mandarin(row[0]) == row[1]


@settings(max_examples=300, deadline=None)
@given(number=st.integers(10, 10**12))
def test_hanzi_numbers_are_read_back_as_they_were_said(number: int) -> None:
    words = f"有{hanzi_number(str(number))}个"
    assert normalize_spoken(mandarin(words), "mandarin_transcript") == words


@pytest.mark.parametrize(
    ("spoken", "written"),
    [
        ("call eight hundred five five five one two three four", "call 800-555-1234"),
        ("eight hundred five five five people", "eight hundred five five five people"),
        ("eight hundred five people", "805 people"),
        ("page twenty three twenty four", "page twenty three twenty four"),
        ("chapter nineteen twenty, room nineteen twenty", "chapter nineteen twenty, room 1920"),
        ("page one oh one, page twenty three", "page 101, page 23"),
        ("the score was twenty ten, in twenty ten", "the score was twenty ten, in 2010"),
        ("they won twenty ten in twenty twelve", "they won twenty ten in 2012"),
        ("between twenty ten and twenty fifteen", "between 2010 and 2015"),
        ("two to three hundred dollars", "two to three hundred dollars"),
        ("between twenty two and thirty thousand people", "between twenty two and thirty thousand people"),
        ("two hundred to three hundred, five to ten million", "200 to 300, 5 to 10 million"),
        ("gave a quarter to ten people", "gave a quarter to 10 people"),
        ("a quarter to nine kids, at a quarter to nine", "a quarter to nine kids, at 8:45"),
        ("ate a quarter after two hours", "ate a quarter after two hours"),
        ("five ten fifteen twenty, in fifteen twenty", "five ten fifteen twenty, in 1520"),
        (
            "the twenty second timer, wait twenty second, the twenty second",
            "the 20 second timer, wait 20 second, the 22nd",
        ),
        ("the years nineteen eighty nineteen ninety", "the years 1980 1990"),
        ("nineteen eighty five nineteen ninety", "1985 1990"),
        ("on the twenty second head over", "on the 22nd head over"),
        ("on the twenty second video calls begin", "on the 22nd video calls begin"),
        ("a twenty second video, the thirty second head start", "a 20 second video, the 30 second head start"),
        ("two thousand twenty one was hard", "2021 was hard"),
        ("two thousand twenty one people", "2,021 people"),
        (
            "ten to one odds, ten to one is long, twenty to two friends",
            "10 to 1 odds, 10 to 1 is long, 20 to two friends",
        ),
        ("nine times out of ten, twelve out of twenty", "nine times out of ten, 12 out of 20"),
        ("the year two thousand comes, two thousand come", "the year 2000 comes, 2,000 come"),
        ("it's two fifty a pound, it's two fifty", "it's two fifty a pound, it's 2:50"),
        ("a hundred and fifty thousand, a hundred and five", "150,000, a hundred and five"),
        ("a thousand five hundred people, a hundred thousand", "1,500 people, a hundred thousand"),
        ("a million and a half, two and a half", "a million and a half, 2 1/2"),
        ("which one am i, at one am i woke up", "which one am i, at 1 a.m. i woke up"),
        ("on one oh one point five, at one oh one", "on one oh one point five, at 1:01"),
        ("at one oh one point five", "at one oh one point five"),
        ("twenty twenty vision, in twenty twenty", "twenty twenty vision, in 2020"),
        ("in march two thousand people came, in march two thousand", "in march 2,000 people came, in March 2000"),
        (
            "on may fifth two thousand soldiers left, may fifth two thousand",
            "on May 5 2,000 soldiers left, May 5, 2000",
        ),
        ("a tenth of a second, the tenth of may", "a tenth of a second, the 10th of May"),
        ("two fifty dollars, two fifty dollar bills", "two fifty dollars, two $50 bills"),
    ],
)
def test_numbers_with_two_readings_stay_words(spoken: str, written: str) -> None:
    assert english(spoken) == written


@pytest.mark.parametrize(
    ("spoken", "written"),
    [
        ("四五万人", "四五万人"),
        ("七八公里", "七八公里"),
        ("百分之七八", "百分之七八"),
        ("两三元", "两三元"),
        ("五六月三号", "五六月三号"),
        ("十七八公里", "十七八公里"),
        ("四十五万人", "45万人"),
        ("七点八公里", "7.8公里"),
        ("一零五公里", "105公里"),
    ],
)
def test_about_as_many_is_no_number_of_two_digits(spoken: str, written: str) -> None:
    assert mandarin(spoken) == written
