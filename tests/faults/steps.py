"""Small inputs for the steps without a model, and what counts of their outputs.

`train_step` and `model_steps` have the others.
"""

import dataclasses
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.extract.conftest import write_wav
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run as convert
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run as extract
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.ingest.step import run as ingest
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run as validate
from voxline.data.dataset import Dataset
from voxline.data.manifest import Utterance, iter_manifest, write_manifest
from voxline.data.tfrecord import read_record_at
from voxline.operations.shard_gc import GarbageCollected, collect_garbage
from voxline.store.hashing import hash_bytes, hash_file
from voxline.store.step_cache import StepOutput

CONVERT = ConvertSettings(max_reject_share=0.9, workers=1)
EXTRACT = ExtractSettings.of({"features": {"mels": 8, "hop_seconds": 0.02}, "shard_megabytes": 0.0016})
ON_BEAM = EXTRACT.model_copy(update={"beam_from_megabytes": 0.0})
PUBLISH = PublishSettings(compact_below=0.9)
VALIDATE = ValidateSettings.of({"tfdv": "off", "empty_splits": {"required": ["train"]}})
TELLS_HOW_IT_WENT = ("seconds", "cpu_seconds", "data_wait", "finished", "at", "decoded", "extracted", "seal")
"""Keys of what is written that differ where the work was done in two goes."""


@dataclasses.dataclass(frozen=True)
class Step:
    """What is done in a folder, with a corpus that is only read.

    Attributes:
      prepare: what is there before: (corpus, folder).
      first: the work that is disturbed, and `second` the same with other input.
      content: all that somebody reads of what it made, wherever it happens to lie.
      tidy: what clears away what nobody needs, besides the step itself.
      corpus: writes the corpus.
      state: all in the folder that must be the same after a fault as without one.
      forks: TensorFlow or ONNX Runtime does the work, in forks alone: neither survives the fork of a process that used
        it.
      sample: how many changes of each kind get a kill where not all do, and twice as many as get another fault: few
        where a trial takes long.
    """

    prepare: Callable[[Path, Path], object]
    first: Callable[[Path, Path], StepOutput]
    second: Callable[[Path, Path], StepOutput] | None
    content: Callable[[Path], Any]
    tidy: Callable[[Path], object] = lambda folder: None
    corpus: Callable[[Path], object] = lambda corpus: make_corpus(corpus)
    state: Callable[[Path], Any] = lambda folder: end_state(folder)
    forks: bool = False
    sample: int = 4

    @property
    def runs(self) -> list[Callable[[Path, Path], StepOutput]]:
        """The work, and that with other input if there is such."""
        return [self.first, self.second] if self.second else [self.first]


def make_corpus(corpus: Path) -> None:
    """Eight recordings, and manifests that have some of them; of two manifests the second is a later version."""
    random = np.random.default_rng(0)
    utterances = []
    for number in range(8):
        samples = int(random.integers(2_000, 5_000))
        path = write_wav(corpus / "wavs" / f"{number}.wav", random.standard_normal(samples) / 10)
        split, speaker = ("dev" if number % 4 == 3 else "train"), f"s{number % 2}"
        utterances.append(Utterance(f"u{number}", str(path), samples / 16_000, "one", speaker, split, hash_file(path)))
    cut = corpus / "wavs" / "cut.wav"
    cut.write_bytes((corpus / "wavs" / "0.wav").read_bytes()[:-900])
    bad = [Utterance("bad", str(cut), 0.2, "one", audio_hash=hash_file(cut)), utterances[7].replace(id="x", text="")]
    corrected = [utterances[1].replace(text="two")]
    write_manifest(corpus / "first" / "manifest.jsonl", utterances[:3] + bad)
    write_manifest(corpus / "second" / "manifest.jsonl", corrected + utterances[2:4] + bad)
    write_manifest(corpus / "all" / "manifest.jsonl", utterances)
    write_manifest(corpus / "few" / "manifest.jsonl", utterances[2:8:3])
    write_manifest(corpus / "other" / "manifest.jsonl", corrected + utterances[4:])


def _extracted(which: str, how: ExtractSettings = EXTRACT) -> Callable[[Path, Path], StepOutput]:
    return lambda corpus, folder: extract(corpus / which, folder / "store", how)


def _converted(which: str) -> Callable[[Path, Path], StepOutput]:
    return lambda corpus, folder: convert(corpus / which, folder / "store", CONVERT)


def _published(which: str) -> Callable[[Path, Path], StepOutput]:
    def run(corpus: Path, folder: Path) -> StepOutput:
        dataset = extract(corpus / which, folder / "store", EXTRACT).folder
        return publish(dataset, folder / "store", folder / "datasets", PUBLISH)

    return run


def _prepare_publish(corpus: Path, folder: Path) -> None:
    _published("all")(corpus, folder)
    for which in ("few", "other"):  # datasets of which the shards are mostly dead
        _extracted(which)(corpus, folder)


def make_packed_corpora(corpus: Path) -> None:
    """Two corpora as their publishers have them: one in an archive, one in a folder with a missing recording."""
    make_corpus(corpus)
    for name, which in (("packed", "first"), ("open", "few")):
        lines = [{"id": "missing", "audio_filepath": "missing.wav", "text": "one"}]
        (corpus / name).mkdir()
        for utterance in iter_manifest(corpus / which):
            source = Path(utterance.audio_filepath)
            shutil.copyfile(source, corpus / name / source.name)
            lines.append({"id": utterance.id, "audio_filepath": source.name, "text": utterance.text})
        (corpus / name / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with tarfile.open(corpus / "packed.tar", "w") as archive:
        archive.add(corpus / "packed", "packed")


def _ingested(*names: str) -> Callable[[Path, Path], StepOutput]:
    def run(corpus: Path, folder: Path) -> StepOutput:
        corpora = {Path(name).stem: {"uri": str(corpus / name), "format": "manifest"} for name in names}
        values = {"max_reject_share": 0.9, "split": {"by": "utterance"}, "corpora": corpora}
        return ingest(folder / "store", CorporaSettings.of(values, "corpus"))

    return run


def _validated(which: str) -> Callable[[Path, Path], StepOutput]:
    return lambda corpus, folder: validate(corpus / which, folder / "store", VALIDATE)


def _of_ingested(folder: Path) -> Any:
    store = folder.parents[1]
    read = [(u.id, u.text, u.split, u.duration, hash_file(Path(u.audio_filepath))) for u in iter_manifest(folder)]
    return [read, (folder / "rejects.jsonl").read_text().replace(str(store), "store")]


def _ingest_state(folder: Path) -> Any:
    """Without what depends on the place of the store, where an archive's recordings are."""
    outputs = [_of_ingested(file.parent) for file in folder.glob("store/ingest/*/done.json")]
    places = dict.fromkeys((place for place in end_state(folder) if "store/probes/" not in place), "")
    return {**places, "outputs": sorted(outputs, key=str)}


def _of_validation(folder: Path) -> Any:
    return json.loads((folder / "validation.json").read_text())


def _of_manifest(folder: Path) -> Any:
    read = [(u.identity(), hash_file(Path(u.audio_filepath))) for u in iter_manifest(folder)]
    return [read, (folder / "rejects.jsonl").read_text()]


def _of_dataset(folder: Path) -> Any:
    dataset = Dataset.read(folder)
    files, records = dataset.files(), []
    for shard, offset, size, frames in dataset.read_record_locations().ravel().tolist():
        if shard >= 0:
            with open(files[shard], "rb") as file:
                records.append((hash_bytes(read_record_at(file.fileno(), offset, size, files[shard])), frames))
        else:
            records.append((shard, 0))
    rows = [(row.id, row.text, row.split, row.audio_hash) for row in dataset.rows()]
    return [dataset.key, dataset.mean, dataset.deviation, dataset.counts, rows, records]


def _collected(folder: Path) -> GarbageCollected:
    return collect_garbage(folder / "store", [folder / "datasets"], grace_days=9, dry_run=False)


def _validation_state(folder: Path) -> dict[str, str]:
    """Without the tallies of pieces, which are kept where another run, or a first try, has stored the fingerprint."""
    return {place: content for place, content in end_state(folder).items() if not place.startswith("store/lines")}


STEPS = {
    "convert": Step(lambda corpus, folder: None, _converted("first"), _converted("second"), _of_manifest),
    "extract": Step(lambda corpus, folder: None, _extracted("all"), _extracted("other"), _of_dataset),
    "publish": Step(_prepare_publish, _published("few"), _published("other"), _of_dataset, _collected),
}

EVERY_STEP = {
    **STEPS,
    "ingest": Step(
        lambda corpus, folder: None,
        _ingested("packed.tar", "open"),
        _ingested("open"),
        _of_ingested,
        corpus=make_packed_corpora,
        state=_ingest_state,
    ),
    "validate": Step(
        lambda corpus, folder: None,
        _validated("all"),
        _validated("other"),
        _of_validation,
        state=_validation_state,
    ),
}
"""The steps without a model. Of `STEPS`, all kinds of fault are tested."""

BEAM = Step(lambda corpus, folder: None, _extracted("few", ON_BEAM), _extracted("other"), _of_dataset)
"""extract on Beam in one process, disturbed and repeated there; the other input follows without Beam, in less time."""


def end_state(folder: Path) -> dict[str, str]:
    """All that a later run could read, by its path. How the work went may differ, and so may the pool's logs."""
    found = {}
    for file in sorted(folder.rglob("*")):
        place = file.relative_to(folder).as_posix()
        if any(part.startswith(".") for part in place.split("/")) or "/wavs/log" in place or place.endswith(".lock"):
            continue
        if file.is_dir():
            found[place] = "folder"
        elif file.name in ("done.json", "version.json"):
            found[place] = json.dumps(_without_the_way(json.loads(file.read_text())))
        else:
            found[place] = hash_file(file)
    return found


def leftovers(folder: Path) -> list[str]:
    """Unfinished files and folders, which nobody reads."""
    hidden = [file.relative_to(folder).as_posix() for file in folder.rglob(".*")]
    return [place for place in hidden if not place.endswith(".lock")]


def _without_the_way(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {name: _without_the_way(value) for name, value in values.items() if name not in TELLS_HOW_IT_WENT}


def fresh(prepared: Path, folder: Path) -> Path:
    """A folder of its own, as it was prepared."""
    shutil.copytree(prepared, folder)
    return folder
