"""extract: a manifest of WAVs → a dataset of features that training reads. Only what is new is extracted.

Features are looked up by what they are made of, in a pool of shards that all datasets of a store share. Missing ones go
to new shards. All else of a dataset (texts, speakers, splits, statistics) needs no audio.
"""

from pathlib import Path

from voxline.components.extract.settings import ExtractSettings
from voxline.data.dataset import Dataset
from voxline.data.fingerprints import manifest_fingerprint
from voxline.data.manifest import manifest_path
from voxline.data.shards import lock_shards, shards_folder
from voxline.errors import WorkError
from voxline.store.step_cache import StepOutput, cached_step, local_inputs

REVISION = 2


@local_inputs("manifest")
def run(manifest: Path | str, store: Path | str, settings: ExtractSettings) -> StepOutput:
    """Makes a dataset of a manifest.

    Args:
      manifest: the folder of convert's output, or a manifest file.
      store: a folder or bucket URI; the dataset and its `rejects.jsonl` go to `<store>/extract/<key>/`, shards to
        `<store>/shards/`.

    Returns:
      Counts of utterances by split, of clips that were extracted now and of shards; hours by split.

    Raises:
      SettingsError: the recordings have another sample rate than `features.sample_rate`.
      WorkError: the manifest is absent or was not converted, or too many recordings failed.
    """
    file = manifest_path(Path(manifest))
    # Taken before the fingerprint, which reads the file: a change meanwhile is noticed.
    state = _file_state(file)
    fingerprint = manifest_fingerprint(file, store)

    def check_manifest() -> None:
        if _file_state(file) != state:
            raise WorkError(f"{file}: changed while it was read; run this again when it is written")

    inputs = {"utterances": fingerprint}
    with cached_step(store, "extract", settings, inputs, revision=REVISION, check=_check) as output:
        if not output.reused:
            # Garbage collection must not delete shards that this run has looked up and not yet written into its
            # dataset.
            with lock_shards(shards_folder(store, settings.features)):
                from voxline.components.extract.extraction import Extraction  # numpy, only where there is work

                Extraction(file, check_manifest, fingerprint, str(store), settings, output).run()
    return output


def _file_state(manifest: Path) -> tuple[int, ...]:
    """Inode, size and times, by which to see that somebody still writes a manifest."""
    status = manifest.stat() if manifest.is_file() else None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns) if status else ()


def _check(folder: Path) -> None:
    """Refuses a dataset to reuse of which a file is gone; shards in a bucket are not downloaded for that."""
    Dataset.read(folder, shards=False)
