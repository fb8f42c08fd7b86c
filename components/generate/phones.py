"""Pinyin syllables as THCHS-30 writes them in phones: an initial, and a final with the tone.

Wang and Zhang 2015, https://arxiv.org/abs/1512.01882. A syllable without a consonant doubles its vowel for an
initial (ai4 is "aa ai4", yu2 "vv v2", wo3 "uu uo3"); the i of zi is "iy", that of zhi is "ix".
"""

_INITIALS = ("zh", "ch", "sh", *"bpmfdtnlgkhjqxrzcs")
_AFTER_Y = {"ou": "iu", "u": "v", "ue": "ve", "uan": "van", "un": "vn"}
_AFTER_W = {"ei": "ui", "en": "un", "eng": "ueng"}


def phones(syllable: str) -> str:
    """The two phones of a syllable.

    >>> [phones(syllable) for syllable in ("lv4", "shi4", "yang2", "wen2", "jue2", "ang4", "you3")]
    ['l v4', 'sh ix4', 'ii iang2', 'uu un2', 'j ve2', 'aa ang4', 'ii iu3']
    """
    spelt, tone = syllable[:-1], syllable[-1]
    initial, final = _parted(spelt)
    return f"{initial} {final}{tone}"


def _parted(spelt: str) -> tuple[str, str]:
    if spelt[0] == "y":
        rest = spelt[1:]
        if rest in _AFTER_Y and rest != "ou":
            return "vv", _AFTER_Y[rest]
        return "ii", _AFTER_Y.get(rest, rest if rest[0] == "i" else f"i{rest}")
    if spelt[0] == "w":
        rest = spelt[1:]
        return "uu", _AFTER_W.get(rest, rest if rest[0] == "u" else f"u{rest}")
    initial = next((one for one in _INITIALS if spelt.startswith(one)), "")
    if not initial:
        return spelt[0] * 2, spelt
    final = spelt[len(initial) :]
    if final == "i" and initial in ("zh", "ch", "sh", "r"):
        return initial, "ix"
    if final == "i" and initial in ("z", "c", "s"):
        return initial, "iy"
    if final[0] == "u" and initial in ("j", "q", "x"):
        return initial, f"v{final[1:]}"
    return initial, final
