"""LibriSpeech: 1,000 hours of English audiobooks, read by volunteers of LibriVox, 16 kHz FLAC.

By Vassil Panayotov, Guoguo Chen, Daniel Povey and Sanjeev Khudanpur, https://www.openslr.org/12,
CC BY 4.0. Many corpora copy its layout (mini LibriSpeech, MLS' older parts, Voxline's own demo):

    LibriSpeech/SPEAKERS.TXT
    LibriSpeech/dev-clean/1988/24833/1988-24833.trans.txt
    LibriSpeech/dev-clean/1988/24833/1988-24833-0000.flac

The root may be that folder, the one above it, or one split. WAV and other formats may replace FLAC.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from voxline.components.ingest.corpus import AUDIO_EXTENSIONS, Corpus, CorpusEntry, normalized_name, recordings_by_name
from voxline.rejects import Reason, Reject


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every line of a transcript, and rejects every recording that no line names."""
    speakers = _read_speakers(corpus)
    recordings = recordings_by_name(corpus)

    for transcript in corpus.find(".trans.txt"):
        # A line of 1988-24833.trans.txt is an id, a space (a tab, where it went through a table) and the words:
        #   1988-24833-0000 THE TWO STRAY KITTENS GRADUALLY MAKE THEMSELVES AT HOME
        for number, line in corpus.read_lines(str(transcript)):
            id, *texts = line.split(maxsplit=1)
            text = texts[0] if texts else ""
            folder = transcript.parent
            speaker = id.split("-")[0]

            # What is left in the end has no transcript. A recording that is missing is named as the publisher would.
            audio = recordings.pop(normalized_name(folder / id), None)
            yield CorpusEntry(
                id=id,
                audio=(audio or folder / f"{id}{AUDIO_EXTENSIONS[0]}").as_posix(),
                text=text,
                speaker=speaker,
                split=_split(corpus, transcript),
                source=f"{transcript}:{number}",
                extra=speakers.get(speaker, {}),
            )

    for audio in recordings.values():
        detail = f"{audio}: no line of a .trans.txt in its folder names it"
        yield Reject(audio.stem, Reason.TRANSCRIPT_MISSING, detail)


def _split(corpus: Corpus, transcript: PurePosixPath) -> str:
    """The folder above the speaker and the chapter: the root itself, where the root is one split."""
    return (corpus.name, *transcript.parts)[-4:][0]


def _read_speakers(corpus: Corpus) -> dict[str, dict[str, str]]:
    """The columns of SPEAKERS.TXT by speaker; empty where the file is absent."""
    speakers = {}
    for path in corpus.find("speakers.txt"):
        if path.name.upper() != "SPEAKERS.TXT":
            continue
        # Lines that begin with a semicolon are comments; the columns are id, sex, subset, minutes and name:
        #   1988 | F | dev-clean        |  8.07 | Ransom
        for _, line in corpus.read_lines(str(path)):
            columns = [column.strip() for column in line.split("|")]
            if len(columns) >= 5 and not line.lstrip().startswith(";"):
                speakers[columns[0]] = {"sex": columns[1].upper(), "reader": columns[4]}
    return speakers
