"""convert: any audio → 16-bit mono WAV at one rate, in a pool that all versions of a corpus share.

Each recording is decoded once, whatever happens to its transcript, its id or its place. What cannot be used
becomes a reject with a reason. Nothing is held of an utterance but digests: the manifest is read as often as needed.
"""

from pathlib import Path

from voxline.components.convert.decode import decode_new
from voxline.components.convert.line_cache import LineCache
from voxline.components.convert.manifest_scan import ManifestScan
from voxline.components.convert.output import OutputBuilder, write_output
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.wav_pool import WAV_REVISION as POOL_REVISION
from voxline.components.convert.wav_pool import WavPool
from voxline.store.bucket_cache import localize
from voxline.store.hashing import hash_value
from voxline.store.step_cache import StepOutput, cached_step
from voxline.text.frontend import frontend_version

REVISION = 1


def run(manifest: Path | str, store: Path | str, settings: ConvertSettings) -> StepOutput:
    """Converts the recordings of a manifest.

    Args:
      manifest: ingest's folder, or a manifest file.
      store: the folder that holds all keyed work, or gs://…; WAVs go to `<store>/wavs`.

    Returns:
      Outputs: manifest, rejects. Counts: utterances, rejects, decoded.

    Raises:
      WorkError: too many rejects; a recording that is no longer what the manifest says; a disk that is full.
    """
    # How many processes did it makes no difference to what was done.
    naming = settings.naming()
    # A dictionary of a later version may read a text otherwise.
    reading = frontend_version(settings.reading)
    named = {"settings": naming.plain(), "reading": reading, "revisions": [REVISION, POOL_REVISION]}
    with (
        WavPool(store, settings.sample_rate, settings.silence_db, settings.shaping) as pool,
        LineCache(store, hash_value(named)) as earlier,
    ):
        incoming = ManifestScan(localize(manifest), pool, earlier)
        inputs: dict[str, object] = {"utterances": incoming.fingerprint}
        # The manifest names its recordings by content, and a file that is gone is no content: it takes part in the
        # key by itself, so that the reject does not outlive the day on which the file is put back.
        if incoming.missing:
            inputs["missing"] = sorted(set(incoming.missing.values()))
        if reading:
            inputs["reading"] = reading

        def check(folder: Path) -> None:
            if not (incoming.taken_over and folder == earlier.folder):  # of these, each WAV has just been looked at
                pool.check(folder)

        with cached_step(store, "convert", naming, inputs, revision=REVISION, check=check) as work:
            if not work.reused:
                _convert(incoming, earlier, pool, settings, work, store)
    return work


def _convert(
    incoming: ManifestScan,
    earlier: LineCache,
    pool: WavPool,
    settings: ConvertSettings,
    work: StepOutput,
    store: Path | str,
) -> None:
    earlier.check()  # now that the work is claimed, and so nobody can be purged
    lost = decode_new(incoming, pool, settings, work)
    write_output(incoming, earlier, OutputBuilder(work.folder, incoming, pool, settings, lost), settings, work, store)
