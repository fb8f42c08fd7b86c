"""Adds a person to a voice in a registry, by a recording and with their consent."""

import shutil
import tempfile
import time
from pathlib import Path

import msgspec

from voxline.errors import SettingsError
from voxline.families.tts.enrolment import enrol_speaker
from voxline.feedback.captures import NAME
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.registry.journal import CANDIDATE, format_utc
from voxline.registry.models_config import write_models_config
from voxline.registry.registry import MODEL_CARD, PROVENANCE, Registry
from voxline.registry.training_data import TRAINED_ON
from voxline.store.files import write_json, write_text
from voxline.store.scratch import scratch_root


def enrol(
    registry: str, model: str, version: str, *, speaker: str, recording: Path, encoder: Path, consent: str
) -> list[str]:
    """Publishes a version of a voice that speaks as one more person, as a candidate. Returns lines for a person.

    Args:
      version: that gets the row: a number, production or candidate.
      speaker, recording, encoder, consent: as for `enrol_speaker`, with `encoder` for its wheel.

    Raises:
      SettingsError, WorkError: as `enrol_speaker`; or the speaker's name is no pseudonym.
    """
    if not NAME.fullmatch(speaker):
        raise SettingsError(
            f"--speaker is {speaker!r}; a pseudonym of up to 64 letters, digits and . _ : - is accepted, never a name"
        )

    # Its bytes are compared with those that were published.
    models = Registry(registry, model)
    number = models.resolve(version)

    # A folder of its own until the version is whole.
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        folder = Path(scratch) / "model"
        enrol_speaker(models.intact_path(number), folder, speaker, recording, encoder, consent)
        info = read_model_info(folder)
        digest = model_digest(folder)
        at = format_utc(time.time())
        person = info.enrolled[-1]
        note = f"version {number} with a row for {speaker}; not judged"
        with models.locked(), models.publishing(folder, digest, "push", alias=CANDIDATE, note=note) as (new, staging):
            card = (
                f"# {model}, version {new}\n\nVersion {number}, which speaks as `{speaker}` too: by "
                f"{person.seconds:g} s of a recording, without training. Consent: `{person.consent}`, recorded "
                f"{person.at}.\n\n"
                "It was not judged, so how like the person it sounds is not known: listen before you promote it.\n"
            )
            write_text(staging / MODEL_CARD, card)
            # By the list a purge finds the person.
            shutil.copyfile(folder / TRAINED_ON, staging / TRAINED_ON)
            provenance = {
                "model": model,
                "version": new,
                "digest": digest,
                "pushed_at": at,
                "checks": [],
                "dataset": msgspec.to_builtins(info.dataset),
                "start": msgspec.to_builtins(info.start),
                **msgspec.to_builtins(info.provenance),
            }
            write_json(staging / PROVENANCE, provenance)
    write_models_config(models.root)

    return [
        f"{model}: version {new} speaks as {speaker} too, a candidate; it was not judged",
        f"voxline synthesize TEXT --model {registry}/{model}@{new} --speaker {speaker} -o out.wav   to listen",
        f"voxline models promote {model} --registry {registry}   puts it into service",
    ]
