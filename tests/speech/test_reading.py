"""Whatever the text: it is read into the alphabet of its kind, or refused by name, and soon."""

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.speech.reading import Unreadable, read
from components.speech.reading.settings import ReadingSettings
from components.speech.text import ALPHABETS

KINDS = {
    "english": "english_speech",
    "english_phonemes": "phonemes",
    "mandarin": "pinyin_speech",
    "pinyin": "pinyin_speech",
}
TEXTS = st.text(max_size=60) | st.text("aIV0159.,:$%° -'½drmstno你好不一儿3ǐ", max_size=40)

POLYPHONES = """长大 zhang3 da4|长城 chang2 cheng2|银行 yin2 hang2|行走 xing2 zou3|重庆 chong2 qing4|重要 zhong4 yao4
了解 liao3 jie3|走了 zou3 le5|还有 hai2 you3|归还 gui1 huan2|音乐 yin1 yue4|快乐 kuai4 le4|都是 dou1 shi4|首都 shou3 du1
觉得 jue2 de5|睡觉 shui4 jiao4|教室 jiao4 shi4|教书 jiao1 shu1|便宜 pian2 yi5|方便 fang1 bian4|头发 tou2 fa5
发现 fa1 xian4|为什么 wei4 shen2 me5|成为 cheng2 wei2|朝阳 zhao1 yang2|种子 zhong3 zi5|种地 zhong4 di4
爱好 ai4 hao4|曾经 ceng2 jing1|率领 shuai4 ling3|效率 xiao4 lv4|处理 chu3 li3|重复 chong2 fu4|睡着 shui4 zhao2
参加 can1 jia1|人参 ren2 shen1|弹琴 tan2 qin2|子弹 zi3 dan4|大夫 dai4 fu5"""


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_any_text_is_read_into_the_alphabet_or_refused(kind: str, text: str) -> None:
    how = ReadingSettings(kind=kind)  # type: ignore[arg-type]
    try:
        found = read(text, how)
    except Unreadable:
        return
    assert found.symbols
    assert set(found.symbols) <= set(ALPHABETS[KINDS[kind]])
    if kind in ("english", "pinyin"):
        assert read(found.symbols, how).symbols == found.symbols


@pytest.mark.parametrize("kind", ["english", "mandarin", "pinyin"])
@pytest.mark.parametrize("character", "a1.,'-$:I½不3 ☃")
def test_ten_thousand_of_one_character_take_less_than_a_second(kind: str, character: str) -> None:
    how = ReadingSettings(kind=kind)  # type: ignore[arg-type]
    for warm in (character, character * 10_000):
        start = time.perf_counter()
        with contextlib.suppress(Unreadable):
            read(warm, how)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("pair", POLYPHONES.replace("\n", "|").split("|"))
def test_phrases_decide_how_a_character_is_read(pair: str) -> None:
    hanzi, _, said = pair.partition(" ")
    assert read(hanzi, ReadingSettings(kind="mandarin", sandhi=False)).spoken == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-5°C", "minus five degrees celsius"),
        ("Mr. Hall has $3.50 at 10:05", "mister hall has three dollars and fifty cents at ten oh five"),
        ("Henry VIII in 1999", "henry the eighth in nineteen ninety nine"),
        ("No. 5, 90 km/h", "number five ninety kilometers per hour"),
    ],
)
def test_english_is_said_in_words(text: str, said: str) -> None:
    assert read(text, ReadingSettings(kind="english")).spoken == said


def test_what_has_no_sound_is_named() -> None:
    with pytest.raises(Unreadable, match="U\\+2603 SNOWMAN"):
        read("snow ☃", ReadingSettings(kind="english"))
    with pytest.raises(Unreadable, match="xyz3"):
        read("xyz3", ReadingSettings(kind="pinyin"))
    with pytest.raises(Unreadable, match="U\\+0061"):
        read("你a", ReadingSettings(kind="mandarin"))
