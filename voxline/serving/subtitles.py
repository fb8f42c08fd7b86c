"""A transcript with times: OpenAI's verbose JSON, SubRip and WebVTT."""

from typing import Any

from voxline.inference.transcript import Transcript

CUE_SECONDS = 5.0
CUE_CHARACTERS = 42
"""Longest cue, as subtitles are usually set."""
CUE_GAP_SECONDS = 1.0
"""A longer pause ends a cue."""


def verbose(transcript: Transcript) -> dict[str, Any]:
    """The transcript in the form of OpenAI's `verbose_json`; times in seconds."""
    segments = [
        {"id": number, "start": round(start, 3), "end": round(end, 3), "text": text}
        for number, (start, end, text) in enumerate(cues(transcript))
    ]
    return {
        "task": "transcribe",
        "duration": round(transcript.seconds, 3),
        "text": transcript.text,
        "confidence": None if transcript.confidence is None else round(transcript.confidence, 4),
        "words": describe_words(transcript),
        "segments": segments,
        "usage": {"type": "duration", "seconds": round(transcript.seconds, 3)},
    }


def describe_words(transcript: Transcript) -> list[dict[str, Any]]:
    """Its words with times in seconds, and confidences."""
    return [
        {
            "word": word.word,
            "start": round(word.start, 3),
            "end": round(word.end, 3),
            "confidence": round(word.confidence, 4),
        }
        for word in transcript.words
    ]


def srt(transcript: Transcript) -> str:
    """SubRip: numbered cues, times as 00:00:01,500."""
    numbered = enumerate(cues(transcript), start=1)
    return "".join(f"{number}\n{_time(a, ',')} --> {_time(b, ',')}\n{text}\n\n" for number, (a, b, text) in numbered)


def vtt(transcript: Transcript) -> str:
    """WebVTT: https://www.w3.org/TR/webvtt1/."""
    parts = (f"{_time(start, '.')} --> {_time(end, '.')}\n{text}\n\n" for start, end, text in cues(transcript))
    return "WEBVTT\n\n" + "".join(parts)


def cues(transcript: Transcript) -> list[tuple[float, float, str]]:
    """Start, end and text of each cue: words, as many as fit into its time and its line."""
    groups: list[tuple[float, float, str]] = []
    place = 0
    for word in transcript.words:
        # Texts in Chinese have no space between their words.
        begin = transcript.text.find(word.word, place)
        space = transcript.text[place:begin] if begin >= 0 else " "
        place = begin + len(word.word) if begin >= 0 else place

        # A word that fits continues the cue before, in time and in width.
        if groups:
            start, end, text = groups[-1]
            longer = f"{text}{space}{word.word}"
            follows = word.start - end <= CUE_GAP_SECONDS and word.end - start <= CUE_SECONDS
            if follows and len(longer) <= CUE_CHARACTERS:
                groups[-1] = start, word.end, longer
                continue
        groups.append((word.start, word.end, word.word))
    return groups


def _time(seconds: float, point: str) -> str:
    """
    >>> _time(3661.5, ",")
    '01:01:01,500'
    """
    milliseconds = round(seconds * 1000)
    minutes, milliseconds_left = divmod(milliseconds, 60_000)
    return (
        f"{minutes // 60:02d}:{minutes % 60:02d}:{milliseconds_left // 1000:02d}{point}{milliseconds_left % 1000:03d}"
    )
