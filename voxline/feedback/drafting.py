"""Drafts transcripts of recordings without one, as a corpus to train on: `voxline corpus label` does.

Each recording is heard twice: by two models, or by one in two ways. A draft is kept where both agree (word error rate
between them; Chen et al. 2020, arXiv 2005.09267, compare two decodings so). What one model gets wrong another one, or
the same one in noise, often gets wrong otherwise.

  corpora/drafts/
    manifest.jsonl    a line for each draft, marked with the keys of `voxline.data.drafts`; for corpus.pseudo
    audio/            its recordings: links where the disk has them, else copies
    rejects.jsonl     each other recording, with the reason and what both heard
    drafting/         what both heard, in groups of recordings: by these a killed run resumes
    drafting.json     which models, the bounds and counts; written last

All of it is about people: a purge finds it by `--captures` (`captures.erase_recordings`).
"""

import contextlib
import dataclasses
import math
import os
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxline.audio.decode_pool import DecodeLimits, DecodePool
from voxline.data.drafts import (
    CONFIDENCE,
    DISAGREEMENT,
    DRAFTED_BY,
    DRAFTS_FOLDER,
    DRAFTS_SETTINGS,
    DRAFTS_SUFFIX,
    is_draft,
)
from voxline.data.json_codec import absolute_path, encode_json, is_seconds, iter_lines, parse_json
from voxline.data.manifest import MANIFEST_FILE, REJECTS_FILE, Utterance, write_manifest
from voxline.errors import PreconditionError, SettingsError, WorkError
from voxline.feedback.captures import AUDIO_FOLDER, ID_PREFIX, changing
from voxline.inference.pauses import LEVEL
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.metrics.wer import count_word_edits
from voxline.progress import Progress, print_status
from voxline.registry.parents import published_version
from voxline.rejects import BadAudioError, Reason, Reject, format_rejects, summarize_rejects
from voxline.store.file_locks import exclusive_lock
from voxline.store.files import atomic_write, read_json, remove_unfinished, write_json
from voxline.store.hashing import hash_value
from voxline.store.objects import open_store

if TYPE_CHECKING:
    from voxline.inference.transcript import Transcript
    from voxline.inference.waveforms import Waveform

MARKER = "drafting.json"
NOISE = "noise"
DECODING = "decoding"
"""Ways to hear a second time with the same model; all else names another model."""
GROUP_SECONDS = 240.0
GROUP_RECORDINGS = 200
"""Of a group: what a killed run loses, and what is in memory at a time."""
MOST_NOISE_DB = 100.0
"""Quieter noise would change nothing: a model would agree with itself."""
BEAMS = 4
"""Texts that a decoder follows where the other decoding is greedy."""
_CLIP = re.compile(rf"{ID_PREFIX}[0-9a-f]+")
_NOT_KEPT = ("hypothesis", "doubt", "corpus", "measured", "audio_hash", "split", DRAFTED_BY, DISAGREEMENT, CONFIDENCE)
"""Keys of a line that are of another text or file, or that the merge of corpora sets."""


_LeftOut = tuple[Reject, dict[str, str]]
"""A reject, and the keys by which a purge and an expiry find it."""


@dataclasses.dataclass(frozen=True)
class DraftSettings:
    """The second hearing of a recording, and the bounds of drafts that are kept.

    Attributes:
      second: `NOISE`, `DECODING`, or the folder of another model.
      max_wer: largest accepted word error rate between both drafts, 0 to 1.
      min_confidence: of the first draft, 0 to 1.
      noise_db: how far the level of the noise is below the recording's, in dB.
      max_seconds: of a recording.
      speakers_by_folder: whether the first folder of a recording's path is its speaker.
      pauses: at which recordings are cut; see `voxline.inference.pauses`.
    """

    second: str = NOISE
    max_wer: float = 0.1
    min_confidence: float = 0.0
    noise_db: float = 20.0
    max_seconds: float = 30.0
    speakers_by_folder: bool = False
    pauses: str = LEVEL


@dataclasses.dataclass(frozen=True)
class DraftCounts:
    """Counts of a corpus of drafts.

    Attributes:
      drafts, rejects: recordings that are in the corpus, and that were left out.
      seconds: of the drafts.
      new: recordings that this run heard; all else was heard before.
      drafted_by: the first model.
      reasons: lines about what was left out, the most frequent reason first.
    """

    drafts: int
    rejects: int
    seconds: float
    new: int
    drafted_by: str
    reasons: list[str]


@dataclasses.dataclass(frozen=True)
class _Recording:
    """A recording without a transcript; `offset` and `duration` in seconds, None: to its end."""

    id: str
    file: Path
    offset: float = 0.0
    duration: float | None = None
    speaker: str = ""
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def person(self) -> dict[str, str]:
        """The speaker, and what a captured clip has of its expiry."""
        return {
            "speaker": self.speaker,
            **{key: self.extra[key] for key in ("expires", "consent") if key in self.extra},
        }

    @property
    def key(self) -> str:
        """Names what was heard: a file that was replaced since is another one."""
        try:
            stat = self.file.stat()
        except OSError:
            return hash_value([self.id, str(self.file)])  # once it is there, it is another one
        return hash_value([self.id, str(self.file), stat.st_size, stat.st_mtime_ns, self.offset, self.duration])


def draft_corpus(
    audio: Path, model: Path, corpus: Path, settings: DraftSettings, extensions: Sequence[str]
) -> DraftCounts:
    """Drafts transcripts of recordings, and writes those on which both hearings agree as a corpus.

    The same call resumes a killed one. With further recordings it hears those alone, with other bounds none.

    Args:
      audio: a folder of recordings; or a manifest, or a folder with one, whose lines have no text.
      model: an exported model; it writes the drafts.
      corpus: the folder to write.
      extensions: of the recordings in a folder, such as ".wav".

    Raises:
      SettingsError: there is no recording, a bound is out of range, the model has no second decoding, or the folder
        has something else or drafts by other models.
      WorkError: a model is damaged.
      PreconditionError: a purge erased drafts meanwhile.
    """
    _check(settings)

    # Bad lines are rejects from here on: `in = drafts + rejects` holds.
    rejects: list[_LeftOut] = []
    recordings = _list_recordings(audio, extensions, settings.speakers_by_folder, corpus, rejects)
    first, second, key = _describe_models(model, settings)
    groups = corpus / DRAFTS_FOLDER

    with exclusive_lock(groups):  # made if it is absent; two runs would hear everything twice
        _check_folder(corpus, key, first, second)
        remove_unfinished(groups, older_than=0)
        hearings = _read_groups(groups)
        keys = {recording.id: recording.key for recording in recordings}
        pending = [recording for recording in recordings if keys[recording.id] not in hearings]
        if pending:
            print_status(f"label: {first} hears {len(pending):,} of {len(recordings):,} recordings, {second} again")
            _hear(pending, keys, model, settings, groups)

        with changing(open_store(corpus)):  # a purge finds all of it, or nothing
            hearings = _read_groups(groups)
            if lost := [recording.id for recording in recordings if keys[recording.id] not in hearings]:
                raise PreconditionError(
                    f"{corpus}: {len(lost):,} drafts were erased meanwhile, such as that of {lost[0]}; start again"
                )
            return _write(recordings, keys, hearings, rejects, corpus, first, second, settings, len(pending))


def _check(settings: DraftSettings) -> None:
    for name, value in (("max-wer", settings.max_wer), ("min-confidence", settings.min_confidence)):
        if not 0 <= value <= 1:
            raise SettingsError(f"--{name} is {value:g}; a number from 0 to 1 is accepted")
    if not -MOST_NOISE_DB <= settings.noise_db <= MOST_NOISE_DB:
        raise SettingsError(
            f"--noise-db is {settings.noise_db:g}; a number from {-MOST_NOISE_DB:g} to {MOST_NOISE_DB:g} is accepted"
        )
    if not 0 < settings.max_seconds < math.inf:
        raise SettingsError(f"--max-seconds is {settings.max_seconds:g}; seconds above 0 are accepted")


def model_label(folder: Path) -> str:
    """The name of a model and the beginning of its digest: `asr@3 (4f1c09aa2be0)`, without a version if it has none."""
    version = published_version(folder)
    name = read_model_info(folder).name
    return f"{name}{f'@{version}' if version else ''} ({model_digest(folder)[:12]})"


def _describe_models(model: Path, settings: DraftSettings) -> tuple[str, str, str]:
    """Names the first and the second hearing in words; the third is the hash of what decides them."""
    first = model_label(model)
    if settings.second == NOISE:
        second = f"itself in noise at {settings.noise_db:g} dB"
    elif settings.second == DECODING:
        second = "itself by its other decoding"
    else:
        second = model_label(Path(settings.second))
        if model_digest(Path(settings.second)) == model_digest(model):
            raise SettingsError(
                f"--second: {second} is the same model as the first, which agrees with itself; give another one, "
                f"{NOISE} or {DECODING}"
            )
    return first, second, hash_value([first, second, settings.max_seconds, settings.pauses])


def _check_folder(corpus: Path, key: str, first: str, second: str) -> None:
    """Refuses a folder with something else in it; notes in a new one what is drafted."""
    # The settings come before the first group, so that groups of two models never mix.
    file = corpus / DRAFTS_SETTINGS
    if not file.is_file():
        # An audio folder of somebody else would be emptied of what no draft names.
        names = (path.name for path in corpus.iterdir())
        if foreign := sorted(name for name in names if not name.startswith((DRAFTS_FOLDER, "."))):
            raise SettingsError(
                f"{corpus}: it holds something else, {foreign[0]} first, which drafts would replace; give a folder "
                "that does not exist yet"
            )
        write_json(file, {"key": key, "first": first, "second": second})
        return

    noted = _read_settings(file)
    has_drafts = (corpus / MANIFEST_FILE).exists() or any(file.parent.glob(f"*{DRAFTS_SUFFIX}"))
    if noted.get("key") != key and not has_drafts:
        # A run that ended before it heard anything, such as one without a second decoding.
        write_json(file, {"key": key, "first": first, "second": second})
    elif noted.get("key") != key:
        raise SettingsError(
            f"{corpus}: it has drafts by {noted.get('first')}, and {noted.get('second')}, of other settings; give "
            "--output another folder, or delete this one"
        )


def _read_settings(file: Path) -> dict[str, Any]:
    try:
        settings = read_json(file)
        if isinstance(settings, dict):
            return settings
        problem = "no mapping"
    except ValueError as error:
        problem = str(error)

    # Which models wrote the groups beside it is not known any more.
    raise WorkError(f"{file}: damaged ({problem}); delete {file.parent.parent}, and start again")


def _list_recordings(
    audio: Path, extensions: Sequence[str], speakers_by_folder: bool, corpus: Path, rejects: list[_LeftOut]
) -> list[_Recording]:
    manifest = audio / MANIFEST_FILE if audio.is_dir() else audio
    if not audio.exists():
        raise SettingsError(f"{audio}: no such folder or manifest")
    if audio.suffix.lower() in extensions and audio.is_file():
        raise SettingsError(f"{audio}: one recording; give the folder that it is in, or a manifest")
    if corpus.resolve() in (audio.resolve(), *audio.resolve().parents):
        raise SettingsError(f"{corpus}: the drafts cannot be written over the recordings; give another folder")
    if manifest.is_file():
        listed = _of_manifest(manifest, rejects)
    else:
        listed = _of_folder(audio, extensions, speakers_by_folder, corpus)

    # An id names an utterance; the first recording keeps it.
    recordings: dict[str, _Recording] = {}
    for recording in listed:
        if recording.id in recordings:
            fault = f"{recording.file}: an earlier one has this id"
            rejects.append((Reject(recording.id, Reason.DUPLICATE_ID, fault), recording.person))
        else:
            recordings[recording.id] = recording
    if not recordings and not rejects:
        raise SettingsError(
            f"{audio}: no recording here; a manifest is accepted, or a folder of files that end in "
            f"{', '.join(extensions)}"
        )
    return [recordings[id] for id in sorted(recordings)]


def _of_folder(audio: Path, extensions: Sequence[str], speakers_by_folder: bool, corpus: Path) -> Iterator[_Recording]:
    # The id is the path without its extension, unless two recordings differ in nothing else.
    files = sorted(file for file in audio.rglob("*") if file.suffix.lower() in extensions and file.is_file())
    names = Counter(file.relative_to(audio).with_suffix("").as_posix() for file in files)
    # Both paths may be relative, or lead through links.
    root = audio.resolve()
    own_folder = corpus.resolve()
    for file in files:
        path = file.relative_to(audio)
        if (root / path).is_relative_to(own_folder):
            continue  # drafts that are written below the recordings
        name = path.with_suffix("").as_posix()
        id = unicodedata.normalize("NFC", name if names[name] == 1 else path.as_posix())
        speaker = unicodedata.normalize("NFC", path.parts[0]) if speakers_by_folder and len(path.parts) > 1 else ""
        yield _Recording(id, file.absolute(), speaker=speaker)


def _of_manifest(manifest: Path, rejects: list[_LeftOut]) -> Iterator[_Recording]:
    folder = os.path.abspath(manifest.parent)
    for number, line in iter_lines(manifest):
        where = f"{manifest}:{number}"
        try:
            values = parse_json(line)
            if not isinstance(values, dict):
                raise TypeError("a mapping is accepted")

            # Only the recording must be named; all else may be absent or null.
            path = values.pop("audio_filepath")
            if "\0" in path:
                raise ValueError("the path has a zero byte")
            text = values.pop("text", None) or ""
            id = str(values.pop("id", None) or Path(path).stem)
            speaker = str(values.pop("speaker", None) or "")
            offset = values.pop("offset", None) or 0.0
            duration = values.pop("duration", None)
            if not is_seconds(offset) or not (duration is None or is_seconds(duration)):
                raise TypeError("offset and duration are seconds from 0 on")
            if not isinstance(text, str):
                raise TypeError("`text` is no text")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            rejects.append((Reject(where, Reason.BAD_ENTRY, f"{where}: not a line of a manifest ({error})"), {}))
            continue

        # What a model heard is no transcript; what a person wrote is better than any draft.
        if text.strip() and text != values.get("hypothesis") and not is_draft(values):
            rejects.append((Reject(id, Reason.TRANSCRIBED, f"{where}: it has a text"), {"speaker": speaker}))
            continue
        extra = {key: value for key, value in values.items() if key not in _NOT_KEPT}
        yield _Recording(id, Path(absolute_path(folder, path)), float(offset), duration, speaker, extra)


def _hear(
    pending: Sequence[_Recording], keys: dict[str, str], model: Path, settings: DraftSettings, groups: Path
) -> None:
    """Hears recordings twice, and writes what was heard of each group of them."""
    progress = Progress("recordings", len(pending))
    with DecodePool(DecodeLimits(settings.max_seconds)) as decoders:
        decoders.start()  # while the models are loaded
        first, second = _load(model, settings)
        number = max((int(file.stem) for file in groups.glob(f"*{DRAFTS_SUFFIX}")), default=0)

        # Both models hear a group at a time; a recording that cannot be read is part of it, and hides no other.
        group: list[tuple[_Recording, Waveform]] = []
        lines: list[dict[str, Any]] = []
        seconds = 0.0
        for position, recording in enumerate(pending, start=1):
            try:
                waveform = decoders.load_audio(recording.file, first.sample_rate, recording.offset, recording.duration)
                group.append((recording, waveform))
                seconds += len(waveform) / first.sample_rate
            except BadAudioError as bad:
                fault = {"reason": str(bad.reason), "detail": f"{recording.file}: {bad.detail}"}
                lines.append({**_line(recording, keys), **fault})

            full = seconds >= GROUP_SECONDS or len(group) + len(lines) >= GROUP_RECORDINGS
            if full or position == len(pending):
                # Whole or not at all: the next run takes up behind the last group.
                lines += _hear_group(group, keys, first, second, settings)
                number += 1
                with (
                    changing(open_store(groups.parent)),
                    atomic_write(groups / f"{number:08d}{DRAFTS_SUFFIX}", "w") as file,
                ):
                    file.writelines(encode_json(line) + "\n" for line in lines)
                progress.advance(len(lines))
                group = []
                lines = []
                seconds = 0.0


def _load(model: Path, settings: DraftSettings) -> tuple[Recognizer, Recognizer]:
    first = Recognizer(model, pauses=settings.pauses)
    if settings.second == NOISE:
        return first, first
    if settings.second != DECODING:
        return first, Recognizer(Path(settings.second), pauses=settings.pauses)
    if not first.has_ctc:
        return first, Recognizer(model, beams=BEAMS, pauses=settings.pauses)
    if first.language_model is None:
        raise SettingsError(
            f"--second {DECODING}: the model has no language model, so it decodes in one way; give {NOISE} or "
            "another model"
        )
    return first, Recognizer(model, language_model=False, pauses=settings.pauses)


def _hear_group(
    group: Sequence[tuple[_Recording, "Waveform"]],
    keys: dict[str, str],
    first: Recognizer,
    second: Recognizer,
    settings: DraftSettings,
) -> list[dict[str, Any]]:
    from voxline.audio.decoding import resample

    if not group:
        return []

    # float32 [samples] each, at the rate of the first model
    waveforms = [waveform for _, waveform in group]
    drafts = first.recognize_waveforms(waveforms)
    if settings.second == NOISE:
        again = [_in_noise(waveform, recording.id, settings.noise_db) for recording, waveform in group]
    else:
        again = [np.clip(resample(waveform, first.sample_rate, second.sample_rate), -1, 1) for waveform in waveforms]
    repeated = second.recognize_waveforms(again)
    return [
        {**_line(recording, keys), **_compare(draft, other)}
        for (recording, _), draft, other in zip(group, drafts, repeated, strict=True)
    ]


def _in_noise(waveform: "Waveform", id: str, noise_db: float) -> "Waveform":
    """Adds white noise; the same one each time that the recording is heard. float32 [samples]."""
    random = np.random.default_rng(int(hash_value(["noise", id])[:16], 16))
    level = float(np.sqrt(np.mean(np.square(waveform, dtype=np.float64)))) if len(waveform) else 0.0
    noise = random.standard_normal(len(waveform)) * level * 10 ** (-noise_db / 20)
    return np.clip(waveform + noise, -1, 1).astype(np.float32)


def _line(recording: _Recording, keys: dict[str, str]) -> dict[str, Any]:
    return {"id": recording.id, **recording.person, "key": keys[recording.id]}


def _compare(draft: "Transcript", other: "Transcript") -> dict[str, Any]:
    confidence = None if draft.confidence is None else round(float(draft.confidence), 4)
    values = {"draft": draft.text, "second": other.text, "confidence": confidence, "seconds": draft.seconds}
    return {**values, "disagreement": round(word_error_rate_between(draft.text, other.text), 4), "note": draft.note}


def word_error_rate_between(first: str, second: str) -> float:
    """Edits per word of the longer text, so that both directions give the same; 0 to 1.

    Case and punctuation do not count. Each character of Chinese and Japanese is a word.

    >>> word_error_rate_between("Four, five.", "four nine"), word_error_rate_between("你好", "你好吗")
    (0.5, 0.3333333333333333)
    """
    texts = [_words(first), _words(second)]
    (edits,) = count_word_edits(texts[:1], texts[1:])
    return float(edits.errors / max(len(texts[0].split()), len(texts[1].split()), 1))


def _words(text: str) -> str:
    # Chinese and Japanese have no spaces: a character counts as a word.
    parts = []
    for character in unicodedata.normalize("NFC", text).casefold():
        if "\u3040" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff":
            parts.append(f" {character} ")
        elif character not in "'\u2019":
            parts.append(" " if unicodedata.category(character)[0] in "PSZ" else character)
    return " ".join("".join(parts).split())


def _read_groups(groups: Path) -> dict[str, dict[str, Any]]:
    """Reads what was heard, by the key of the recording."""
    hearings: dict[str, dict[str, Any]] = {}
    for file in sorted(groups.glob(f"*{DRAFTS_SUFFIX}")):
        for number, line in iter_lines(file):
            try:
                values = parse_json(line)
                hearings[values["key"]] = values
            except (ValueError, KeyError, TypeError) as error:
                raise WorkError(f"{file}:{number}: damaged ({error}); delete this file and start again") from None
    return hearings


def _write(
    recordings: Sequence[_Recording],
    keys: dict[str, str],
    hearings: dict[str, dict[str, Any]],
    rejects: Iterable[_LeftOut],
    corpus: Path,
    first: str,
    second: str,
    settings: DraftSettings,
    new: int,
) -> DraftCounts:
    """Writes the corpus of what was heard: recordings, rejects, the manifest and, last, the marker."""
    left_out = list(rejects)
    lines = []
    audio: set[str] = set()
    (corpus / AUDIO_FOLDER).mkdir(exist_ok=True)
    for recording in recordings:
        hearing = hearings[keys[recording.id]]
        if reject := _judge(recording.id, hearing, settings):
            left_out.append((reject, recording.person))
            continue
        name = _link(recording, corpus / AUDIO_FOLDER)
        audio.add(name)
        marks = {DRAFTED_BY: first, DISAGREEMENT: hearing["disagreement"], CONFIDENCE: hearing["confidence"]}
        path = str((corpus / AUDIO_FOLDER / name).absolute())
        duration = recording.duration or hearing["seconds"]
        lines.append(
            Utterance(
                recording.id, path, duration, hearing["draft"], recording.speaker, "train", offset=recording.offset,
                extra={**recording.extra, **{name: value for name, value in marks.items() if value is not None}},
            )
        )  # fmt: skip

    # What the manifest names is there before it, and what it no longer names goes after it.
    with atomic_write(corpus / REJECTS_FILE, "w") as file:
        for reject, person in left_out:
            file.write(encode_json({**reject.as_line(), **person}) + "\n")
    write_manifest(corpus / MANIFEST_FILE, lines)
    for copy in (corpus / AUDIO_FOLDER).iterdir():
        if copy.name not in audio:  # of an earlier run with other bounds
            copy.unlink(missing_ok=True)

    # The marker comes last.
    seconds = sum(line.duration for line in lines)
    reasons = [reject for reject, _ in left_out]
    described = {
        "first": first,
        "second": second,
        "max_wer": settings.max_wer,
        "min_confidence": settings.min_confidence,
        "drafts": len(lines),
        "seconds": round(seconds, 3),
        "rejects": dict(Counter(str(reject.reason) for reject in reasons)),
    }
    write_json(corpus / MARKER, described)
    shown = format_rejects(summarize_rejects(reasons))
    return DraftCounts(len(lines), len(left_out), seconds, new, first, shown)


def _judge(id: str, hearing: dict[str, Any], settings: DraftSettings) -> Reject | None:
    """The reason for which a draft is left out; None of one to keep."""
    # Faults of the recording first: they have no draft.
    if "reason" in hearing:
        return Reject(id, Reason(hearing["reason"]), hearing["detail"])
    if hearing["note"] or not hearing["draft"].strip():
        return Reject(
            id, Reason.NOTHING_HEARD, hearing["note"] or f"an empty draft; the second is {hearing['second']!r}"
        )
    if hearing["disagreement"] > settings.max_wer:
        differ = f"{hearing['draft']!r} and {hearing['second']!r}: {hearing['disagreement']:.0%} of the words differ"
        return Reject(id, Reason.DISAGREEMENT, f"{differ}, at most {settings.max_wer:.0%} are accepted")
    if (hearing["confidence"] or 0.0) < settings.min_confidence:
        confidence = f"{hearing['draft']!r} with a confidence of {hearing['confidence'] or 0.0:.2f}"
        return Reject(id, Reason.LOW_CONFIDENCE, f"{confidence}, at least {settings.min_confidence:g} is accepted")
    return None


def _link(recording: _Recording, folder: Path) -> str:
    """Puts a recording into a folder, unless it is there; returns its name."""
    # A captured clip keeps its name, by which it expires. Parts of one recording share a file.
    stem = recording.id if _CLIP.fullmatch(recording.id) else hash_value([str(recording.file)])[:20]
    name = stem + recording.file.suffix.lower()
    target = folder / name
    with contextlib.suppress(OSError):
        if target.samefile(recording.file):
            return name
    # By rename, so that a line never names half a file.
    unfinished = folder / f".{name}.part"
    unfinished.unlink(missing_ok=True)
    try:
        os.link(recording.file.resolve(), unfinished)
        os.replace(unfinished, target)
    except OSError:  # another disk, or one without links
        unfinished.unlink(missing_ok=True)
        with recording.file.open("rb") as source, atomic_write(target) as file:
            shutil.copyfileobj(source, file)
    return name
