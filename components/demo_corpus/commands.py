"""Commands to a house: English, and Mandarin in hanzi and in pinyin.

A template is what somebody wants, by its name; its slots are the details. So all sentences of a template are one
command, and a sentence of test that is not in train is a command that is.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Literal

from voxline.components.demo_corpus.grammar import Grammar
from voxline.components.demo_corpus.mandarin import LEXICON

Language = Literal["english", "mandarin"]


@dataclasses.dataclass(frozen=True)
class Commands:
    """The commands of a language.

    Attributes:
      templates: name → template.
      lexicon: word → syllables, where espeak-ng reads something else than what is written.
    """

    templates: Mapping[str, str]
    slots: Mapping[str, tuple[str, ...]]
    lexicon: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def grammar(self) -> Grammar:
        return Grammar(tuple(self.templates.values()), self.slots)

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """Sentence → the name of its template, of every sentence of the grammar."""
        return {
            sentence: name for name, template in self.templates.items() for sentence in self.grammar.sentences(template)
        }

    def spoken(self, sentence: str) -> str:
        """The text that espeak-ng reads.

        >>> COMMANDS["mandarin"].spoken("打开 车库 的 灯")
        'da3 kai1 che1 ku4 de5 deng1'
        """
        return " ".join(self.lexicon.get(word, word) for word in sentence.split())

    def written(self, sentence: str) -> str:
        """The transcript.

        >>> COMMANDS["mandarin"].written("打开 车库 的 灯")
        '打开车库的灯'
        """
        return "".join(sentence.split()) if self.lexicon else sentence


ENGLISH = Commands(
    {
        "switch": "turn the {room} {device} {switch}",
        "switch_at": "turn {switch} the {room} {device} at {hour}",
        "switch_in": "turn {switch} the {device} in {number} minutes",
        "set_clock_for": "set the {clock} for {number} minutes",
        "set_clock_at": "set the {clock} for {hour} {day}",
        "set_heating": "set the {room} heating to {number} degrees",
        "play_song": "play the {order} song in the {room}",
        "stop_sound": "stop the {room} {sounding}",
        "move": "{move} the {room} {opening}",
        "move_at": "{move} the {opening} in the {room} at {hour}",
        "ask": "what is the {asked} {day}",
        "ask_warmth": "how {feeling} is it in the {room}",
        "call": "call {name} {day} at {hour}",
        "remind_to_call": "remind me to call {name} at {hour}",
        "remind_to_move": "remind me to {move} the {opening} at {hour}",
        "add_to_list": "add {drink} and {food} to the list",
    },
    {
        "switch": ("on", "off"),
        "room": ("kitchen", "bedroom", "bathroom", "garden", "garage"),
        "device": ("lights", "fan", "radio", "heating"),
        "clock": ("alarm", "timer"),
        "sounding": ("alarm", "timer", "radio"),
        "order": ("next", "last"),
        "move": ("open", "close"),
        "opening": ("door", "window"),
        "asked": ("time", "weather"),
        "day": ("today", "tomorrow"),
        "feeling": ("warm", "cold"),
        "name": ("anna", "peter", "mother"),
        "drink": ("milk", "tea"),
        "food": ("bread", "apples"),
        "unit": ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
        "tens": ("twenty", "thirty", "forty"),
        "number": ("{tens} {unit}", "{tens} {unit}", "{tens}", "{hour}"),
        "hour": ("{unit}", "{unit}", "{unit}", "ten", "eleven", "twelve"),
    },
)

_PINYIN = (
    "打开 da3 kai1, 关掉 guan1 diao4, 厨房 chu2 fang2, 卧室 wo4 shi4, 浴室 yu4 shi4, 花园 hua1 yuan2, 车库 che1 ku4, "
    "客厅 ke4 ting1, 灯 deng1, 风扇 feng1 shan4, 电视 dian4 shi4, 暖气 nuan3 qi4, 闹钟 nao4 zhong1, "
    "门 men2, 窗户 chuang1 hu5, 窗帘 chuang1 lian2, 点 dian3, 点半 dian3 ban4, 分钟 fen1 zhong1, 后 hou4, 设 she4, "
    "把 ba3, 调到 tiao2 dao4, 度 du4, 放 fang4, 首 shou3, 歌 ge1, 停止 ting2 zhi3, 音乐 yin1 yue4, "
    "收音机 shou1 yin1 ji1, 怎么样 zen3 me5 yang4, 里面 li3 mian4, 提醒 ti2 xing3, 电话 dian4 hua4, 打 da3, 和 he2, "
    "加到 jia1 dao4, 单子 dan1 zi5, 二十 er4 shi2, 三十 san1 shi2, 四十 si4 shi2, 十五 shi2 wu3, 小美 xiao3 mei3, "
    "开 kai1, 关 guan1, 后天 hou4 tian1, 下 xia4, 上 shang4"
)

MANDARIN = Commands(
    {
        "switch": "{switch} {room} 的 {device}",
        "switch_at": "{day} {hour} {switch} {room} 的 {device}",
        "switch_in": "{number} 分钟 后 {switch} {device}",
        "set_clock_for": "设 {number} 分钟 的 闹钟",
        "set_clock_at": "设 {day} {hour} 的 闹钟",
        "set_heating": "把 {room} 的 暖气 调到 {number} 度",
        "play_song": "在 {room} 放 {order} 首 歌",
        "stop_sound": "停止 {room} 的 {sounding}",
        "move": "把 {room} 的 {opening} {move}",
        "ask_weather": "{city} {day} 天气 怎么样",
        "ask_warmth": "{room} 里面 {feeling} 吗",
        "call": "{day} {hour} 给 {name} 打 电话",
        "remind_to_call": "提醒 我 {hour} 给 {name} 打 电话",
        "remind_to_move": "提醒 我 {hour} 把 {opening} {move}",
        "add_to_list": "把 {drink} 和 {food} 加到 单子 里面",
    },
    {
        "switch": ("打开", "关掉"),
        "room": ("厨房", "卧室", "浴室", "花园", "车库", "客厅"),
        "device": ("灯", "风扇", "电视", "暖气"),
        "sounding": ("音乐", "收音机", "电视"),
        "order": ("上", "下"),
        "move": ("开", "关"),
        "opening": ("门", "窗户", "窗帘"),
        "city": ("北京", "上海", "广州", "南京"),
        "day": ("今天", "明天", "后天"),
        "feeling": ("热", "冷", "暖和"),
        "name": ("妈妈", "老师", "小美"),
        "drink": ("牛奶", "茶", "果汁"),
        "food": ("面包", "苹果", "鸡蛋"),
        "number": ("五", "八", "十", "十五", "二十", "三十", "四十"),
        "hour": ("{unit} 点", "{unit} 点", "{unit} 点半"),
        "unit": ("两", "三", "四", "五", "六", "七", "八", "九", "十"),
    },
    {**LEXICON, **dict(entry.split(" ", 1) for entry in _PINYIN.split(", "))},
)

COMMANDS: dict[Language, Commands] = {"english": ENGLISH, "mandarin": MANDARIN}
