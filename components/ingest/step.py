"""Ingest: a corpus in its publisher's own layout becomes a manifest, and a reject for each bad recording.

Only what the later steps could not be asked about is rejected here: a file that is not there, lies
outside the corpus or has another size than the corpus says, an utterance without transcript, a line that
makes no sense, an id that stands there twice. Whether audio can be decoded is convert's to find out.
"""

import functools
from pathlib import Path

from components.ingest.corpora import CORPORA
from components.ingest.corpus import Corpus
from components.ingest.entries import settle, utterance_of
from components.ingest.recordings import measure
from components.ingest.remembered import Remembered
from components.ingest.settings import CorpusSettings
from components.ingest.sources import open_corpus
from components.ingest.splits import LEFT_OUT, splits_of
from components.speech.errors import WorkError
from components.speech.mirror import bring, folder_of, send
from components.speech.progress import say
from components.speech.utterances import (
    MANIFEST,
    REJECTS,
    Reject,
    Utterance,
    check_reject_share,
    each_utterance,
    write_manifest,
    write_rejects,
)
from components.speech.work import Work, keyed_work

REVISION = 3


def run(store: Path | str, settings: CorpusSettings) -> Work:
    """Reads the corpus at `settings.uri`.

    Args:
      store: the folder that holds all keyed work, or gs://…; archives are unpacked there too.

    Returns:
      Work with `manifest` (text raw, in NFC) and `rejects`, both sorted by id.

    Raises:
      SettingsError: the corpus is not there, or the settings do not fit it.
      WorkError: it cannot be read, or too large a share of it was rejected.
    """
    corpus, named_by = open_corpus(folder_of(store), settings)
    # What matters of the uri is in `named_by`: the same corpus by another path is the same work.
    naming = settings.model_copy(update={"uri": ""})
    with keyed_work(
        store,
        "ingest",
        naming,
        {"corpus": named_by},
        revision=REVISION,
        check=functools.partial(_check_place, corpus.root),
    ) as work:
        if not work.reused:
            _ingest(corpus, settings, work, Remembered(folder_of(store), corpus))
            send((utterance.audio_filepath for utterance in each_utterance(work.folder)), store)
    return work


def _check_place(root: Path, folder: Path) -> None:
    """A manifest names recordings by their place beside it, so it goes astray when the store is moved."""
    bring([folder / MANIFEST])
    first = next(each_utterance(folder), None)
    if first and not Path(first.audio_filepath).is_relative_to(root):
        raise WorkError(f"{folder} was moved: its manifest leads to {first.audio_filepath}, the corpus is {root}")


def _ingest(corpus: Corpus, settings: CorpusSettings, work: Work, remembered: Remembered) -> None:
    say(f"ingest: reading {corpus.root} as {settings.format}, {len(corpus.files):,} files")
    found, rejects = settle(corpus, CORPORA[settings.format](corpus), settings.text)
    splits = splits_of([one.entry for one in found], settings)
    used = [one for one in found if splits[one.entry.id] != LEFT_OUT]
    paths = sorted({one.path for one in used})
    recordings = remembered.of(paths)
    recordings |= measure(corpus.root, [path for path in paths if path not in recordings])
    remembered.keep(recordings)
    utterances: list[Utterance] = []
    for one in used:
        judged = utterance_of(one, recordings[one.path], str(corpus.root), splits[one.entry.id])
        if isinstance(judged, Reject):
            rejects.append(judged)
        else:
            utterances.append(judged)
    write_manifest(work.folder / MANIFEST, sorted(utterances, key=lambda utterance: utterance.id))
    write_rejects(work.folder / REJECTS, sorted(rejects, key=lambda reject: (reject.id, reject.detail)))
    total = len(utterances) + len(rejects)
    check_reject_share(len(rejects), total, settings.max_reject_share, "ingest", work.folder / REJECTS)
    work.outputs.update(manifest=MANIFEST, rejects=REJECTS)
    work.counts.update(utterances=len(utterances), rejects=len(rejects))
    for split in ("train", "dev", "test"):
        work.counts[split] = sum(utterance.split == split for utterance in utterances)
    if len(used) < len(found):
        work.counts[LEFT_OUT] = len(found) - len(used)
    say("ingest: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in work.counts.items()))
