"""The normalization of transcripts for ASR, of any language.

What is a letter is decided by the model's alphabet first, and then by the Unicode category of a character
(https://www.unicode.org/reports/tr44/#General_Category_Values), so that no language needs a list of its own marks. No
letter is ever changed into another one, nor dropped: what is neither known nor a mark stays, and becomes a reject that
names it.
"""

import functools
import html
import re
import unicodedata
import urllib.parse
from collections.abc import Collection, Sequence
from typing import Literal

from voxline.text.apostrophes import APOSTROPHES, join_apostrophes, remove_quotes
from voxline.text.lazy_pattern import lazy_pattern

NOISES = (
    "noise", "background noise", "static", "music", "silence", "sil", "pause", "beep", "tone", "click", "applause",
    "laughter", "laugh", "laughs", "laughing", "cough", "coughs", "coughing", "breath", "breathing", "breathes",
    "inhales", "exhales", "sigh", "sighs", "sneeze", "sniff", "throat clearing", "clears throat", "lip smack", "smack",
    "lipsmack", "crosstalk", "cross talk", "nsn", "spn", "vocalized noise", "hum",
)  # fmt: skip
"""Sounds that transcripts name in brackets, in small letters; among them those of Switchboard and Kaldi."""
_MORE_NOISES = frozenset((
    "humming", "crying", "gasp", "gasps", "yawn", "snort", "whistling", "ringing", "phone ringing", "bell", "clapping",
    "cheering", "chuckle", "chuckles", "giggle", "giggles", "groan", "groans", "sniffs", "sneezes", "mouth noise",
    "mic noise", "wind", "footsteps", "typing", "music playing", "no speech", "blank audio",
    "噪音", "噪声", "杂音", "背景音", "背景噪音", "背景音乐", "音乐", "笑", "笑声", "大笑", "咳嗽", "咳嗽声", "掌声",
    "静音", "沉默", "呼吸声", "叹气", "哭声", "喷嚏", "铃声",
    "音楽", "雑音", "ノイズ", "笑い", "笑い声", "拍手", "咳", "無音", "沈黙",
    "geräusch", "rauschen", "musik", "lachen", "lacht", "gelächter", "husten", "hustet", "räuspern",
    "bruit", "musique", "rire", "rires", "toux", "applaudissements", "ruido", "música", "risa", "risas", "tos",
    "aplausos", "шум", "музыка", "смех", "кашель", "аплодисменты",
))  # fmt: skip
"""Sounds that are rarer, or that other recognizers write; removed with `NOISES`, not with a list of one's own."""
_ALSO_WORDS = (
    "static", "music", "silence", "pause", "beep", "tone", "click", "laugh", "breath", "smack", "hum", "humming",
    "crying", "whistling", "ringing", "bell", "clapping", "cheering", "wind", "footsteps", "typing", "no speech",
    "音乐", "铃声", "沉默", "掌声", "音楽", "沈黙",
    "musik", "lachen", "rauschen", "musique", "bruit", "rire", "rires", "ruido",
    "música", "risa", "risas", "шум", "музыка", "смех", "кашель",
)  # fmt: skip
"""Of these, those that are words of a sentence too: "press the button (click) and wait"."""
_NOT_UNDERSTOOD = (
    "unk|unknown|inaudible|unintelligible|indistinct|unclear|incomprehensible|indiscernible|foreign|foreign language|"
    "(?:speaking|speaks) (?:in )?(?:a )?foreign language"
)
_TAG_TIME = r"(?:[ ,@]*[0-9]{1,2}(?::[0-9]{2}){1,2}(?:\.[0-9]+)?)"
"""The time that transcription services write within a tag: [crosstalk 00:12:34]."""
_NOT_UNDERSTOOD_TAG = lazy_pattern(
    # Fisher writes (( )) for speech that nobody understood, others (?).
    rf"[\[<({{]\s*(?:(?:{_NOT_UNDERSTOOD}){_TAG_TIME}?\s*/?|\?+\s*)[\]>)}}]|\(\(\s*\)\)"
    rf"|(?<!\S)(?:/(?:{_NOT_UNDERSTOOD})/|!(?:{_NOT_UNDERSTOOD}))(?!\w)",
    re.IGNORECASE,
)
_MAY_HIDE = lazy_pattern(r"[\[<({/!*_%]|[xX]{3}|[yY]{3}")
"""What each of these has, and few texts: they take ten times as long to look for."""
_SPOKEN_LAUGHING = lazy_pattern(r"\[laughter-([^\]\s]{1,40})\]", re.IGNORECASE)
"""A word that was said while laughing, in Switchboard."""
_TAG = lazy_pattern(
    r"\[[^\]\[]{1,40}\]|<[^<>]{1,40}>|\([^()]{1,40}\)|\{[^{}]{1,40}\}|（[^（）]{1,40}）|【[^【】]{1,40}】"
    r"|\+[^+]{1,40}\+|\*[^*]{1,40}\*|#[^#]{1,40}#|%[^%]{1,40}%"
)
_MARKUP = lazy_pattern(
    r"</?(?:i|b|u|em|strong|span|font|c|v|ruby|rt|lang|(br|p))(?:[ .][^<>]{0,80})?/?>|<[0-9:.]{5,12}>"
    r"|(?:(?<=^)|(?<=[.?!]\s))>{2,3}(?:\s?(?-i:[A-Z][A-Z.' -]{0,30}[A-Z.]):(?=\s[^>]{0,80}?(?-i:[a-z])))?"
    r"(?=\s|[^\W\d_]|$)"
    r"|()\[[0-9]{1,2}(?::[0-9]{2}){1,2}(?:[.,][0-9]{1,3})?\]",
    re.IGNORECASE,
)
"""Of subtitles and pages, changes of speakers (>>, >> JOHN:), and times; what is in a group stands between words."""
_NAMED_MARK = lazy_pattern(r"<(?:comma|period|questionmark|exclamationpoint)>", re.IGNORECASE)
"""Punctuation as GigaSpeech writes it."""
EVERY_TAG = {
    pair: lazy_pattern(f"{re.escape(pair[0])}[^{re.escape(pair[0])}{re.escape(pair[2])}]{{1,200}}{re.escape(pair[2])}")
    for pair in ("[*]", "(*)", "<*>", "{*}", "（*）", "【*】")
}
"""Tags that stand for every string in a pair of brackets."""
_MOST_NESTED = 3
_VARIANT = lazy_pattern(r"(?<=[^\W\d_])_1(?!\w)")
"""Behind a word that is said in another way, in Switchboard: about_1."""
_SMILEY = lazy_pattern(r"(?<!\S)[:;][-']?[DPp](?=[\s.,!?]|$)")
"""Its letter is no word."""
_HESITATION = lazy_pattern(r"(?<![\w%])%(?=(?:[aeou]h+|u[hm]+|h?mm*|hm+|[aeo]r+m*|[ae]h+m*)(?!\w))", re.IGNORECASE)
"""Before a sound such as uh, in corpora of the LDC."""
_SILENCE = lazy_pattern(r"(?<!\S)!([A-Za-z]{2,20}(?:[_-][A-Za-z]{2,20})?)(?!\S)")
"""Sounds as HTK and Kaldi write them: !SIL."""
_BROKEN_WORD = lazy_pattern(
    r"(?:[^\W\d_]|(?<=[^\W\d_])')(?:\[[\w']{1,20}\]|[({][^\W\d_]{1,20}[)}])|(?:\[[\w']{1,20}\]|[({][^\W\d_]{1,20}[)}])-?[^\W\d_]"
    r"|\[[^\W\d_][\w']{0,20}/[^\W\d_][\w']{0,20}\]"
)
"""Letters in brackets within a word: those that were not said (w[hat]-), or that may be (word(s)); notes (word[1]).

Two words of which nobody knows which was said: [it's/its].
"""
_HIDDEN_WORD = lazy_pattern(r"(?<!\S)[*_]{2,}(?!\S)|(?<![\w-])(?:x{3,20}|yyy)(?![\w-])|%hesitation\b", re.IGNORECASE)
_BARE_NAMES = "NSN|SPN|NPS|NOISE|LAUGHTER|LAUGH|COUGH|BREATH|MUSIC|SILENCE|CLICK|EXH|INH|SMACK"
_CODE = lazy_pattern(
    # Sounds without brackets: SIL, NSN, _NOISE_, $NOISE, !EXH.
    rf"(?<!\S)(?:NSN|SPN|SIL(?!\s(?:International|Global|[0-9]))|[$~_!](?:{_BARE_NAMES}|SIL)[~_]?|(?:{_BARE_NAMES}|SIL)_"
    r"|nsn|spn)(?!\S)"
    # CHAT, of children's and patients' speech: &-um, &=laughs, hm@i, [//], +... at the end, and +< at the beginning.
    r"|(?<!\S)&[-~+=][^\W\d_]{1,30}|(?<=[^\W\d_])@(?:[abcdfgiklnopqtuwx]|si|sl|ls|lp|wp|s(?::[a-z]{2,3})?)(?![\w@-]|\.\w)"
    r"|\[(?:::?|=[!?]?|[*+%])\s[^\]]{1,60}\]|\[/{1,3}\]|(?<!\S)\+(?:\.\.\.|/{1,2}[.?]|\.\.\?|\"/?\.)(?!\S)|^\+[<,^](?=\s)"
    # Pauses, as conversations are written: (0.5), (.)
    r"|(?<!\S)\([0-9]?\.[0-9]{1,2}\)(?!\w)"
)
_MAY_HAVE_CODE = lazy_pattern(r"[A-Z]_|[$~_!][A-Z]|NSN|SPN|SIL|nsn|spn|&[-~+=]|@|\[[/:=*+%]|\+|\([0-9]?\.")
_REDACTED = lazy_pattern(
    r"[\[<{]\s*((?:redacted|anonymi[sz]ed|masked|pii|phi|name|first name|last name|person|phone|phone number|"
    r"email|address|ssn|credit card|card number|account number|location|organi[sz]ation|date of birth|dob)s?)"
    r"[ _-]?[0-9]{0,3}\s*[\]>}]",
    re.IGNORECASE,
)
"""Words that were taken out of a text, but not out of its recording."""
_TOKEN = lazy_pattern(r"<\|[^<>|]{1,40}\|>")
"""Of a recognizer such as Whisper."""
_UNKNOWN_TAG = lazy_pattern(r"<[A-Za-z/][^<>]{0,60}>")
Marks = Literal["vowel_signs", "stress_marks"]
"""Signs above and below letters that a text may have now and then."""

_LOW_QUOTE = "‚"
"""Opens what an apostrophe closes."""
_DASHES = "/_～"
"""Between words, as those of the category Pd are."""
_READ_AS_WORDS = "%&@#*\\§¶†‡‰‱٪؉؊※′″⁊\u104c\u104d\u104e\u104f"
"""Of the category of punctuation, but said: "percent", "and" (in Irish too), Burmese particles."""
_GERESH = "\u05f3"
_GERSHAYIM = "\u05f4"
_WITHIN_WORDS = "\u055b\u055c\u055e\u055f\u05f4·"
"""Marks that stand inside words: Armenian ones of stress and question, the Hebrew gershayim, the Catalan middle dot."""
_STRETCHED = "\u0640\u07fa\u180a"
"""Lines within Arabic, N'Ko and Mongolian words."""
_ARABIC_SIGNS = "\u0610-\u061a\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed"
_HEBREW_SIGNS = "\u0591-\u05bd\u05bf-\u05c5\u05c7"
_VOWEL_SIGNS = lazy_pattern(f"[{_ARABIC_SIGNS}{_HEBREW_SIGNS}]")
"""Arabic harakat and Hebrew niqqud with the signs for chanting; not the Arabic madda and hamza, which make letters."""
_STRESS_MARKS = "\u0300\u0301"
_FOLDED = ("<wide>", "<narrow>", "<small>", "<initial>", "<medial>", "<final>", "<isolated>")
"""Forms that differ in looks alone: full and half width, small marks, Arabic letters within and at ends of words."""
_LIGATURES = range(0xFB00, 0xFB07)

_LONE_QUOTES = lazy_pattern(r"'{2,}|(?<![\w'])'+(?![\w'])")
_TURNED_COMMA = "ʻ"
_APOSTROPHE_LETTER = "ʼ"
_TURNED = lazy_pattern(r"(?<=\w)[‘`]")
_UZBEK = lazy_pattern(r"(?<=[oOgG])['’](?=\w)")
_SELECTORS = lazy_pattern("[\u034f\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Marks that choose the glyph of the character before them, as in Japanese names and Mongolian."""
_JOINER = "\u200d"
_NO_JOINER = "\u200c"
_WORD_END = "\u200b"
_JOINED_LETTERS = {
    # The chillus of Malayalam: consonant, virama, joiner.
    "\u0d23\u0d4d\u200d": "\u0d7a", "\u0d28\u0d4d\u200d": "\u0d7b", "\u0d30\u0d4d\u200d": "\u0d7c",
    "\u0d32\u0d4d\u200d": "\u0d7d", "\u0d33\u0d4d\u200d": "\u0d7e", "\u0d15\u0d4d\u200d": "\u0d7f",
    "\u09a4\u09cd\u200d": "\u09ce",  # the Bengali khanda ta
    "\u0930\u094d\u200d": "\u0931\u094d",  # the eyelash ra of Marathi and Nepali
}  # fmt: skip
"""A spelling with a joiner → the letter that it stands for (The Unicode Standard, sections 12.1, 12.2 and 12.9).

Without its joiner each is another word: the Marathi for "valleys" is that for "ocean", the Malayalam for "he" that for
"to him".
"""
_JOINED_LETTER = lazy_pattern("|".join(_JOINED_LETTERS))
_TYPED_APART = (
    (lazy_pattern("\u0e40\u0e40"), "\u0e41"),
    (lazy_pattern("\u0e4d([\u0e48-\u0e4b]?)\u0e32"), "\\1\u0e33"),
    (lazy_pattern("\u0ec0\u0ec0"), "\u0ec1"),
    (lazy_pattern("\u0ecd([\u0ec8-\u0ecb]?)\u0eb2"), "\\1\u0eb3"),
)
"""Thai and Lao vowels that are often typed as two letters that look the same; no word has both side by side."""
_MIDDLE_DOT = lazy_pattern("(?<=[lL])[\u2022\u2027\u2219\u22c5](?=[lL])")
"""A mark that is typed for that of the Catalan l·l."""
_KURDISH_E = "\u06d5"
_KURDISH_E_AS_HEH = "\u0647\u200c"
"""How the Kurdish letter e is typed where a keyboard lacks it; without the mark it is an h."""
_NTA = "\u0d28\u0d4d\u0d31"
_NTA_AS_CHILLU = "\u0d7b\u0d4d\u0d31"
_BENGALI_RYA = lazy_pattern("(?<=[\u09b0\u09f0])[\u200c\u200d](?=\u09cd\u09af)")
_MEANT_JOINER = lazy_pattern(f"({_BENGALI_RYA.pattern}|(?<=[\u1820-\u18aa])\u180e)")
"""In the Bengali ra with ya below it, as in "rank", which else is a ra above a ya; before a Mongolian final vowel."""
_MEANT_FORMATS = lazy_pattern("[\u0600-\u0605\u0890\u0891\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f]")
"""Of the category Cf, but seen, or between a text and its note."""
_ENDS_OF_VERSES = "\u06dd\u08e2"
_WORD_ENDS = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff\uaa00-\uaadf"
"""Scripts of South East Asia and Tibet, which mark the end of a word with a space of no width."""
_SHOWN_WORD_END = lazy_pattern(f"(?<=[{_WORD_ENDS}]){_WORD_END}+|{_WORD_END}+(?=[{_WORD_ENDS}])")
_DIGIT_MARK = lazy_pattern(
    r"((?<=\d)[.,:;/_'’·‧٫٬،\u2010-\u2014-](?=\d)"  # 3.5, 10:30, 1/2, 5–6
    r"|(?<=\d)\s[\u2010-\u2013-]\s(?=\d)|(?<![^\s(\[{'‘“„«$€£¥~])(?:[\u2010-\u2013-]\.?|\.)(?=\d)"  # 5 - 3, .5, -5
    r"|(?<=\d[eE])-(?=\d)|(?<=\d['’′]\d)\"|(?<=\d['’′]\d\d)\")"  # 1e-3, 5'10"
)
"""A mark that a number has a part of its meaning from."""
_HEBREW = "\u05d0-\u05ea"
_QUOTE_AS_GERSHAYIM = lazy_pattern(rf"(?<=[{_HEBREW}])\"(?=[{_HEBREW}])")
_QUOTE_AS_GERESH = lazy_pattern(rf"(?<=[{_HEBREW}])[{APOSTROPHES}{_LOW_QUOTE}]")


def normalize_transcript(
    text: str, letters: str = "", remove_marks: Collection[Marks] = (), *, has_quotes: bool = True
) -> str:
    """Normalizes a transcript: lower case, NFC, plain apostrophes, no punctuation, single spaces.

    Full and half width become the usual one; invisible characters vanish; quotes made of apostrophes are quotes.

    Args:
      letters: of the model's alphabet: its marks stay, its apostrophe is used, its joiners are kept, and if it has a
        dotless i, capitals become small ones as in Turkish and Azeri. If it has digits, the marks of numbers stay
        (3.5, -5), for a reject where it lacks them. Empty: not known.
      remove_marks: signs that are removed, unless the alphabet has them.
      has_quotes: False: an apostrophe where a word begins or ends is a letter, and no quote.

    >>> normalize_transcript("  Mister  O’Neill’s — “FIRST-rate” café. ")
    "mister o'neill's first rate café"
    >>> normalize_transcript("IŞIK, İyi!", letters=" abcçdefgğhıijklmnoöprsştuüvyz")
    'ışık iyi'
    >>> normalize_transcript("It is -3.5, no?", letters=" 0123456789inost"), normalize_transcript("അവന്\\u200d")
    ('it is -3.5 no', 'അവൻ')
    >>> normalize_transcript("За́мок。", remove_marks=["stress_marks"]), normalize_transcript("'wait', ＡＢＣ")
    ('замок', 'wait abc')
    """
    rules = _rules(letters)
    if text.isascii() and text.replace(" ", "").isalpha():  # there is no mark to look for
        return unicodedata.normalize("NFC", " ".join(rules.lower(text).split()))
    text = join_apostrophes(text)
    if not text.isascii():  # most English is
        # Folded letters may be composed with the marks behind them, such as ｶ with ﾞ.
        text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).translate(_WIDTHS))
        text = _QUOTE_AS_GERESH.sub(_GERESH, _QUOTE_AS_GERSHAYIM.sub(_GERSHAYIM, text))
        text = rules.joined(spell_joined_letters(_MIDDLE_DOT.sub("\u00b7", text)))
    if remove_marks:
        text = _without_marks(text, letters, remove_marks)

    # Quotes before the punctuation, which may stand between a word and its quote.
    text = rules.lower(rules.turned_commas(text)).translate(rules.apostrophes)
    if "'" in text:
        text = _LONE_QUOTES.sub(" ", remove_quotes(text) if has_quotes else text)
    text = rules.without_punctuation(text)
    if "'" in text:  # once more, beside what marks have become
        text = _LONE_QUOTES.sub(" ", remove_quotes(text) if has_quotes else text)

    # Marks that are gone may have stood between two signs of one letter.
    if not text.isascii():
        text = _join_signs(text)

    # Lower case may decompose a letter, hence NFC a second time.
    return unicodedata.normalize("NFC", " ".join(text.split()))


def _join_signs(text: str) -> str:
    for typed, letter in _TYPED_APART:
        text = typed.sub(letter, text)
    return text


def spell_joined_letters(text: str) -> str:
    """Writes what is spelled with a joiner, or as two signs, as the letter that it stands for: both are one text.

    >>> spell_joined_letters("হঠাত্\\u200d") == "হঠাৎ", spell_joined_letters("\\u0e40\\u0e40ม่") == "แม่"
    (True, True)
    """
    if _JOINER in text:
        text = _JOINED_LETTER.sub(lambda letter: _JOINED_LETTERS[letter[0]], text)
    return _join_signs(text).replace(_NTA_AS_CHILLU, _NTA)


def replace_tags(text: str, tags: Sequence[str], symbol: str) -> str:
    """Replaces sounds in brackets, and keeps the brackets of speech that nobody understood.

    Such speech has words that the text lacks: their brackets, which become a reject, tell of it. In round brackets
    within a sentence a word of `_ALSO_WORDS` is one, unless `tags` are a list of one's own.

    Args:
      tags: in small letters, with spaces where a text may have hyphens or underscores too; one of `EVERY_TAG` stands
        for every string in its brackets, beside the others, or the usual ones where there are no others.
      symbol: that stands for a sound; empty: it is removed.

    >>> replace_tags("(Laughter) close the [background_noise] door [sic]", ["laughter", "background noise"], "")
    '  close the   door [sic]'
    >>> replace_tags("[door slams] so (laughs) what (it seems)", ["[*]"], "")
    '  so   what (it seems)'
    """
    if "_1" in text:
        text = _VARIANT.sub("", text)
    if "%" in text:
        text = _HESITATION.sub("", text)
    if ":" in text or ";" in text:
        text = _SMILEY.sub("", text)
    if not any(bracket in text for bracket in "[<({（【+*#%!>"):
        return text
    text = _NAMED_MARK.sub(" ", _MARKUP.sub(lambda tag: "" if tag[1] is None and tag[2] is None else " ", text))
    names = [tag for tag in tags if tag not in EVERY_TAG]
    if len(names) < len(tags):
        for pair in EVERY_TAG.keys() & set(tags):
            for _ in range(_MOST_NESTED):
                text = EVERY_TAG[pair].sub(f" {symbol} ", text)
        tags = names or NOISES
    is_usual = tuple(tags) == NOISES

    text = _SPOKEN_LAUGHING.sub(r"\1", text)

    def replace(tag: re.Match[str]) -> str:
        name = re.sub(r"[\s_-]+", " ", re.sub(f"{_TAG_TIME}$", "", tag[0][1:-1].strip(" /*.")).lower())
        if is_usual and name in _ALSO_WORDS and tag[0][0] in "(（":
            before = text[: tag.start()].rstrip()[-1:]
            after = text[tag.end() :].lstrip()[:1]
            if (before.isalnum() or before == ",") and after.isalnum():
                return tag[0]
        return replace_name(tag, name)

    def replace_name(tag: re.Match[str], name: str) -> str:
        name = re.sub("[_-]", " ", name).lower()
        is_sound = name in tags or (is_usual and name in _MORE_NOISES)
        return f" {symbol} " if is_sound else tag[0]

    text = _SILENCE.sub(lambda tag: replace_name(tag, tag[1]), text)
    return _TAG.sub(replace, text)


def not_understood(text: str) -> str:
    """The first tag of speech that nobody understood; empty if there is none.

    >>> not_understood("open the <unk> door"), not_understood("/unclear/ xxx"), not_understood("an unknown door (soon)")
    ('<unk>', '/unclear/', '')
    """
    if not _MAY_HIDE.search(text):
        return ""
    tag = _NOT_UNDERSTOOD_TAG.search(text) or _HIDDEN_WORD.search(text)
    return tag[0] if tag else ""


def transcription_code(text: str) -> str:
    """The first mark of a transcriber's convention that is no word and is in no brackets; empty if there is none.

    >>> transcription_code("go on SIL"), transcription_code("&-um go"), transcription_code("go on +...")
    ('SIL', '&-um', '+...')
    >>> transcription_code("go (0.5) on"), transcription_code("hm@i"), transcription_code("R&D at ann@x.com, SILK, A+")
    ('(0.5)', '@i', '')
    """
    if not _MAY_HAVE_CODE.search(text):
        return ""
    code = _CODE.search(text)
    return code[0] if code else ""


def redacted(text: str, tags: Collection[str]) -> str:
    """The first tag of words that were taken out, or token of a recognizer; empty if there is none.

    Args:
      tags: of a list of one's own, which name no such words; those of `EVERY_TAG` are removed with what is in them.

    >>> redacted("my name is [NAME_1]", ()), redacted("<|en|> hi", ()), redacted("[name]", ["name"])
    ('[NAME_1]', '<|en|>', '')
    >>> redacted("[name] of <name>", ["[*]"])
    '<name>'
    """
    if not any(bracket in text for bracket in "[<{"):
        return ""
    # A list of one's own may have a sound of such a name.
    for tag in _REDACTED.finditer(text):
        if tag[1].lower() not in tags and f"{tag[0][0]}*{tag[0][-1]}" not in tags:
            return tag[0]
    token = _TOKEN.search(text)
    return token[0] if token else ""


def broken_word(text: str) -> str:
    """The first piece of a word with letters in brackets; empty if there is none. Tags of sounds are none.

    >>> broken_word("a w[hat]- did"), broken_word("the word(s)"), broken_word("说(笑)话 [sic] f (x)")
    ('w[hat]', 'd(s)', '')
    """
    if not any(bracket in text for bracket in "[({"):
        return ""
    # Scripts without spaces have brackets beside their words.
    piece = next((piece for piece in _BROKEN_WORD.finditer(text) if _has_case(piece[0])), None)
    return piece[0] if piece else ""


def _has_case(text: str) -> bool:
    return text.lower() != text.upper()


def unknown_tag(text: str) -> str:
    """The first tag in angle brackets that nothing names; empty if there is none.

    >>> unknown_tag("press <enter> now"), unknown_tag("3 < 4 and 5 > 2")
    ('<enter>', '')
    """
    tag = _UNKNOWN_TAG.search(text)
    return tag[0] if tag else ""


_ENTITY = lazy_pattern(
    r"&(?:#[0-9]{1,6}|#[xX][0-9A-Fa-f]{1,5}|[A-Za-z][A-Za-z0-9]{1,30});|&(?:amp|nbsp|quot|apos|#39)\b"
)
_PERCENT_CODES = lazy_pattern(
    r"(?<=[^\W\d_])%(?:2[0-9A-F]|3[ABDF])(?=[^\W\d_])|(?<=[^\W\d_])(?:%[C-E][0-9A-F](?:%[89AB][0-9A-F]){1,2})+",
    re.IGNORECASE,
)
_SECOND_BYTES = "".join(bytes([code]).decode("cp1252", "ignore") or chr(code) for code in range(0x80, 0xC0))
"""What Windows-1252 shows for the second and further bytes of a character in UTF-8."""
_ALSO_BEHIND_LETTERS = frozenset("…‘’“”•–— ¡«»¿‚„‹›\u00a0ŠŽŒšžœŸƒ")
"""Of these, those that stand behind letters with accents in good texts: «\u00a0là\u00a0», CAFÉ…, and letters."""
_ANY_BEHIND = re.escape(_SECOND_BYTES)
_SIGN_BEHIND = re.escape("".join(sign for sign in _SECOND_BYTES if sign not in _ALSO_BEHIND_LETTERS))
_TWICE_ENCODED = lazy_pattern(
    # Two bytes, of which the second is no usual mark, or stands within a word.
    rf"[ÂÃ][{_SIGN_BEHIND}]|[ÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞß](?![ªº])[{_SIGN_BEHIND}]|(?<=[a-z0-9])[ÂÃ][{_ANY_BEHIND}]"
    rf"|[ÂÃ][{_ANY_BEHIND}](?=[a-z])"
    # Three and four bytes.
    rf"|[à-ï](?:[{_SIGN_BEHIND}][{_ANY_BEHIND}]|[{_ANY_BEHIND}][{_SIGN_BEHIND}])|ð[{_ANY_BEHIND}]{{3}}"
    # The same in small letters; Hebrew, whose letters all begin with the same; and Cyrillic in Windows-1251.
    rf"|[ãâ][{_SIGN_BEHIND}]|(?:×[{_ANY_BEHIND}]){{2}}"
    r"|(?:[РС][\u0080-\u00bf\u0401-\u040f\u0451-\u045f\u0410-\u044f\u0490\u0491\u2013-\u203a€№™]){4}"
)
"""UTF-8 that was read in another encoding and written again."""


_LINK = lazy_pattern(r"!?\[([^\[\]]{1,200})\]\((?:https?://|www\.|mailto:|/)[^()\s]{0,500}\)")
"""Of Markdown, whose address is not said."""
_LOST_LETTER = lazy_pattern(
    "(?<![A-Za-z\u00c0-\u024f/=&.])([A-Za-z\u00c0-\u024f]++)(\\?{1,3})([a-z\u00df-\u00ff]++)(?!=)"
)
"""Not within an address: youtube.com/watch?v=abc."""
_BESIDE_QUESTIONS = frozenset(
    """
    a are did do he her him how i is it me no now ok okay right she so that the there they this to us we well what when
    where who why yeah yes you
    """.split()  # noqa: SIM905 - a table in lines
)
"""Words before or behind a question mark that lacks its space: what?no way."""
_LOST_APOSTROPHE = lazy_pattern("s|t|d|m|re|ve|ll")


def decode_entities(text: str) -> str:
    """A text with the characters that entities of HTML, also if written twice, and codes of URLs stand for.

    Of links of Markdown, the text stays.

    >>> decode_entities("don&amp;#39;t, Q&A; AT&amp;T")
    "don't, Q&A; AT&T"
    >>> decode_entities("hello%20world, 50%20"), decode_entities("caf%C3%A9")
    ('hello world, 50%20', 'café')
    >>> decode_entities("see [our page](https://a.com/b) and (this)")
    'see our page and (this)'
    """
    for _ in range(_MOST_NESTED):
        if "&" not in text:
            break
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    if "](" in text:
        text = _LINK.sub(r"\1", text)
    return _PERCENT_CODES.sub(lambda code: urllib.parse.unquote(code[0]), text) if "%" in text else text


def lost_letter(text: str) -> str:
    """The first word in which a question mark stands for a letter that an encoding lacked; empty if there is none.

    >>> lost_letter("Gr??e aus K?ln"), lost_letter("Wie? so"), lost_letter("what?no way, I don?t")
    ('Gr??e', '', 'don?t')
    """
    for word in _LOST_LETTER.finditer(text) if "?" in text else ():
        sides = {word[1].lower(), word[3]}
        is_question = (
            text.isascii()
            and word[2] == "?"
            and sides & _BESIDE_QUESTIONS
            # "n?he" and "I?m" lack a letter or an apostrophe.
            and re.search("[aeiouy]", word[1], re.IGNORECASE)
            and not _LOST_APOSTROPHE.fullmatch(word[3])
        )
        if not is_question:
            return word[0]
    return ""


def twice_encoded(text: str) -> str:
    """The first piece of a text that was read in another encoding than it was written in; empty if there is none.

    >>> twice_encoded("I donâ€™t"), twice_encoded("cafÃ©"), twice_encoded("«\u00a0voilà\u00a0», CAFÉ… 2×½")
    ('â€™', 'Ã©', '')
    """
    if text.isascii():
        return ""
    piece = _TWICE_ENCODED.search(text)
    return piece[0] if piece else ""


class _Widths(dict[int, str]):
    """The usual form of a character; learned when it is first met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.decomposition(character).partition(" ")[0]
        same = kind not in _FOLDED and code not in _LIGATURES
        self[code] = character if same or character == "～" else unicodedata.normalize("NFKC", character)
        return self[code]


_WIDTHS = _Widths()


class _Rules(dict[int, str]):
    """Replacements of characters beside an alphabet; each is learned when it is first met."""

    def __init__(self, letters: str) -> None:
        self._letters = frozenset(letters) - {" "}
        self._is_known = bool(letters)
        self._turkic = "ı" in self._letters

        # An alphabet of capitals alone, as Cherokee is written.
        self._capitals = {
            ord(letter.lower()): letter
            for letter in self._letters
            if len(letter.lower()) == 1 and letter.lower() not in self._letters
        }

        # An alphabet of before Unicode 5.1 spells these letters with joiners.
        self._as_joined = {
            letter: spelling
            for spelling, letter in _JOINED_LETTERS.items()
            if _JOINER in self._letters and letter[0] not in self._letters
        }
        self._has_digits = any(letter.isdigit() for letter in self._letters)

        # Where an alphabet has one apostrophe, that one is meant by each; where it has more, each is its own letter.
        # A modifier letter of the alphabet, as in Navajo or Hawaiian, is no quote where a word begins or ends either.
        own = [mark for mark in APOSTROPHES if mark in self._letters]
        self._apostrophe = own[0] if own else "'"
        kept = [mark for mark in own if mark != own[0] or unicodedata.category(mark) == "Lm"]
        others = [mark for mark in APOSTROPHES if mark not in kept]
        self.apostrophes = str.maketrans(dict.fromkeys([*others, _LOW_QUOTE], "'"))

    def turned_commas(self, text: str) -> str:
        """The text with the letter ʻ, where the alphabet has it, for the quotes that are typed for it within words."""
        if _TURNED_COMMA not in self._letters:
            return text
        text = _TURNED.sub(_TURNED_COMMA, text)
        # Uzbek has both: oʻ and gʻ, and the ʼ of maʼno.
        return _UZBEK.sub(_TURNED_COMMA, text) if _APOSTROPHE_LETTER in self._letters else text

    def joined(self, text: str) -> str:
        """The text with the letters that joiners make, and with a space for each end of a word that has no width."""
        for letter, spelling in self._as_joined.items():
            text = text.replace(letter, spelling)
        if _KURDISH_E in self._letters:
            text = text.replace(_KURDISH_E_AS_HEH, _KURDISH_E)
        text = _BENGALI_RYA.sub(_JOINER, text)
        if _WORD_END in self._letters or _WORD_END not in text:
            return text
        # Not before a vowel sign or the like, which a space would part from its letter.
        return _SHOWN_WORD_END.sub(
            lambda end: "" if unicodedata.category(text[end.end() : end.end() + 1] or " ")[0] == "M" else " ", text
        )

    def without_punctuation(self, text: str) -> str:
        """The text without marks and invisible characters; those of numbers stay where the alphabet has digits."""
        # The odd places have what is kept.
        parts = [text] if text.isascii() else _MEANT_JOINER.split(text)
        if self._has_digits:
            parts = [
                piece
                for place, part in enumerate(parts)
                for piece in ([part] if place % 2 else _DIGIT_MARK.split(self._visible(part)))
            ]
        return "".join(part if place % 2 else part.translate(self) for place, part in enumerate(parts))

    def _visible(self, text: str) -> str:
        """The text without what is invisible and removed, such as a soft hyphen between a digit and its mark."""
        if text.isascii():
            return text
        return "".join(mark for mark in text if self[ord(mark)] or unicodedata.category(mark) != "Cf")

    def lower(self, text: str) -> str:
        """Lower case; İ has one letter elsewhere too, and not an i with a dot above it."""
        if self._turkic:
            text = text.replace("I", "ı")
        return text.replace("İ", "i").lower().translate(self._capitals)

    def __missing__(self, code: int) -> str:
        self[code] = self._replacement(chr(code))
        return self[code]

    def _replacement(self, character: str) -> str:
        category = unicodedata.category(character)
        if character == "'":
            # A Turkish or Azeri name has one before its ending.
            return "" if self._turkic and "'" not in self._letters else self._apostrophe
        if character == _GERSHAYIM and '"' in self._letters:
            return '"'
        if character == _GERESH and character not in self._letters:
            return self._apostrophe if self._apostrophe in self._letters or not self._is_known else ""
        if character in self._letters or character in _READ_AS_WORDS:
            return character
        if character in _DASHES or character in _ENDS_OF_VERSES or category in ("Pd", "Zs", "Zl", "Zp"):
            return " "
        if _MEANT_FORMATS.match(character):
            return character
        # Formats, such as a soft hyphen, a mark of direction or a joiner; selectors of a glyph; a stretched line.
        is_selector = _SELECTORS.match(character)
        if category == "Cf" or is_selector or character in _STRETCHED or character in _WITHIN_WORDS:
            return ""
        return " " if category.startswith("P") else character


@functools.lru_cache(maxsize=64)
def _rules(letters: str) -> _Rules:
    return _Rules(letters)


def _without_marks(text: str, letters: str, remove_marks: Collection[Marks]) -> str:
    """A text without some signs, apart from those that the alphabet has, also as a part of a letter."""
    if "vowel_signs" in remove_marks:
        text = _VOWEL_SIGNS.sub(lambda sign: sign[0] if sign[0] in letters else "", text)
    if "stress_marks" in remove_marks:
        text = "".join(_unstressed(character, letters) for character in text)
    return text


def _unstressed(character: str, letters: str) -> str:
    """A letter without an acute or grave accent, unless the alphabet has the letter with it."""
    if character in _STRESS_MARKS:
        return character if character in letters else ""
    if not letters or character.lower() in letters:
        return character
    decomposed = unicodedata.normalize("NFD", character)
    plain = "".join(mark for mark in decomposed if mark not in _STRESS_MARKS)
    return unicodedata.normalize("NFC", plain)
