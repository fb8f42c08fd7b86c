"""Hanzi to pinyin: phrases decide how a character is read; numbers are said; tones change in company."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

from voxline.text.mandarin_numbers import expand_mandarin_numbers
from voxline.text.pinyin import PUNCTUATION, with_final_mark
from voxline.text.settings import EmptyText, quote_text, unsupported_characters

_NEUTRAL_TONE_LIST = """
    爸爸 妈妈 哥哥 姐姐 弟弟 妹妹 爷爷 奶奶 叔叔 舅舅 姑姑 婆婆 公公 太太 姥姥 娃娃 星星 谢谢 朋友 学生 先生 师傅
    丈夫 媳妇 姑娘 闺女 亲戚 兄弟 女婿 大夫 护士 和尚 裁缝 木匠 铁匠 丫头 早上 晚上 乡下 里头 前头 后头 时候 月亮
    云彩 地方 东西 事情 故事 消息 意思 主意 名字 知识 学问 道士 规矩 关系 交情 脾气 力气 运气 福气 客气 生意 买卖
    工夫 功夫 本事 记性 岁数 动静 笑话 相声 招牌 衣服 衣裳 枕头 钥匙 扫帚 灯笼 风筝 窗户 栅栏 篱笆 罐头 木头 石头
    骨头 拳头 指头 舌头 头发 眉毛 眼睛 耳朵 嘴巴 下巴 尾巴 胳膊 脑袋 脊梁 屁股 指甲 唾沫 咳嗽 豆腐 点心 月饼 烧饼
    馒头 萝卜 芝麻 核桃 石榴 蘑菇 葡萄 高粱 庄稼 粮食 骆驼 狐狸 苍蝇 蛤蟆 刺猬 牲口 漂亮 聪明 凉快 暖和 便宜 舒服
    清楚 明白 糊涂 厉害 老实 热闹 结实 麻烦 马虎 活泼 机灵 勤快 痛快 爽快 苗条 委屈 冤枉 喜欢 认识 告诉 商量 打听
    打算 打扮 打发 答应 招呼 收拾 休息 欺负 吓唬 耽误 折腾 张罗 应酬 称呼 琢磨 溜达 凑合 将就 念叨 在乎 对付 挑剔
"""

NEUTRAL_TONE_WORDS = frozenset(_NEUTRAL_TONE_LIST.split())


_COUNTING = "第十百千万亿零〇点两二三四五六七八九一"
_ORDINAL_AFTER = "月号日楼一二三四五六七八九十零〇"
_DIGITS = "零一二三四五六七八九"


def apply_tone_sandhi(words: Sequence[str], tones: Sequence[str]) -> list[str]:
    """Syllables as they are said.

    Args:
      words: the hanzi of a clause, parted into words.
      tones: a syllable for each of its hanzi, with the tone that it has alone.

    >>> apply_tone_sandhi(["你", "好"], ["ni3", "hao3"]), apply_tone_sandhi(["不", "对"], ["bu4", "dui4"])
    (['ni2', 'hao3'], ['bu2', 'dui4'])
    >>> (
    ...     apply_tone_sandhi(["我", "很", "好"], ["wo3", "hen3", "hao3"]),
    ...     apply_tone_sandhi(["展览馆"], ["zhan3", "lan3", "guan3"]),
    ... )
    (['wo3', 'hen2', 'hao3'], ['zhan2', 'lan2', 'guan3'])
    """
    said = _apply_yi_bu("".join(words), list(tones))
    starts, place = [], 0
    for word in words:
        starts.append(place)
        for one in range(place, place + len(word) - 1):
            _apply_third_tone(said, one)
        place += len(word)
    # From the end, so that of a row of short words every other one rises: wo3 hen2 hao3.
    for start in reversed(starts[1:]):
        _apply_third_tone(said, start - 1)
    return said


def _apply_third_tone(said: list[str], place: int) -> None:
    if said[place][-1] == "3" and said[place + 1][-1] == "3":
        said[place] = said[place][:-1] + "2"


def _apply_yi_bu(hanzi: str, tones: list[str]) -> list[str]:
    """不 before a fourth tone is bu2; 一 is yi2 or yi4 before a syllable, unless it counts."""
    said = list(tones)
    for place, one in enumerate(hanzi[:-1]):
        before, after = hanzi[place - 1 : place], hanzi[place + 1]
        between = before and before == after  # 看一看, 是不是
        fourth = tones[place + 1][-1] == "4" or after == "个"
        if one == "不":
            said[place] = "bu5" if between else "bu2" if fourth else tones[place]
        elif one == "一" and between and before not in _COUNTING:
            said[place] = "yi5"
        elif one == "一" and not _is_numeral(hanzi, place):
            said[place] = "yi2" if fourth else "yi4"
    return said


def _is_numeral(hanzi: str, place: int) -> bool:
    """Whether 一 is a numeral in a row or a rank, which keeps its tone: 十一, 第一, 一月, 一点五; 一百 is not."""
    before, after, next_one = hanzi[place - 1 : place], hanzi[place + 1], hanzi[place + 2 : place + 3]
    if before and before in _COUNTING:
        return before == "第" or after not in "百千万亿"
    return after in _ORDINAL_AFTER or (after == "点" and bool(next_one) and next_one in _DIGITS)


_HANZI = "\u3007\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0002ebef"
_FULL_ER = "女婴幼孤少健胎宠男育小生"
_DROPPED = str.maketrans("", "", "“”‘’\"'「」『』《》〈〉（）()【】[]·")
_MUST = tuple("我你他她就都不必还可总也")
"""Before these 得 is no particle: it means to have to."""
_BEFORE_MEASURE = "一二两三四五六七八九十百千万几多这那哪每"
_PHRASES = {
    "得走": "dei3 zou3", "午休息": "wu3 xiu1 xi5", "大夫": "dai4 fu5", "头发": "tou2 fa5", "觉得": "jue2 de5",
    "着急": "zhao2 ji2", "慢慢地": "man4 man4 de5", "一行人": "yi4 xing2 ren2", "睡着": "shui4 zhao2",
}  # fmt: skip


def hanzi_to_pinyin(text: str, sandhi: bool = True) -> str:
    """Reads hanzi. Latin words are refused: nothing tells how they are to be said.

    >>> hanzi_to_pinyin("你好，银行有50%！")
    'ni2 hao3, yin2 hang2 you2 bai3 fen1 zhi1 wu3 shi2!'

    Raises:
      Unreadable: a character that Mandarin has no sound for, or nothing to say.
    """
    written = unicodedata.normalize("NFKC", text.translate(PUNCTUATION)).translate(_DROPPED).translate(PUNCTUATION)
    said = re.sub("--+", ",", "".join(expand_mandarin_numbers(" ".join(written.split())).split()))
    if unknown := re.findall(rf"[^{_HANZI}.,;:!?]", said):
        latin = re.findall("[A-Za-z]+", said)
        named = f"; Latin here: {', '.join(dict.fromkeys(latin[:10]))}" if latin else ""
        raise unsupported_characters(
            unknown, text, f"hanzi, digits and punctuation are accepted, Latin words are not{named}"
        )
    parts = []
    for part in re.findall(r"[.,;:!?]+|[^.,;:!?]+", said):
        parts.append(part[0] if part[0] in ".,;:!?" else " " + " ".join(_clause_syllables(part, text, sandhi)))
    symbols = "".join(parts).lstrip(" .,;:!?")
    if not symbols:
        raise EmptyText(f"{quote_text(text)} has nothing to say; hanzi are accepted")
    return with_final_mark(symbols)


def _clause_syllables(hanzi: str, text: str, sandhi: bool) -> list[str]:
    read = _load_pypinyin()(hanzi)
    if len(read) != len(hanzi) or (
        bad := [c for c, one in zip(hanzi, read, strict=True) if not re.fullmatch("[a-z]+[1-5]", one)]
    ):
        raise unsupported_characters(
            hanzi if len(read) != len(hanzi) else bad, text, "characters of the dictionary are accepted"
        )
    read = [{"一": "yi1", "不": "bu4"}.get(one, said) for one, said in zip(hanzi, read, strict=True)]
    words = _segment(hanzi)
    read = _resolve_particles(words, read)
    if sandhi:
        read = apply_tone_sandhi(words, read)
    joined: list[str] = []
    for place, (one, said) in enumerate(zip(hanzi, read, strict=True)):
        # 花儿 is one syllable; 女儿, 儿子 and 儿童 are two.
        if (
            one == "儿"
            and joined
            and hanzi[place - 1] not in _FULL_ER
            and hanzi[place + 1 : place + 2] not in tuple("子童歌媳科")
        ):
            joined[-1] = joined[-1] if joined[-1][-2] == "r" else f"{joined[-1][:-1]}r{joined[-1][-1]}"
        else:
            joined.append(said)
    return joined


def _resolve_particles(words: list[str], read: list[str]) -> list[str]:
    """Words of one hanzi whose sound the word before them decides.

    得 and 地 are particles behind a word that they belong to: 长得高, 高兴地说; not 这块地. 只 counts behind a number:
    三只猫; elsewhere it means only.
    """
    said, place = list(read), 0
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        complement = word == "得" and before and before not in _MUST
        adverbial = word == "地" and len(before) > 1 and after
        if complement or adverbial:
            said[place] = "de5"
        if word == "只" and before and before[-1] in _BEFORE_MEASURE:
            said[place] = "zhi1"
        place += len(word)
    return said


def _segment(hanzi: str) -> list[str]:
    from pypinyin.seg import mmseg

    return [str(word) for word in mmseg.seg.cut(hanzi)]


@cache
def _load_pypinyin() -> Any:
    from pypinyin import Style, lazy_pinyin, load_phrases_dict
    from pypinyin.contrib.tone_convert import to_tone

    def syllables(hanzi: str) -> list[str]:
        return lazy_pinyin(hanzi, style=Style.TONE3, neutral_tone_with_five=True, v_to_u=False, errors=list)  # type: ignore[arg-type]

    # Both parts are told by the same dictionary: what is a word, and how it sounds.
    phrases = {word: f"{syllables(word)[0]} {syllables(word)[1][:-1]}5" for word in NEUTRAL_TONE_WORDS} | _PHRASES
    load_phrases_dict({phrase: [[to_tone(one)] for one in said.split()] for phrase, said in phrases.items()})
    return syllables
