"""Corrections of transcripts that a person decided on: a file that a corpus' settings name; they survive refreshes.

A line of it:
  {"id": "1988-0001", "was": "turn of the light", "text": "turn off the light"}
  {"id": "1988-0002", "was": "two", "leave_out": true}
`was` is the text of the corpus when the person saw it: where the corpus has another one since, the correction does not
count. Label Studio (https://labelstud.io) reads the tasks that are written here, and its export becomes corrections.
"""

import dataclasses
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from voxline.data.json_codec import encode_json, iter_lines, parse_json
from voxline.errors import WorkError
from voxline.store.files import atomic_write

LABEL_CONFIG = """<View>
  <Audio name="audio" value="$audio"/>
  <Text name="doubt" value="doubt $doubt · hypothesis: $hypothesis"/>
  <TextArea name="transcription" toName="audio" value="$text" editable="true" maxSubmissions="1"/>
  <Choices name="verdict" toName="audio"><Choice value="leave out"/></Choices>
</View>
"""
"""Of the Label Studio project that shows the tasks."""
LEAVE_OUT = "leave out"
_LINE = 'a line is {"id": …, "was": …, "text": …} or {"id": …, "was": …, "leave_out": true}'


@dataclasses.dataclass(frozen=True, slots=True)
class Correction:
    """A correction of one utterance.

    Attributes:
      id: as in ingest's manifest.
      was: the text that was wrong.
      text: the right one; None: the utterance is left out.
    """

    id: str
    was: str
    text: str | None

    def as_line(self) -> dict[str, Any]:
        right: dict[str, Any] = {"leave_out": True} if self.text is None else {"text": self.text}
        return {"id": self.id, "was": self.was, **right}


@dataclasses.dataclass(frozen=True, slots=True)
class DoubtfulText:
    """An utterance whose transcript may be wrong.

    Attributes:
      audio: a path or an address that Label Studio can open.
      hypothesis: what the model transcribed.
      doubt: higher for more.
    """

    id: str
    audio: str
    text: str
    hypothesis: str
    doubt: float


def read_corrections(path: Path) -> dict[str, Correction]:
    """Reads corrections by id; of several for one utterance the last one counts.

    Raises:
      WorkError: the file is absent, or a line is not a correction.
    """
    if not path.is_file():
        raise WorkError(f"{path}: no such file; correct corpus.corrections, or leave it empty")

    # A file may hold several corrections of one utterance: a later line replaces an earlier one.
    corrections = {}
    for number, line in iter_lines(path):
        try:
            values = parse_json(line)
            id = values["id"]
            was = values["was"]
            text = values.get("text")

            # Exactly one of `text` and `leave_out` decides, so that no line can be read in two ways.
            right = values.get("leave_out") is True if text is None else "leave_out" not in values
            if not right or not all(isinstance(value, str) for value in (id, was, text or "")):
                raise ValueError(_LINE)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            # These errors describe Python's objects, not the line; the accepted form says more.
            why = _LINE if isinstance(error, KeyError | TypeError | AttributeError) else error
            raise WorkError(f"{path}:{number}: not a correction: {why}") from None

        # Ingest normalizes its texts to NFC, and `was` is compared with them.
        nfc = [None if value is None else unicodedata.normalize("NFC", value) for value in (id, was, text)]
        corrections[str(nfc[0])] = Correction(str(nfc[0]), str(nfc[1]), nfc[2])
    return corrections


def write_corrections(path: Path, corrections: Iterable[Correction]) -> int:
    """Writes corrections whole or not at all, by id. Returns how many."""
    count = 0
    with atomic_write(path, "w") as file:
        for correction in sorted(corrections, key=lambda item: item.id):
            file.write(encode_json(correction.as_line()) + "\n")
            count += 1
    return count


def merge_corrections(before: Mapping[str, Correction], new: Iterable[Correction]) -> dict[str, Correction]:
    """Corrections with later ones in their place; one of a text that was corrected before replaces both.

    >>> before = {"a": Correction("a", was="to", text="too")}
    >>> merge_corrections(before, [Correction("a", was="too", text="two")])["a"]
    Correction(id='a', was='to', text='two')
    """
    merged = dict(before)
    for correction in new:
        earlier = merged.get(correction.id)

        # A corpus still has the first text, so `was` of the earlier correction is what the next ingest will compare
        # with.
        merged[correction.id] = (
            dataclasses.replace(correction, was=earlier.was)
            if earlier and earlier.text == correction.was
            else correction
        )
    return merged


def label_studio_tasks(texts: Iterable[DoubtfulText]) -> list[dict[str, Any]]:
    """Tasks for Label Studio, with the transcript for a start; `LABEL_CONFIG` shows them."""
    return [
        {
            # `data` comes back unchanged in the export: `_annotation` reads id and text from it.
            "data": dataclasses.asdict(correction),
            "predictions": [{"result": [_region("transcription", "textarea", {"text": [correction.text]})]}],
        }
        for correction in texts
    ]


def _region(name: str, kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"from_name": name, "to_name": "audio", "type": kind, "value": value}


def read_label_studio(path: Path) -> list[Correction]:
    """The corrections in Label Studio's export (JSON): what a person changed, or said to leave out.

    Tasks without an annotation, and texts that stay as they are, give none.

    Raises:
      WorkError: it is not such an export.
    """
    return [Correction(id, was, text or None) for id, was, text in _annotated(path) if text != was]


def read_labels(path: Path) -> dict[str, str | None]:
    """Every text in Label Studio's export that a person looked at, by id, changed or not; None: leave it out.

    Raises:
      WorkError: it is not such an export.
    """
    return {id: text or None for id, _, text in _annotated(path)}


def _annotated(path: Path) -> list[tuple[str, str, str | None]]:
    """Id, text before and after, of each task with an annotation; None: leave it out."""
    try:
        tasks = msgspec.json.decode(path.read_bytes())

        # Tasks without a verdict are dropped here: nobody looked at them.
        return [annotation for task in tasks if (annotation := _annotation(task)) is not None]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise WorkError(f"{path}: not an export of Label Studio ({why}); export the project as JSON") from None


def _annotation(task: Mapping[str, Any]) -> tuple[str, str, str | None] | None:
    # A cancelled annotation is one that its author skipped; it holds no decision.
    annotations = [annotation for annotation in task["annotations"] if not annotation.get("was_cancelled")]
    if not annotations:
        return None

    # Without a region for the text, the person accepted it as it is.
    id = str(task["data"]["id"])
    was = str(task["data"]["text"])
    text = was

    # Several people may have annotated a task; the last annotation counts.
    for region in annotations[-1]["result"]:
        if region["from_name"] == "transcription":
            text = " ".join(unicodedata.normalize("NFC", "".join(region["value"]["text"])).split())
        elif LEAVE_OUT in region["value"].get("choices", ()):
            return id, was, None
    return id, was, text
