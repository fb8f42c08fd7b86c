"""Characters of European text brought down to ASCII: folded accents, plain quotes and dashes, spelled-out signs."""

import re
import unicodedata

_LETTERS = {
    "ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L",
    "đ": "d", "Đ": "D", "ð": "th", "Ð": "Th", "þ": "th", "Þ": "Th", "ı": "i", "ħ": "h", "Ħ": "H",
}  # fmt: skip
_MARKS = {
    **dict.fromkeys("’‘ʼ`´′＇", "'"),
    **dict.fromkeys("\"“”„‟«»‹›″‚", " "),
    **dict.fromkeys("()[]{}", ", "),
    **dict.fromkeys("‐‑", "-"),
    **dict.fromkeys("—―", ", "),
    "…": "...", "−": "-", "•": ", ", "·": " ", "_": " ", "|": ", ", "*": " ",
}  # fmt: skip
_SIGNS = {
    "½": " 1/2 ", "¼": " 1/4 ", "¾": " 3/4 ", "⅓": " 1/3 ", "⅔": " 2/3 ", "⅛": " 1/8 ", "№": " number ",
    "℃": "°C", "℉": "°F", "©": " copyright ", "®": " ", "™": " ",
    "‰": " per mille ", "×": " times ", "÷": " divided by ", "±": " plus or minus ",
    "§": " section ", "≈": " about ",
}  # fmt: skip
_TABLE = str.maketrans({**_LETTERS, **_MARKS, **_SIGNS})
_ACCENT = re.compile("[̀-ͯ]+")
_DASHES = re.compile(r"\s?\s–\s|\s?--+|\s-\s")


def fold(text: str) -> str:
    """Text without accents, ligatures and typographic marks; what has no Latin counterpart stays as it is.

    >>> fold("Café “Łódź” – naïve…")
    'Cafe Lodz, naive...'
    """
    text = unicodedata.normalize("NFC", text).translate(_TABLE)
    # Not the compatibility form of all: ² would be 2, and ° of a temperature would go.
    pieces = (one if one in "²³°–£€¢¥" else unicodedata.normalize("NFKD", one) for one in text)
    text = _ACCENT.sub("", "".join(pieces)).translate(_TABLE)
    return " ".join(_DASHES.sub(", ", text).split())
