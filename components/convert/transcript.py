"""A transcript on its way to a model: read, and spelled in its alphabet, or a reject that says why not."""

from voxline.components.convert.settings import ConvertSettings
from voxline.data.manifest import Utterance
from voxline.rejects import Reason, Reject
from voxline.text.alphabet import Alphabet
from voxline.text.frontend import FrontendOutput, apply_frontend
from voxline.text.settings import EmptyText, UnsupportedText


def normalize_transcript(
    utterance: Utterance, settings: ConvertSettings, alphabet: Alphabet
) -> FrontendOutput | Reject:
    """The text to learn, and the words that are heard.

    >>> settings = ConvertSettings()
    >>> english = Alphabet.named(settings.alphabet)
    >>> normalize_transcript(Utterance("a", "a.wav", 1.0, "Well, THEN!"), settings, english).symbols
    'well then'
    >>> normalize_transcript(Utterance("a", "a.wav", 1.0, "naïve"), settings, english).detail
    "'ï' (U+00EF LATIN SMALL LETTER I WITH DIAERESIS) in 'naïve' is not in the alphabet"
    """
    if not utterance.text.strip():
        return Reject(utterance.id, Reason.TRANSCRIPT_MISSING, "no transcript")
    try:
        found = apply_frontend(utterance.text, settings.reading)
    except EmptyText as wordless:
        return Reject(utterance.id, Reason.TRANSCRIPT_EMPTY, str(wordless))
    except UnsupportedText as unreadable:
        return Reject(utterance.id, Reason.OUTSIDE_ALPHABET, str(unreadable))
    if not found.spoken.strip():
        return Reject(utterance.id, Reason.TRANSCRIPT_EMPTY, f"nothing is left of {utterance.text!r} once normalised")
    if fault := alphabet.fault(found.symbols):
        return Reject(utterance.id, Reason.OUTSIDE_ALPHABET, fault)
    return found


def check_length(utterance: Utterance, duration: float, settings: ConvertSettings) -> Reject | None:
    """A reject for a recording too short or too long; a duration of 0 is one that ingest could not know."""
    if 0 < duration < settings.min_seconds:
        return Reject(utterance.id, Reason.TOO_SHORT, f"{duration:g} s, at least {settings.min_seconds:g} s are needed")
    if duration > settings.max_seconds:
        return Reject(utterance.id, Reason.TOO_LONG, f"{duration:g} s, at most {settings.max_seconds:g} s are accepted")
    return None


def converted_utterance(utterance: Utterance, found: FrontendOutput, wav: str, name: str, duration: float) -> Utterance:
    """The utterance as a converted manifest has it: `text` is what the model reads, `spoken` what is heard.

    Args:
      wav, name: its path, and its name.
    """
    extra = utterance.extra
    if "spoken" in extra or found.spoken != found.symbols:
        extra = {key: value for key, value in extra.items() if key != "spoken"}
        if found.spoken != found.symbols:
            extra["spoken"] = found.spoken
    # `replace` takes three times as long
    return Utterance(utterance.id, wav, duration, found.symbols, utterance.speaker, utterance.split, name, extra=extra)
