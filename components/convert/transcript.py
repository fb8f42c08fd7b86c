"""A transcript on its way to a recogniser: normalised, and spelled in its alphabet, or a reject that says why not."""

import unicodedata

from components.convert.settings import ConvertSettings
from components.speech.text import Alphabet, normalise
from components.speech.utterances import Reason, Reject, Utterance


def transcript(utterance: Utterance, settings: ConvertSettings, alphabet: Alphabet) -> str | Reject:
    """The text to learn.

    >>> settings = ConvertSettings()
    >>> english = Alphabet.named(settings.alphabet)
    >>> transcript(Utterance("a", "a.wav", 1.0, "Well, THEN!"), settings, english)
    'well then'
    >>> transcript(Utterance("a", "a.wav", 1.0, "naïve"), settings, english).detail
    "'ï' (U+00EF LATIN SMALL LETTER I WITH DIAERESIS) in 'naïve' is not in the alphabet"
    """
    if not utterance.text.strip():
        return Reject(utterance.id, Reason.TRANSCRIPT_MISSING, "no transcript")
    text = normalise(utterance.text) if settings.normalise_text else unicodedata.normalize("NFC", utterance.text)
    if not text:
        return Reject(utterance.id, Reason.TRANSCRIPT_EMPTY, f"nothing is left of {utterance.text!r} once normalised")
    if fault := alphabet.fault(text):
        return Reject(utterance.id, Reason.OUTSIDE_ALPHABET, fault)
    return text
