"""Adds a person to a voice whose rows of speakers are heard by an encoder (`speaker_rows`), with their consent.

A row is what the encoder hears in recordings, `voxline.audio.speaker_encoder`; the network learns to speak by it and
never changes it. So the row of somebody who was not in training is as good an input as theirs: ten seconds of a person
who agreed make one, without training. How like them the voice sounds depends on how many speakers it learned from.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from voxline.audio.speaker_encoder import ENCODER_RATE, SpeakerEncoder, speech_seconds
from voxline.errors import SettingsError, WorkError
from voxline.families.tts.settings import TtsExportForm
from voxline.families.tts.sharpening import write_voice
from voxline.families.tts.speaker_rows import row_heard
from voxline.inference.model_info import SPEAKER_ENCODER, EnrolledSpeaker
from voxline.inference.synthesizer import SPEAKERS
from voxline.inference.waveforms import read_waveform
from voxline.progress import print_status
from voxline.registry.journal import format_utc
from voxline.registry.training_data import TRAINED_ON, read_training_data
from voxline.store.hashing import hash_bytes, hash_file
from voxline.text.consent import names_terms
from voxline.training.export import TrainedModel

LEAST_SECONDS = 10.0
"""Seconds of a person's recording, at least."""
LEAST_SPEECH = 0.5
"""Share of them that is no silence, at least."""
MOST_SECONDS = 60.0
"""Seconds of a recording that are heard; the encoder's memory grows with them, and a minute says what a voice is."""


def enrol_speaker(voice: Path, folder: Path, speaker: str, recording: Path, wheel: Path, consent: str) -> None:
    """Writes a voice with a row for one more person; nothing is trained.

    Args:
      voice: its exported folder.
      folder: that does not exist yet.
      speaker: a pseudonym for the row.
      recording: ten seconds of the person, or more; of a longer one the first minute.
      wheel: of the encoder that heard the voice's rows.
      consent: `yes:` and the name of the terms that the person agreed to, with a version or date.

    Raises:
      SettingsError: the person did not agree to terms, the voice or the encoder cannot do it, the name is taken, or the
        recording is too short or silent.
      WorkError: the model is damaged, or the recording cannot be read.
    """
    # Before the recording is opened: without consent nothing of it is read.
    if not names_terms(consent):
        raise SettingsError(
            f"the consent of {speaker!r} is {consent!r}; 'yes:' and the name of the terms that the person agreed to, "
            "with a version or date, are accepted, such as yes:voice-terms-2026"
        )
    trained = TrainedModel.read(voice)
    info = trained.info
    heard_by = info.provenance.trained.get(SPEAKER_ENCODER)
    if heard_by is None:
        raise SettingsError(
            f"{voice}: its rows of speakers are learned, so that a recording gives none; train a voice of many "
            "speakers with train.fastspeech.speaker_encoder"
        )
    if not (voice / TRAINED_ON).is_file():
        raise WorkError(f"{voice}: no {TRAINED_ON}, by which a purge would find the person; run train again")
    if speaker in info.speakers:
        raise SettingsError(f"{voice}: {speaker!r} has a row already; give another pseudonym")
    encoder = SpeakerEncoder(wheel, digest=heard_by["digest"])

    # What is no silence is what the encoder hears.
    waveform = read_waveform(recording, ENCODER_RATE)
    if len(waveform) > MOST_SECONDS * ENCODER_RATE:
        print_status(
            f"enrol: {recording} has {len(waveform) / ENCODER_RATE:.0f} s; the first {MOST_SECONDS:g} are heard"
        )
        waveform = waveform[: round(MOST_SECONDS * ENCODER_RATE)]
    seconds = len(waveform) / ENCODER_RATE
    speech = speech_seconds(np.asarray(waveform, np.float64))
    if seconds < LEAST_SECONDS or speech < LEAST_SPEECH * LEAST_SECONDS:
        raise SettingsError(
            f"{recording}: {seconds:.1f} s, {speech:.1f} s of them speech; {LEAST_SECONDS:g} s with "
            f"{LEAST_SPEECH * LEAST_SECONDS:g} s of speech are accepted"
        )

    # The table with a row more; all other weights stay.
    table = f"model/{info.weights.index(SPEAKERS)}"
    row = row_heard(encoder, waveform, ENCODER_RATE)
    weights = {**trained.weights, table: np.concatenate([trained.weights[table], row[None]])}
    digest = hash_file(recording)
    at = format_utc(time.time())
    person = EnrolledSpeaker(speaker=speaker, consent=consent, at=at, recording=digest, seconds=round(speech, 1))
    speakers = [*info.speakers, speaker]
    sizes = {**info.model_settings, "speakers": len(speakers)}
    wider = dataclasses.replace(
        trained,
        weights=weights,
        info=msgspec.structs.replace(
            info,
            speakers=speakers,
            enrolled=[*info.enrolled, person],
            settings={**info.settings, "model": sizes},
        ),
    )
    form: dict[str, Any] = {key: info.settings[key] for key in ("export", "griffin_lim") if key in info.settings}
    write_voice(wider, TtsExportForm.of(form, source=str(voice)), folder)

    # A purge finds the person by the list of recordings too, as all whom a model knows.
    listed = folder / TRAINED_ON
    data = read_training_data(listed.read_bytes(), str(listed))
    line = {
        "id": f"enrolled-{speaker}",
        "split": "train",
        "speaker": speaker,
        "audio_hash": digest,
        "offset": 0.0,
        "duration": round(seconds, 3),
        "text_hash": hash_bytes(b""),
    }
    lines = sorted([*data.utterances, line], key=lambda each: str(each["id"]))
    dataclasses.replace(data, utterances=lines).write(listed)
