"""Mandarin sentences of everyday words, in hanzi and in pinyin.

The pinyin is that of the dictionary, without tone sandhi. No sentence has 一 or 不, whose tones depend on the next
syllable.
"""

import numpy as np

from voxline.components.demo_corpus.grammar import Grammar, Sentence

TEMPLATES = (
    "{who} {time} 去 {place} {doing}",
    "{time} {who} 在 {place} {doing}",
    "{who} 喜欢 吃 {food}",
    "{who} 的 {thing} 很 {quality}",
    "{who} 想 买 {number} 个 {item}",
    "{place} 离 {place} 很 {far}",
    "请 给 {person} {number} 杯 {drink}",
    "{who} 家 有 {number} 个 {people}",
    "这 件 {colour} 衣服 很 {quality}",
    "{who} 每天 {hour} {doing}",
    "{season} 的 {city} 很 {weather}",
    "你 知道 {who} 在 哪里 吗",
    "{who} 正在 {place} 等 {person}",
    "我 觉得 {who} 非常 {feeling}",
    "{who} 坐 {vehicle} 去 {city}",
    "{time} {city} 的 天气 很 {weather}",
    "{who} 昨天 看见 {number} 只 {animal}",
    "{colour} 的 {thing} 在 {place} 里面",
)

SLOTS = {
    slot: tuple(words.split())
    for slot, words in {
        "who": "我 你 他 我们 老师 学生 妈妈 爸爸 朋友 医生 同学 妹妹 哥哥 孩子 司机",
        "person": "我 他 我们 老师 朋友 医生 妹妹",
        "people": "孩子 学生 朋友 医生 老师",
        "time": "今天 明天 昨天 早上 晚上 现在 下午 周末",
        "hour": "早上 晚上 下午 中午",
        "season": "春天 夏天 秋天 冬天",
        "place": "学校 公园 商店 图书馆 饭店 车站 医院 机场 银行 教室 房间",
        "city": "北京 上海 广州 南京 台湾 香港",
        "doing": "看书 吃饭 喝茶 唱歌 跳舞 学习 工作 打球 写字 跑步 休息 游泳 做饭 画画",
        "food": "米饭 面条 苹果 水果 鸡蛋 面包 饺子 鱼 牛肉 西瓜",
        "drink": "茶 咖啡 啤酒 牛奶 水 果汁",
        "item": "苹果 面包 鸡蛋 杯子 帽子 手机 西瓜",
        "thing": "书 手机 电脑 自行车 汽车 房子 桌子 椅子 帽子 杯子",
        "number": "两 三 四 五 六 七 八 九 十",
        "quality": "好 大 小 新 旧 漂亮 便宜 贵",
        "far": "远 近",
        "colour": "红色 蓝色 绿色 黑色 白色 黄色",
        "weather": "热 冷 好 暖和 凉快",
        "feeling": "高兴 忙 聪明 可爱 累 认真",
        "vehicle": "飞机 火车 地铁 汽车 船",
        "animal": "猫 狗 鸟 兔子 老虎 熊猫",
    }.items()
}

_PINYIN = (
    "我 wo3, 你 ni3, 他 ta1, 我们 wo3 men5, 老师 lao3 shi1, 学生 xue2 sheng5, 妈妈 ma1 ma5, "
    "爸爸 ba4 ba5, 朋友 peng2 you5, 医生 yi1 sheng1, 同学 tong2 xue2, 妹妹 mei4 mei5, 哥哥 ge1 ge5, "
    "孩子 hai2 zi5, 司机 si1 ji1, 今天 jin1 tian1, 明天 ming2 tian1, 昨天 zuo2 tian1, "
    "早上 zao3 shang5, 晚上 wan3 shang5, 现在 xian4 zai4, 下午 xia4 wu3, 中午 zhong1 wu3, "
    "周末 zhou1 mo4, 春天 chun1 tian1, 夏天 xia4 tian1, 秋天 qiu1 tian1, 冬天 dong1 tian1, "
    "学校 xue2 xiao4, 公园 gong1 yuan2, 商店 shang1 dian4, 图书馆 tu2 shu1 guan3, 饭店 fan4 dian4, "
    "车站 che1 zhan4, 医院 yi1 yuan4, 机场 ji1 chang3, 银行 yin2 hang2, 教室 jiao4 shi4, "
    "房间 fang2 jian1, 北京 bei3 jing1, 上海 shang4 hai3, 广州 guang3 zhou1, 南京 nan2 jing1, "
    "台湾 tai2 wan1, 香港 xiang1 gang3, 看书 kan4 shu1, 吃饭 chi1 fan4, 喝茶 he1 cha2, "
    "唱歌 chang4 ge1, 跳舞 tiao4 wu3, 学习 xue2 xi2, 工作 gong1 zuo4, 打球 da3 qiu2, 写字 xie3 zi4, "
    "跑步 pao3 bu4, 休息 xiu1 xi5, 游泳 you2 yong3, 做饭 zuo4 fan4, 画画 hua4 hua4, 米饭 mi3 fan4, "
    "面条 mian4 tiao2, 苹果 ping2 guo3, 水果 shui3 guo3, 鸡蛋 ji1 dan4, 面包 mian4 bao1, "
    "饺子 jiao3 zi5, 鱼 yu2, 牛肉 niu2 rou4, 西瓜 xi1 gua1, 茶 cha2, 咖啡 ka1 fei1, 啤酒 pi2 jiu3, "
    "牛奶 niu2 nai3, 水 shui3, 果汁 guo3 zhi1, 杯子 bei1 zi5, 帽子 mao4 zi5, 手机 shou3 ji1, "
    "书 shu1, 电脑 dian4 nao3, 自行车 zi4 xing2 che1, 汽车 qi4 che1, 房子 fang2 zi5, 桌子 zhuo1 zi5, "
    "椅子 yi3 zi5, 两 liang3, 三 san1, 四 si4, 五 wu3, 六 liu4, 七 qi1, 八 ba1, 九 jiu3, 十 shi2, "
    "好 hao3, 大 da4, 小 xiao3, 新 xin1, 旧 jiu4, 漂亮 piao4 liang5, 便宜 pian2 yi5, 贵 gui4, "
    "远 yuan3, 近 jin4, 红色 hong2 se4, 蓝色 lan2 se4, 绿色 lv4 se4, 黑色 hei1 se4, 白色 bai2 se4, "
    "黄色 huang2 se4, 热 re4, 冷 leng3, 暖和 nuan3 huo5, 凉快 liang2 kuai5, 高兴 gao1 xing4, "
    "忙 mang2, 聪明 cong1 ming5, 可爱 ke3 ai4, 累 lei4, 认真 ren4 zhen1, 飞机 fei1 ji1, "
    "火车 huo3 che1, 地铁 di4 tie3, 船 chuan2, 猫 mao1, 狗 gou3, 鸟 niao3, 兔子 tu4 zi5, "
    "老虎 lao3 hu3, 熊猫 xiong2 mao1, 去 qu4, 在 zai4, 喜欢 xi3 huan5, 吃 chi1, 的 de5, 很 hen3, "
    "想 xiang3, 买 mai3, 个 ge4, 离 li2, 请 qing3, 给 gei3, 杯 bei1, 家 jia1, 有 you3, 这 zhe4, "
    "件 jian4, 衣服 yi1 fu5, 每天 mei3 tian1, 知道 zhi1 dao4, 哪里 na3 li3, 吗 ma5, "
    "正在 zheng4 zai4, 等 deng3, 觉得 jue2 de5, 非常 fei1 chang2, 坐 zuo4, 天气 tian1 qi4, "
    "看见 kan4 jian4, 只 zhi1, 里面 li3 mian4"
)
LEXICON = dict(entry.split(" ", 1) for entry in _PINYIN.split(", "))
"""Every word of the grammar with its syllables: the tone as a digit, 5 the neutral one, v for ü."""

MANDARIN = Grammar(TEMPLATES, SLOTS)


def draw_mandarin(rng: np.random.Generator, count: int, *, long: bool = False) -> list[Sentence]:
    """Draws sentences with spaces between words; some may be equal. A long one is two in a row.

    >>> draw_mandarin(np.random.default_rng(2), 1)[0]
    Sentence(written='请 给 老师 四 杯 茶', normalized='qing3 gei3 lao3 shi1 si4 bei1 cha2')
    """
    sentences = MANDARIN.draw(rng, count * (1 + long))
    if long:
        sentences = [f"{first} {second}" for first, second in zip(sentences[::2], sentences[1::2], strict=True)]
    return [Sentence(sentence, " ".join(LEXICON[word] for word in sentence.split())) for sentence in sentences]


# Pinyin writes y and w for a syllable without an initial; THCHS-30 doubles the vowel there (ii, uu, vv, aa).
_INITIALS = ("zh", "ch", "sh", *"bpmfdtnlgkhjqxrzcs")
_AFTER_Y = {"ou": "iu", "u": "v", "ue": "ve", "uan": "van", "un": "vn"}
_AFTER_W = {"ei": "ui", "en": "un", "eng": "ueng"}


def syllable_phones(syllable: str) -> str:
    """The two phones of a syllable, as THCHS-30 spells them.

    >>> [syllable_phones(syllable) for syllable in ("lv4", "shi4", "yang2", "wen2", "jue2", "ang4", "you3")]
    ['l v4', 'sh ix4', 'ii iang2', 'uu un2', 'j ve2', 'aa ang4', 'ii iu3']
    """
    letters = syllable[:-1]
    tone = syllable[-1]
    initial, final = _split_syllable(letters)
    return f"{initial} {final}{tone}"


def _split_syllable(letters: str) -> tuple[str, str]:
    if letters[0] == "y":
        # After y, "u" means ü (v), and "ou" is what is written "iu" after an initial.
        ending = letters[1:]
        if ending in _AFTER_Y and ending != "ou":
            return "vv", _AFTER_Y[ending]
        return "ii", _AFTER_Y.get(ending, ending if ending[0] == "i" else f"i{ending}")

    if letters[0] == "w":
        ending = letters[1:]
        return "uu", _AFTER_W.get(ending, ending if ending[0] == "u" else f"u{ending}")

    initial = next((initial for initial in _INITIALS if letters.startswith(initial)), "")
    if not initial:
        return letters[0] * 2, letters

    # "i" is another vowel after these initials, and "u" means ü after j, q and x.
    final = letters[len(initial) :]
    if final == "i" and initial in ("zh", "ch", "sh", "r"):
        return initial, "ix"
    if final == "i" and initial in ("z", "c", "s"):
        return initial, "iy"
    if final[0] == "u" and initial in ("j", "q", "x"):
        return initial, f"v{final[1:]}"
    return initial, final
