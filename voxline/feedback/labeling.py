"""Captured clips that are most worth a label, out to a person and back as a corpus.

A selection is a folder for a person: `manifest.jsonl`, whose texts are what was heard, `audio/`, and tasks for Label
Studio. Its labels become a corpus folder, `manifest.jsonl` and `audio/`, in the format `manifest` of ingest. Lines of
either keep when the clip expires and what its caller agreed to; see `captures.expire_recordings`.
"""

import contextlib
import dataclasses
import json
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.data.corrections import LABEL_CONFIG, DoubtfulText, label_studio_tasks, read_labels
from voxline.data.json_codec import iter_lines, parse_json
from voxline.data.manifest import MANIFEST_FILE, ManifestEncoder, Utterance, read_manifest, write_manifest
from voxline.errors import PreconditionError, SettingsError, WorkError
from voxline.feedback.captures import (
    AUDIO_FOLDER,
    AUDIO_SUFFIX,
    ID_PREFIX,
    NAME,
    TASKS_JSON,
    CapturedClip,
    CaptureStore,
    changing,
    today,
)
from voxline.feedback.watch import statistics_of_clips
from voxline.report.page import plural
from voxline.store.files import atomic_write, write_json, write_text
from voxline.store.hashing import hash_value
from voxline.store.objects import open_store

TASKS_XML = "label-studio.xml"
_DOUBT_FLOOR = 0.05
_NOT_CHOSEN_BY = ("empty", "confidence")


def select_clips(
    clips: Sequence[CapturedClip], reference: Mapping[str, Sequence[float]], count: int, per_speaker: int = 10
) -> list[CapturedClip]:
    """The clips that are most worth a label: doubted, unlike the test split, and unlike each other.

    One after the other the clip with the highest doubt times distance is taken. The distance is to the nearest test
    utterance or clip that was taken before, in units of the test split's deviations, so that a hundred copies of one
    doubtful clip count once (farthest-first traversal, Gonzalez 1985).

    Args:
      clips: those without speech are left out.
      reference: statistics of the test split.
      count: clips to take.
      per_speaker: most clips of one pseudonym.
    """
    clips = [clip for clip in clips if not clip.note]
    if not clips:
        return []

    # [clips, statistics] and [test utterances, statistics]
    points, trained = _standardize(statistics_of_clips(clips), reference)
    doubt = np.array([1.0 - (clip.confidence or 0.0) for clip in clips]) + _DOUBT_FLOOR

    # [clips] to the nearest test utterance, in blocks of it
    distance = np.full(len(clips), np.inf)
    rows = max(4_000_000 // points.size, 1)  # 32 MB at a time
    for start in range(0, len(trained), rows):
        part = trained[start : start + rows]
        distance = np.minimum(distance, np.sqrt(((points[:, None] - part[None]) ** 2).mean(axis=2)).min(axis=1))

    # A clip equal to a test utterance keeps a small chance.
    distance += 1e-3

    selected: list[int] = []
    taken: Counter[str] = Counter()
    open_ = np.ones(len(clips), bool)

    # Gonzalez' farthest-first traversal, weighted by doubt.
    while open_.any() and len(selected) < count:
        best = int(np.argmax(np.where(open_, doubt * distance, -1.0)))
        selected.append(best)
        open_[best] = False
        # One caller must not fill the selection.
        taken[clips[best].person] += 1
        if taken[clips[best].person] >= per_speaker:
            open_ &= np.array([clip.person != clips[best].person for clip in clips])

        # Distances only shrink, so each step looks at the new clip alone.
        distance = np.minimum(distance, np.sqrt(((points - points[best]) ** 2).mean(axis=1)) + 1e-3)
    return [clips[index] for index in selected]


def _standardize(
    new: Mapping[str, Sequence[float]], reference: Mapping[str, Sequence[float]]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    names = [name for name in new if name in reference and name not in _NOT_CHOSEN_BY]
    if not names:
        return np.zeros((len(next(iter(new.values()))), 1)), np.zeros((1, 1))

    # Deviations of the test split; one that hardly varies must not dominate.
    trained = np.array([reference[name] for name in names], float).T
    points = np.array([new[name] for name in names], float).T
    deviation = np.maximum(trained.std(axis=0), 1e-3)
    return np.clip((points - trained.mean(axis=0)) / deviation, -10, 10), (trained - trained.mean(axis=0)) / deviation


def write_selection(store: CaptureStore, clips: Sequence[CapturedClip], folder: Path) -> Path:
    """Writes clips for a person to label; returns the manifest. Earlier files of the folder are replaced.

    Raises:
      SettingsError: the folder has a manifest that is of no selection.
      WorkError: a clip has expired meanwhile.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with changing(open_store(folder)):  # a purge or an expiry finds all of it, or nothing
        return _write_selection(store, clips, folder)


def _write_selection(store: CaptureStore, clips: Sequence[CapturedClip], folder: Path) -> Path:
    if (folder / MANIFEST_FILE).exists() and not (folder / TASKS_XML).exists() and read_manifest(folder):
        raise SettingsError(f"{folder}: it holds another {MANIFEST_FILE}, and a selection would replace it")

    _prepare(folder)
    (folder / TASKS_JSON).unlink(missing_ok=True)  # no tasks without the lines by which they expire
    lines = []
    tasks = []

    for clip in clips:
        audio = folder / AUDIO_FOLDER / f"{clip.id}{AUDIO_SUFFIX}"
        with atomic_write(audio) as file:
            file.write(store.audio(clip))

        doubt = round(1 - (clip.confidence or 0.0), 4)
        extra = {"hypothesis": clip.text, "doubt": doubt, "captured": clip.at, "expires": clip.expires}
        extra |= {"consent": clip.consent, "model": f"{clip.model}@{clip.version}"}
        lines.append(
            Utterance(clip.id, str(audio.absolute()), clip.seconds, clip.text, clip.person, "train", extra=extra)
        )
        tasks.append(DoubtfulText(clip.id, str(audio.absolute()), clip.text, clip.text, doubt))

    write_text(folder / TASKS_XML, LABEL_CONFIG)  # first: it says that the manifest is of a selection
    write_manifest(folder / MANIFEST_FILE, lines)

    selected = {task.id for task in tasks}
    for audio in (folder / AUDIO_FOLDER).glob(f"{ID_PREFIX}*{AUDIO_SUFFIX}"):
        if audio.stem not in selected:  # of an earlier selection: no line says when it expires
            audio.unlink(missing_ok=True)
    write_json(folder / TASKS_JSON, label_studio_tasks(tasks))
    return folder / MANIFEST_FILE


def _prepare(folder: Path) -> None:
    """Makes a folder of clips that can be expired from the start, should its first writer be killed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / AUDIO_FOLDER).mkdir(exist_ok=True)
    if not (folder / MANIFEST_FILE).exists():
        write_manifest(folder / MANIFEST_FILE, [])


@dataclasses.dataclass(frozen=True)
class LabeledCounts:
    """Counts of the labels that were collected.

    Attributes:
      labeled: clips that the corpus has from them.
      corrected: of these, those whose text is another one than what was heard.
      left_out: clips that a person left out, or in which nothing is said.
      expired: clips whose time was over, or of which the selection has nothing any more.
      total: clips in the corpus now.
    """

    labeled: int
    corrected: int
    left_out: int
    expired: int
    total: int


def collect_labels(
    labels: Path, selection: Path, corpus: Path, *, test_share: float = 0.2, dev_share: float = 0.1
) -> LabeledCounts:
    """Adds labeled clips to a corpus folder; a later label of a clip replaces an earlier one.

    Args:
      labels: JSON that Label Studio exported, or a manifest whose texts a person corrected.
      selection: the folder that was labeled.
      corpus: is made if it does not exist.
      test_share, dev_share: of the speakers, by hash; a speaker whom the corpus has stays in the split.

    Raises:
      SettingsError: a share is out of range, or a folder is not a selection.
      WorkError: labels are damaged, or of clips that the selection does not have.
    """
    if min(test_share, dev_share) < 0 or test_share + dev_share > 1:
        raise SettingsError(
            f"--test-share {test_share:g}, --dev-share {dev_share:g}: 0 or more, and 1 at most together"
        )
    if not (selection / MANIFEST_FILE).is_file():
        raise SettingsError(f"{selection}: no {MANIFEST_FILE} here; give the folder that captures select wrote")
    if selection.resolve() == corpus.resolve():
        raise SettingsError(
            f"{corpus}: this is the selection, whose other texts are what was heard; give the corpus another folder"
        )
    with contextlib.ExitStack() as locks:
        return _collect(labels, selection, corpus, test_share, dev_share, locks)


def _collect(
    labels: Path, selection: Path, corpus: Path, test_share: float, dev_share: float, locks: contextlib.ExitStack
) -> LabeledCounts:
    source = open_store(selection)
    target = open_store(corpus)

    # Always the lock of the selection first, then that of the corpus.
    locks.enter_context(changing(source))
    was = source.stat(MANIFEST_FILE)
    utterances = {utterance.id: utterance for utterance in read_manifest(selection / MANIFEST_FILE)}

    # Only captured clips have an expiry: others would be deleted by none.
    captured = {
        id
        for id, utterance in utterances.items()
        if NAME.fullmatch(id) and {"expires", "consent"} <= utterance.extra.keys()
    }
    if strange := sorted(utterances.keys() - captured):
        raise WorkError(f"{selection}: {strange[0]!r} was not captured; give the folder that captures select wrote")

    labels_by_id = _read_labels(labels)
    unknown = sorted(labels_by_id.keys() - utterances.keys())
    if unknown and len(unknown) == len(labels_by_id):
        clips = plural(len(unknown), "clip")
        raise WorkError(f"{labels}: {clips} not in {selection}, such as {unknown[0]}; give the folder that was labeled")

    manifest = corpus / MANIFEST_FILE
    _prepare(corpus)
    locks.enter_context(changing(target))
    before = target.stat(MANIFEST_FILE)
    lines = {utterance.id: utterance for utterance in read_manifest(manifest)}

    # A speaker stays in the split that the corpus has for them.
    splits = {utterance.speaker: utterance.split for utterance in lines.values()}
    added: list[Path] = []
    counts: Counter[str] = Counter(expired=len(unknown))

    expired: list[Path] = []
    for utterance, text in ((utterances[id], text) for id, text in labels_by_id.items() if id in utterances):
        id = utterance.id
        audio = corpus / AUDIO_FOLDER / f"{id}{AUDIO_SUFFIX}"
        if str(utterance.extra["expires"]) <= today() or not text:
            counts["left_out" if not text else "expired"] += 1
            lines.pop(id, None)
            expired.append(audio)
            continue
        added += [] if id in lines else [audio]
        with atomic_write(audio) as file:
            file.write(Path(utterance.audio_filepath).read_bytes())
        counts["labeled"] += 1
        counts["corrected"] += text != utterance.extra.get("hypothesis", utterance.text)
        # With other shares than before, the same caller would be in train and test.
        split = splits.setdefault(utterance.speaker, _split(utterance.speaker, test_share, dev_share))
        lines[id] = utterance.replace(audio_filepath=str(audio.absolute()), text=text, split=split)

    encoder = ManifestEncoder(corpus)
    data = "".join(encoder.encode(lines[id]) for id in sorted(lines)).encode()
    try:  # what was erased meanwhile must not come back
        if before is None or source.stat(MANIFEST_FILE) != was:
            raise PreconditionError(f"{selection}: another process changed {MANIFEST_FILE} meanwhile; start again")
        target.write(MANIFEST_FILE, data, if_version=before.version)
    except PreconditionError:
        for audio in added:
            audio.unlink(missing_ok=True)
        raise

    # Only after the manifest no longer names them.
    for audio in expired:
        audio.unlink(missing_ok=True)
    return LabeledCounts(counts["labeled"], counts["corrected"], counts["left_out"], counts["expired"], len(lines))


def _read_labels(path: Path) -> dict[str, str | None]:
    """Id → text; None for a clip to leave out."""
    if not path.is_file():
        raise SettingsError(f"{path}: this file does not exist; give Label Studio's export, or a manifest")

    # Label Studio exports a list; a manifest has an object in each line.
    head = path.read_bytes().lstrip()[:1]
    if head == b"[":
        return read_labels(path)
    labels_by_id: dict[str, str | None] = {}
    for number, line in iter_lines(path):
        try:
            values: dict[str, Any] = parse_json(line)
            id, text = values["id"], values.get("text")
            if not isinstance(id, str) or not isinstance(text or "", str):
                raise TypeError("id and text are texts")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WorkError(
                f"{path}:{number}: {json.dumps(line.decode(errors='replace')[:80])} is not a labeled line ({error}); "
                'a line has "id" and "text"'
            ) from None

        # An empty text is a clip in which nothing is said.
        left_out = values.get("leave_out") is True or not text
        labels_by_id[id] = None if left_out else " ".join(unicodedata.normalize("NFC", str(text)).split())
    return labels_by_id


def _split(speaker: str, test_share: float, dev_share: float) -> str:
    # [0, 1) by the hash of the speaker, so that each machine decides alike.
    number = int(hash_value(["captured", speaker])[:12], 16) / 16**12
    return "test" if number < test_share else "dev" if number < test_share + dev_share else "train"
