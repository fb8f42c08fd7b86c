"""convert: any audio → 16-bit mono WAV at one rate, in a pool that all versions of a corpus share.

Each recording is decoded once, whatever happens to its transcript, its id or its place. What cannot be used
becomes a reject with a reason.
"""

import os
from collections import Counter
from pathlib import Path

from components.convert.incoming import Incoming
from components.convert.job import Converted, Job, Refused, Stale
from components.convert.pool import WavPool
from components.convert.settings import ConvertSettings
from components.convert.transcript import transcript, with_reading
from components.speech.errors import WorkError
from components.speech.mirror import bring, local
from components.speech.progress import Progress, say
from components.speech.reading import Read
from components.speech.reading.made_by import made_by
from components.speech.text import Alphabet
from components.speech.utterances import (
    MANIFEST,
    REJECTS,
    Reason,
    Reject,
    Utterance,
    check_reject_share,
    write_manifest,
    write_rejects,
)
from components.speech.work import Work, keyed_work

REVISION = 1


def run(manifest: Path | str, store: Path | str, settings: ConvertSettings) -> Work:
    """Converts the recordings of a manifest.

    Args:
      manifest: ingest's folder, or a manifest file.
      store: the folder that holds all keyed work, or gs://…; WAVs go to `<store>/wavs`.

    Returns:
      Outputs: manifest, rejects. Counts: utterances, rejects, decoded.

    Raises:
      WorkError: too many rejects; a recording that is no longer what the manifest says; a disk that is full.
    """
    incoming = Incoming(local(manifest), store)
    pool = WavPool(store, settings.sample_rate, settings.silence_db, settings.shaping)
    inputs: dict[str, object] = {"utterances": incoming.fingerprint}
    # The manifest names its recordings by content, and a file that is gone is no content: it takes part in the
    # key by itself, so that the reject does not outlive the day on which the file is put back.
    if missing := _missing(incoming.absent(), pool):
        inputs["missing"] = sorted(missing)
    # A dictionary of a later version may read a text otherwise.
    if reading := made_by(settings.reading):
        inputs["reading"] = reading
    # How many processes did it makes no difference to what was done.
    naming = settings.model_copy(update=settings.unnamed())
    with keyed_work(store, "convert", naming, inputs, revision=REVISION, check=pool.check) as work:
        if not work.reused:
            _convert(incoming.utterances, missing, pool, settings, work)
    return work


def _convert(
    utterances: list[Utterance], missing: set[str], pool: WavPool, settings: ConvertSettings, work: Work
) -> None:
    alphabet = Alphabet.named(settings.alphabet)
    rejects: dict[int, Reject] = {}
    texts: dict[int, Read] = {}
    sources: dict[str, Utterance] = {}
    names = [pool.name(utterance) for utterance in utterances]
    for index, utterance in enumerate(utterances):
        # What costs nothing to find out comes first: nobody listens to a recording that has no transcript.
        text = transcript(utterance, settings, alphabet)
        fault = text if isinstance(text, Reject) else _length_fault(utterance, utterance.duration, settings)
        if utterance.id in missing:
            fault = Reject(utterance.id, Reason.MISSING_FILE, f"{utterance.audio_filepath} is not there")
        if fault:
            rejects[index] = fault
        elif isinstance(text, Read):
            texts[index] = text
            sources[names[index]] = utterance
    outcomes = _outcomes(sources, pool, settings, work)
    converted: list[Utterance] = []
    for index, text in texts.items():
        utterance, outcome = utterances[index], outcomes[names[index]]
        if isinstance(outcome, Refused):
            rejects[index] = Reject(utterance.id, outcome.reason, outcome.detail)
            continue
        duration = outcome.samples / settings.sample_rate
        if fault := _length_fault(utterance, duration, settings):
            rejects[index] = fault
            continue
        converted.append(
            with_reading(
                utterance,
                text,
                audio_filepath=pool.place(names[index]),
                audio_hash=names[index],
                duration=duration,
                offset=0.0,
                measured=outcome.measured,
            )
        )
    _write(converted, [rejects[index] for index in sorted(rejects)], len(utterances), settings, work)


def _outcomes(
    sources: dict[str, Utterance], pool: WavPool, settings: ConvertSettings, work: Work
) -> dict[str, Converted | Refused]:
    """What became of each recording, by its WAV's name: known from before, or converted now."""
    outcomes = pool.known(set(sources))
    todo = [name for name in sources if name not in outcomes]
    work.counts["decoded"] = 0
    if not todo:
        return outcomes
    from components.convert.distributed import converted_jobs
    from components.convert.workers import Lost

    jobs = [_job(sources[name], name, pool, settings) for name in todo]
    stale: list[str] = []
    decoded = 0
    pool.sweep()
    progress = Progress("recordings", total=len(todo))
    try:
        with pool.log(work.key) as log, pool.sending(log) as sent:
            results = converted_jobs(jobs, settings, pool.folder, work.folder / "unfinished")
            for index, result in results:
                progress.advance()
                if isinstance(result, Stale):
                    stale.append(result.detail)
                elif isinstance(result, Lost):
                    # Not logged: what ended the process may have been the machine, so a later run may try again.
                    outcomes[todo[index]] = Refused(Reason.UNREADABLE, result.detail)
                else:
                    decoded += isinstance(result, Refused) or result.decoded
                    outcomes[todo[index]] = result
                    log.add(todo[index], result)
                    sent.add(jobs[index].wav, result)
        # Once for all WAVs, before anything says that they are there: to wait for the disk at each one costs
        # more than all decoding where others write too (10 ms and 2 ms).
        os.sync()
    except OSError as error:
        raise WorkError(
            f"convert: cannot write to {pool.folder}: {error.strerror or error}; make room or mend the permissions, "
            "and start again: what is converted stays"
        ) from error
    if stale:
        # Not a reject: the recording may be fine, it is the manifest that is out of date, in who knows what else.
        raise WorkError(
            f"convert: {len(stale):,} recordings changed after they were ingested; run ingest again, then convert "
            f"(what is converted stays): {'; '.join(sorted(stale)[:3])}" + "; …" * (len(stale) > 3)
        )
    work.counts["decoded"] = decoded
    return outcomes


def _write(
    converted: list[Utterance], rejects: list[Reject], total: int, settings: ConvertSettings, work: Work
) -> None:
    work.outputs = {"manifest": MANIFEST, "rejects": REJECTS}
    work.counts["utterances"] = write_manifest(work.folder / MANIFEST, converted)
    work.counts["rejects"] = write_rejects(work.folder / REJECTS, rejects)
    check_reject_share(len(rejects), total, settings.max_reject_share, "convert", work.folder / REJECTS)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in Counter(r.reason for r in rejects).most_common())
    say(
        f"convert: {len(converted):,} of {total:,} utterances, {work.counts['decoded']:,} recordings decoded"
        + (f"; rejected: {reasons}" if reasons else "")
    )


def _length_fault(utterance: Utterance, duration: float, settings: ConvertSettings) -> Reject | None:
    """A reject for a recording too short or too long; a duration of 0 is one that ingest could not know."""
    if 0 < duration < settings.min_seconds:
        return Reject(utterance.id, Reason.TOO_SHORT, f"{duration:g} s, at least {settings.min_seconds:g} s are needed")
    if duration > settings.max_seconds:
        return Reject(utterance.id, Reason.TOO_LONG, f"{duration:g} s, at most {settings.max_seconds:g} s are accepted")
    return None


def _job(utterance: Utterance, name: str, pool: WavPool, settings: ConvertSettings) -> Job:
    return Job(
        source=utterance.audio_filepath,
        audio_hash=utterance.audio_hash,
        offset=utterance.offset,
        duration=utterance.duration or None,
        wav=pool.path(name),
        sample_rate=settings.sample_rate,
        silence_db=settings.silence_db,
        shaping=settings.shaping,
    )


def _missing(absent: list[Utterance], pool: WavPool) -> set[str]:
    """Ids of utterances whose recording is gone, and was not converted before; one in a bucket is brought."""
    names = [pool.name(utterance) for utterance in absent]
    known = pool.known(set(names)) if names else {}
    wanted = [utterance for utterance, name in zip(absent, names, strict=True) if name not in known]
    bring(utterance.audio_filepath for utterance in wanted)
    return {utterance.id for utterance in wanted if not Path(utterance.audio_filepath).is_file()}
