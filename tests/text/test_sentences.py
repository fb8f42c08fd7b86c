"""Texts are cut where sentences end, and nowhere else; nothing is lost."""

import time

import hypothesis
import pytest
from hypothesis import strategies

from voxline.text.sentences import cut_to, has_words, split_paragraphs, split_sentences

GOLDEN_RULES = """
Hello World. | My name is Jonas.
What is your name? | My name is Jonas.
There it is! | I found it.
My name is Jonas E. Smith.
Please turn to p. 55.
Were Jane and co. at the party?
They closed the deal with Pitt, Briggs & Co. at noon.
Let's ask Jane and co. | They should know.
They closed the deal with Pitt, Briggs & Co. | It closed yesterday.
I can see Mt. Fuji from here.
St. Michael's Church is on 5th st. near the light.
That is JFK Jr.'s book.
I visited the U.S.A. last year.
I work for the U.S. Government in Virginia.
I have lived in the U.S. for 20 years.
She has $100.00 in her bag.
She has $100.00. | It is in her bag.
He teaches science (He previously worked for 5 years as an engineer.) at the local University.
Her email is Jane.Doe@example.com. | I sent her an email.
The site is: https://www.example.50.com/new-site/awesome_content.html. | Please check it out.
She turned to him, 'This is great.' she said.
She turned to him, "This is great." she said.
She turned to him, "This is great." | She held the book out to show him.
Hello!! | Long time no see.
Hello?? | Who is there?
Hello!? | Is that you?
Hello?! | Is that you?
You can find it at N°. 1026.253.553. | That is where the treasure is.
She works at Yahoo! in the accounting department.
We make a good team, you and I. | Did you see Albert I. Jones yesterday?
Thoreau argues that by simplifying one’s life, “the laws of the universe will appear less complex. . . .”
I never meant that.... | She left the store.
안녕하세요. | 반갑습니다.
安永已一郎です。 | 今度はどうですか。
我们明天一起去看电影吧？ | 好啊！
"""
"""Of Pragmatic Segmenter (MIT license), the last lines after its tests of other languages:
https://github.com/diasks2/pragmatic_segmenter#the-golden-rules. It cuts behind "in the U.S." before "How", and not
behind "5 a.m." before "Mr. Smith"; here the one stays whole and the other is cut."""


@pytest.mark.parametrize("line", GOLDEN_RULES.strip().splitlines())
def test_the_golden_rules_of_pragmatic_segmenter_hold(line: str) -> None:
    assert split_sentences(line.replace(" | ", " ")) == line.split(" | ")


@pytest.mark.parametrize(
    "line",
    [
        "Dr. Bell saw Mrs. King at 3.14 p.m. | She left.",
        "他说：“好吗？” | “好！” | 一；| 二…… | 三.14吧。",
        "你好! | 世界.",
        "Das kostet z.B. zehn Euro. | Er kam d.h. spät.",
        "1. First. | Then 2. | Third",
        "See Jan. 5 and No. 7, e.g. Rome. | So do I. | He left.",
        "He left... ?! | “Go!” ... then",
        "एक। | दो।",
        "Wait... what? no! | Yes",
        "no mark",
    ],
)
def test_marks_of_other_scripts_decimals_and_abbreviations(line: str) -> None:
    parts = [part.strip() for part in line.split("|")]
    joined = line.replace(" | ", "" if any("\u4e00" <= c <= "\u9fff" for c in line) else " ").replace("| ", "")
    assert split_sentences(joined) == parts


MIXED = strategies.text(strategies.sampled_from("aB1 .!?…,;:。！？；，\"'”(）\n\u0301é你"), max_size=80)


def bare(text: str) -> str:
    return "".join(text.split())


@hypothesis.given(MIXED)
def test_nothing_is_lost_and_each_piece_has_words(text: str) -> None:
    sentences = split_sentences(text)
    assert bare("".join(sentences)) == bare(text)
    assert all(map(has_words, sentences)) or len(sentences) <= 1
    assert bare("".join(split_paragraphs(text))) == bare(text)
    assert [part for one in sentences for part in split_sentences(one)] == sentences or "." in text


@hypothesis.given(MIXED, strategies.integers(2, 30))
def test_parts_are_as_short_as_wanted_and_nothing_is_lost(text: str, most: int) -> None:
    parts = cut_to(text.strip(), most)
    assert all(len(part) <= most for part in parts)
    assert bare("".join(parts)) == bare(text)


def test_what_the_frontend_expands_before_a_number_is_not_cut() -> None:
    for text in ("See vol. II for more.", "Fig. IV shows it.", "No. X was late.", "See p. 5.", "Das ist z. B. gut."):
        assert split_sentences(text) == [text]
    assert split_sentences("I say no. I think not.") == ["I say no.", "I think not."]


def test_a_clause_is_preferred_to_a_space_and_a_space_to_a_word() -> None:
    assert cut_to("one two three, four five six", 20) == ["one two three,", "four five six"]
    assert cut_to("一二三，四五六七", 5) == ["一二三，", "四五六七"]
    assert cut_to("1,000,000 and 3:45 pm", 12) == ["1,000,000", "and 3:45 pm"]
    assert cut_to("abcdefgh", 4) == ["abcd", "efgh"]
    assert cut_to("ae\u0301e\u0301", 4) == ["ae\u0301", "e\u0301"]


@pytest.mark.parametrize(
    "unit", ["Well, Dr. Who went. ", ". ", "A. ", "x.", ". \"'", "word ", ".", ")", ".)", "a" + ")" * 50_000]
)
def test_a_long_text_is_cut_in_time_that_grows_with_its_length(unit: str) -> None:
    started = time.process_time()
    for sentence in split_sentences("a" + unit * (100_000 // len(unit)) + "a"):
        cut_to(sentence, 4_000)
    assert time.process_time() - started < 10
