"""Personal data in transcripts: what rules find, what they leave alone, and what the page hides."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxline.text.english import normalize_english
from voxline.text.personal_data import (
    ACCOUNT,
    ADDRESS,
    CARD,
    EMAIL,
    ENOUGH_CLUES,
    IDENTITY,
    NAME,
    NUMBER,
    PHONE,
    clues,
    masked,
    personal_data,
)

FOUND = [
    ("call me at 555-0199", PHONE, "call me at •••"),
    ("call (212) 555-0199.", PHONE, "call •••."),
    ("212 555 0199", PHONE, "•••"),
    ("+44 20 7946 0958", PHONE, "•••"),
    ("+49 (0)30 123456", PHONE, "•••"),
    ("call five five five one two one two now", PHONE, "call ••• now"),
    ("Five-five-five one two one two", PHONE, "•••"),
    ("double five five oh one nine nine", PHONE, "•••"),
    ("我的手机号是13800138000", PHONE, "我的手机号是•••"),
    ("手机 138 0013 8000", PHONE, "手机 •••"),
    ("一三八零零一三八零零零", PHONE, "•••"),
    ("打幺三八零零幺三八零零零", PHONE, "打•••"),
    ("一 三 八 零 零 一 三 八 零 零 零", PHONE, "•••"),
    ("yao1 san1 ba1 ling2 ling2 yao1 san1 ba1 ling2 ling2 ling2", PHONE, "•••"),
    ("１３８００１３８０００", PHONE, "•••"),
    ("电话 010-12345678", PHONE, "电话 •••"),
    # The example of GB 11643.
    ("身份证11010519491231002X", IDENTITY, "身份证•••"),
    ("身份证号一一零一零五一九四九一二三一零零二X", IDENTITY, "身份证号•••"),
    ("my number is 078-05-1120", IDENTITY, "my number is •••"),
    # Numbers that issuers publish for tests.
    *((f"card {number} please", CARD, "card ••• please") for number in (
        "4242 4242 4242 4242", "5555555555554444", "3782 822463 10005", "6011-1111-1111-1117", "6200000000000005",
        "four two four two four two four two four two four two four two four two",
    )),
    # Of the registry of ISO 13616.
    *((f"pay to {account}", ACCOUNT, "pay to •••") for account in (
        "GB29 NWBK 6016 1331 9268 19", "DE89370400440532013000", "NL91 ABNA 0417 1643 00",
        "gb29 nwbk 6016 1331 9268 19", "de89370400440532013000",
    )),
    ("PAY DE89370400440532013000 THIS WEEK", ACCOUNT, "PAY ••• THIS WEEK"),
    ("pay nl91 abna 0417 1643 00 and wait", ACCOUNT, "pay ••• and wait"),
    ("write to ada.lovelace@example.co.uk", EMAIL, "write to •••"),
    ("it is ada dot lovelace at example dot com", EMAIL, None),
    ("she lives at 221B Baker Street", ADDRESS, "she lives at •••"),
    ("twenty one oak street", ADDRESS, "•••"),
    ("Hauptstraße 12 in Köln", ADDRESS, "••• in Köln"),
    ("北京市中山路一百二十号", ADDRESS, "•••"),
    ("my name is Ada Lovelace", NAME, "my name is •••"),
    ("this is grace hopper speaking", NAME, "this is ••• speaking"),
    ("我叫王小明", NAME, "我叫•••"),
    ("order 123456789012", NUMBER, "order •••"),
]  # fmt: skip

LEFT_ALONE = [
    "two years later twenty four people came",
    "one two three four five six seven eight nine ten",
    "one two three one two three one two three",
    "nine eight seven six five four three two one",
    "1914 1918 1939 1945",
    "on 2026-11-29 at 11:24",
    "29/11/2026 12 13",
    "3.14159265358",
    "a population of 1400000000",
    "it cost 1,250,000 dollars",
    "one long dark street",
    "two stray cats in the street",
    "一九四九年十月一日",
    "一百二十三万四千五百六十七",
    "十二点三十五分",
    "look at the dot on the wall",
    "her name is a mystery",
    "my name is on the list",
    "my name is not in this book",
    "4242 4242 4242 4243",  # a card's checksum that is wrong
    "GB30 NWBK 6016 1331 9268 19",
    "",
]


@pytest.mark.parametrize(("text", "kind", "hidden"), FOUND)
def test_personal_data_is_found_and_hidden(text: str, kind: str, hidden: str | None) -> None:
    assert [place[0] for place in personal_data(text)] == [kind]
    if hidden is not None:
        assert masked(text) == hidden


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_other_numbers_and_names_are_left_alone(text: str) -> None:
    assert personal_data(text) == []
    assert masked(text) == text


def test_a_changed_character_of_an_identity_number_is_another_number() -> None:
    assert personal_data("110105194912310021")[0][0] == NUMBER


@pytest.mark.parametrize("written", ["Call me at 555-0199.", "My card is 4242 4242 4242 4242."])
def test_a_number_is_found_before_and_after_it_is_written_out(written: str) -> None:
    """validate reads what convert made of a transcript."""
    assert personal_data(written)
    assert personal_data(normalize_english(written)), normalize_english(written)


WORDS = st.sampled_from(
    [
        *(
            "five",
            "one",
            "oh",
            "double",
            "call",
            "12",
            "+44",
            "street",
            "oak",
            "twenty",
            "at",
            "dot",
            "com",
            "my",
            "name",
        ),
        *(
            "is",
            "ada",
            "@",
            "a@b.cd",
            "一",
            "三八零零一三八零零零",
            "我",
            "叫王明",
            "路五号",
            "555-0199",
            "(555)",
            "st",
            "ba1",
        ),
        *("this", "speaking", "hauptstraße", "five-five", "-", "4242", "thousand", "two", "hundred", "forty-two"),
    ]
)


@given(st.lists(WORDS, max_size=12))
def test_words_without_enough_clues_hold_nothing(words: list[str]) -> None:
    """validate looks only into texts whose words have enough of them."""
    text = " ".join(words)
    if sum(map(clues, text.split(" "))) < ENOUGH_CLUES:
        assert personal_data(text) == []


@given(st.lists(WORDS, max_size=12))
def test_what_is_found_is_in_order_and_apart(words: list[str]) -> None:
    text = " ".join(words)
    places = personal_data(text)
    assert all(0 <= start < end <= len(text) for _, start, end in places)
    assert all(before[2] <= after[1] for before, after in itertools.pairwise(places))
