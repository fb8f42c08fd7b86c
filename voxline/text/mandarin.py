"""Hanzi to pinyin: phrases decide the pronunciation of a character, numbers are spoken, tone sandhi is applied."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from voxline.text.alphabet import EmptyText, quote_text, unsupported_characters
from voxline.text.mandarin_numbers import expand_mandarin_numbers, fold_mandarin
from voxline.text.pinyin import PUNCTUATION, with_final_mark

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
_ORDINAL_AFTER = "月号日楼一二三四五六七八九十零〇和与或"
_DIGITS = "零一二三四五六七八九"
_HANZI = "\u3007\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0002ebef"
_FULL_ER = "女婴幼孤少健胎宠男育小生"
_MARKS = str.maketrans("", "", ".,;:!?")
_DROPPED = str.maketrans("", "", "“”‘’\"'「」『』《》〈〉（）()【】[]·")
_MUST = tuple("我你他她就都不必还可总也")
"""After these 得 is not a particle: it means "to have to"."""

_BEFORE_MEASURE = "一二两三四五六七八九十百千万几多这那哪每"
_PHRASES = {
    "得走": "dei3 zou3", "午休息": "wu3 xiu1 xi5", "大夫": "dai4 fu5", "头发": "tou2 fa5", "觉得": "jue2 de5",
    "着急": "zhao2 ji2", "慢慢地": "man4 man4 de5", "一行人": "yi4 xing2 ren2", "睡着": "shui4 zhao2",
    "长得": "zhang3 de5", "长出": "zhang3 chu1", "长满": "zhang3 man3", "长胖": "zhang3 pang4", "长着": "zhang3 zhe5",
    "典当行": "dian3 dang4 hang2", "拍卖行": "pai1 mai4 hang2", "我行": "wo3 hang2", "贵行": "gui4 hang2",
    "该行": "gai1 hang2", "我行吗": "wo3 xing2 ma5", "我行不行": "wo3 xing2 bu4 xing2", "步入": "bu4 ru4",
    "多重": "duo1 chong2", "多重要": "duo1 zhong4 yao4", "有多重": "you3 duo1 zhong4",
    **{f"教{whom}": f"jiao1 {reading}" for whom, reading in {
        "你": "ni3", "我": "wo3", "他": "ta1", "她": "ta1", "您": "nin2", "你们": "ni3 men5", "我们": "wo3 men5",
        "他们": "ta1 men5", "大家": "da4 jia1", "孩子": "hai2 zi5", "学生": "xue2 sheng5",
    }.items()},
}  # fmt: skip
"""Words that pypinyin's phrases lack, or that decide a segmentation: 步入|会计, not 步|入会|计."""

_SINGLE = {"长": "cháng,zhǎng"}
"""Readings of a hanzi outside all phrases, the usual one first: 最长, 长时间; phrases have 校长, 长大."""

_CAUGHT = "病癌症重感肿糖高心肺肝胃第冠亚奖满"
"""After 得了 these are what somebody got: 得了重疾 is de2 le5; 做得了 is de5 liao3."""

LETTERS = {
    "A": "ei1", "B": "bi4", "C": "xi1", "D": "di4", "E": "yi4", "F": "ai2 fu5", "G": "ji4", "H": "ei2 chi1",
    "I": "ai4", "J": "zhei4", "K": "kei4", "L": "ai2 lou5", "M": "ai2 mu5", "N": "en1", "O": "ou1", "P": "pi4",
    "Q": "ku1", "R": "a4 er5", "S": "ai2 si5", "T": "ti4", "U": "you1", "V": "wei1", "W": "da2 bu5 liu5",
    "X": "ai2 ke5 si5", "Y": "wai4", "Z": "zei4",
}  # fmt: skip
"""Latin letters as they are read in Mandarin speech."""
MAX_LETTERS = 5
"""Capitals in a row that are read letter by letter: APP, VIP. A longer word needs an entry in the lexicon."""


def hanzi_to_pinyin(
    text: str, sandhi: bool = True, lexicon: Mapping[str, str] | None = None, *, whole: bool = True
) -> str:
    """Converts hanzi to pinyin. Up to five capitals are read as letters; other Latin words need the lexicon.

    Args:
      lexicon: word → pinyin with tone digits, for Latin words and names; it wins over everything else.
      whole: False: a part of a sentence, which begins and ends with the marks that it has, and may have no words.

    >>> hanzi_to_pinyin("你好，银行有50%！")
    'ni2 hao3, yin2 hang2 you2 bai3 fen1 zhi1 wu3 shi2!'
    >>> hanzi_to_pinyin("VIP客户下载Wechat", lexicon={"Wechat": "wei1 xin4"})
    'wei1 ai4 pi4 ke4 hu4 xia4 zai4 wei1 xin4.'
    >>> hanzi_to_pinyin("，你好", whole=False)
    ', ni2 hao3'

    Raises:
      UnsupportedText: some characters have no sound in Mandarin, or there are no words.
    """
    # Numbers first: the marks in them are dropped elsewhere.
    numbered = expand_mandarin_numbers(" ".join(fold_mandarin(text).split()))
    expanded = " ".join(numbered.translate(_DROPPED).translate(PUNCTUATION).split())

    # White space has no meaning between hanzi, only between Latin words.
    spelled_out = re.sub("--+", ",", re.sub("(?<![A-Za-z]) | (?![A-Za-z])", "", expanded))
    lexicon = lexicon or {}

    # Longer entries first: an entry may begin with another one.
    entries = [_entry_pattern(word) for word in sorted(lexicon, key=len, reverse=True)]
    words = re.compile("|".join([*entries, "[A-Za-z]+", " ", f"[{_HANZI}]"]))

    # What no rule can read is reported all at once, with the Latin words.
    unknown = "".join(words.sub("", spelled_out).translate(_MARKS))
    latin = [word for word in re.findall("[A-Za-z]+", spelled_out) if not _is_readable(word, lexicon)]
    if unknown or latin:
        named = f"; Latin here: {', '.join(dict.fromkeys(latin[:10]))}" if latin else ""
        raise unsupported_characters(
            unknown or "".join(latin),
            text,
            "hanzi, digits, punctuation and up to five capitals are accepted, and other words in frontend.lexicon"
            f"{named}",
        )

    # Odd pieces of the split are what `special` matched, even ones the hanzi between.
    special = re.compile("(" + "|".join([*entries, "[A-Za-z]+"]) + ")")
    parts = []
    for part in re.findall(r"[.,;:!?]+|[^.,;:!?]+", spelled_out):
        if part[0] in ".,;:!?":
            parts.append(part[0])
            continue
        for number, piece in enumerate(special.split(part)):
            if number % 2:
                parts.append(f" {_read_word(piece, lexicon)}")
            elif hanzi := piece.replace(" ", ""):
                parts.append(" " + " ".join(_clause_syllables(hanzi, text, sandhi)))

    if not whole:
        return "".join(parts).strip()
    symbols = "".join(parts).lstrip(" .,;:!?")
    if not symbols:
        raise EmptyText(f"{quote_text(text)} has no words; hanzi are accepted")
    return with_final_mark(symbols)


def _entry_pattern(word: str) -> str:
    """Matches a word of the lexicon, but no part of a longer Latin word."""
    before = "(?<![A-Za-z])" if re.match("[A-Za-z]", word) else ""
    after = "(?![A-Za-z])" if re.search("[A-Za-z]$", word) else ""
    return f"{before}{re.escape(word)}{after}"


def _is_readable(word: str, lexicon: Mapping[str, str]) -> bool:
    return word in lexicon or (word.isupper() and len(word) <= MAX_LETTERS)


def _read_word(word: str, lexicon: Mapping[str, str]) -> str:
    """The pinyin of a word of the lexicon, or of letters."""
    return lexicon.get(word) or " ".join(LETTERS[letter] for letter in word)


def _clause_syllables(hanzi: str, text: str, sandhi: bool) -> list[str]:
    # pypinyin joins what it cannot read: then there are fewer syllables than hanzi.
    syllables = _load_pypinyin()(hanzi)
    if len(syllables) != len(hanzi) or (
        bad := [
            char for char, syllable in zip(hanzi, syllables, strict=True) if not re.fullmatch("[a-z]+[1-5]", syllable)
        ]
    ):
        raise unsupported_characters(
            hanzi if len(syllables) != len(hanzi) else bad, text, "characters of the dictionary are accepted"
        )

    # Dictionary tones of 一 and 不, which pypinyin's phrases may have changed; sandhi follows below.
    syllables = [
        {"一": "yi1", "不": "bu4"}.get(char, syllable) for char, syllable in zip(hanzi, syllables, strict=True)
    ]
    words = _segment(hanzi)
    syllables = _resolve_particles(words, syllables)
    if sandhi:
        syllables = apply_tone_sandhi(words, syllables)

    joined: list[str] = []
    for index, (char, syllable) in enumerate(zip(hanzi, syllables, strict=True)):
        # 花儿 is one syllable; 女儿, 儿子 and 儿童 are two.
        if (
            char == "儿"
            and joined
            and hanzi[index - 1] not in _FULL_ER
            and hanzi[index + 1 : index + 2] not in tuple("子童歌媳科")
        ):
            joined[-1] = joined[-1] if joined[-1][-2] == "r" else f"{joined[-1][:-1]}r{joined[-1][-1]}"
        else:
            joined.append(syllable)
    return joined


def _segment(hanzi: str) -> list[str]:
    from pypinyin.seg import mmseg

    return [str(word) for word in mmseg.seg.cut(hanzi)]


@cache
def _load_pypinyin() -> Any:
    from pypinyin import Style, lazy_pinyin, load_phrases_dict, load_single_dict
    from pypinyin.contrib.tone_convert import to_tone

    def pronounce(hanzi: str) -> list[str]:
        return lazy_pinyin(hanzi, style=Style.TONE3, neutral_tone_with_five=True, v_to_u=False, errors=list)  # type: ignore[arg-type]

    load_single_dict({ord(character): readings for character, readings in _SINGLE.items()})
    # pypinyin segments and pronounces with the same dictionary.
    phrases = {word: f"{pronounce(word)[0]} {pronounce(word)[1][:-1]}5" for word in NEUTRAL_TONE_WORDS} | _PHRASES
    load_phrases_dict(
        {phrase: [[to_tone(syllable)] for syllable in pinyin.split()] for phrase, pinyin in phrases.items()}
    )
    return pronounce


def _resolve_particles(words: list[str], syllables: list[str]) -> list[str]:
    """Corrects single-hanzi words whose pronunciation depends on the word before them.

    得 and 地 are particles after the word that they modify: 长得高, 高兴地说; not 这块地. 只 is a measure word after a
    number: 三只猫; elsewhere it means "only".
    """
    resolved = list(syllables)
    index = 0
    following = [*words[2:], "", ""]
    for before, word, after, second in zip(["", *words], words, [*words[1:], ""], following, strict=False):
        caught = after == "了" and second[:1] in tuple(_CAUGHT)
        complement = word == "得" and before and before not in _MUST and not caught
        adverbial = word == "地" and len(before) > 1 and after
        if complement or adverbial:
            resolved[index] = "de5"
        if word == "只" and before and before[-1] in _BEFORE_MEASURE:
            resolved[index] = "zhi1"
        index += len(word)
    return resolved


def apply_tone_sandhi(words: Sequence[str], tones: Sequence[str]) -> list[str]:
    """Applies the tone sandhi of third tones, 一 and 不.

    Args:
      words: the hanzi of a clause, segmented into words.
      tones: a syllable for each hanzi, with its dictionary tone.

    >>> apply_tone_sandhi(["你", "好"], ["ni3", "hao3"]), apply_tone_sandhi(["不", "对"], ["bu4", "dui4"])
    (['ni2', 'hao3'], ['bu2', 'dui4'])
    >>> (
    ...     apply_tone_sandhi(["我", "很", "好"], ["wo3", "hen3", "hao3"]),
    ...     apply_tone_sandhi(["展览馆"], ["zhan3", "lan3", "guan3"]),
    ... )
    (['wo3', 'hen2', 'hao3'], ['zhan2', 'lan2', 'guan3'])
    """
    # 一 and 不 first: their tones are then part of the third-tone rule.
    spoken = _apply_yi_bu("".join(words), list(tones))
    starts = []
    index = 0
    for word in words:
        starts.append(index)
        for position in range(index, index + len(word) - 1):
            _apply_third_tone(spoken, position)
        index += len(word)
    # From the end, so that in a row of short words every other one rises: wo3 hen2 hao3.
    for start in reversed(starts[1:]):
        _apply_third_tone(spoken, start - 1)
    return spoken


def _apply_third_tone(spoken: list[str], index: int) -> None:
    if spoken[index][-1] == "3" and spoken[index + 1][-1] == "3":
        spoken[index] = spoken[index][:-1] + "2"


def _apply_yi_bu(hanzi: str, tones: list[str]) -> list[str]:
    """不 before a fourth tone is bu2; 一 is yi2 or yi4 before a syllable, unless it counts."""
    spoken = list(tones)

    # The last hanzi has nothing behind it that could change it.
    for index, character in enumerate(hanzi[:-1]):
        before = hanzi[index - 1 : index]
        after = hanzi[index + 1]
        between = before and before == after  # 看一看, 是不是
        fourth = tones[index + 1][-1] == "4" or after == "个"
        if character == "不":
            spoken[index] = "bu5" if between else "bu2" if fourth else tones[index]
        elif character == "一" and between and before not in _COUNTING:
            spoken[index] = "yi5"
        elif character == "一" and not _is_numeral(hanzi, index):
            spoken[index] = "yi2" if fourth else "yi4"
    return spoken


def _is_numeral(hanzi: str, index: int) -> bool:
    """Returns whether 一 is in a number or an ordinal and keeps its tone: 十一, 第一, 一月, 一点五; not 一百."""
    before = hanzi[index - 1 : index]
    after = hanzi[index + 1]
    second = hanzi[index + 2 : index + 3]
    if before and before in _COUNTING:
        return before == "第" or after not in "百千万亿"
    return after in _ORDINAL_AFTER or (after == "点" and bool(second) and second in _DIGITS)
