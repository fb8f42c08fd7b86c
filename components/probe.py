"""The probe (`evaluate.probe`): a converted corpus that shows what a model has forgotten.

evaluate measures it after the training, so train and the commands check it before: a night must not end with a folder
that cannot be read.
"""

import collections

from voxline.data.drafts import is_draft
from voxline.data.manifest import Utterance, localize_audio, read_manifest
from voxline.errors import SettingsError, TransientError, WorkError
from voxline.text.alphabet import Alphabet, name_characters

SETTING = "evaluate.probe"
HEADERS_READ = 100
"""Recordings whose sample rate `validate_probe` reads, evenly spaced."""


def read_probe(location: str) -> list[Utterance]:
    """The utterances of a probe: its test split, or all of it if it has none.

    Args:
      location: a manifest, or a folder or URI with one.

    Raises:
      SettingsError: it cannot be read, is empty, or has an id twice or a draft.
      TransientError: a bucket does not answer.
    """
    named = f"{SETTING} is {location!r}"
    try:
        listed = read_manifest(location)
    except TransientError:
        raise
    except WorkError as error:
        raise SettingsError(f"{named}: {error}; a manifest of recordings, or convert's folder, is accepted") from None

    utterances = [utterance for utterance in listed if utterance.split == "test"] or listed
    if not utterances:
        raise SettingsError(f"{named}, and its manifest has no utterance")
    if draft := next((utterance.id for utterance in utterances if is_draft(utterance.extra)), ""):
        raise SettingsError(f"{named}, and a model wrote the text of {draft}; nothing is judged by a draft")
    ((most, times),) = collections.Counter(utterance.id for utterance in utterances).most_common(1)
    if times > 1:
        raise SettingsError(f"{named}, and its id {most} appears {times} times; make it unique")
    return utterances


def validate_probe(location: str, alphabet: Alphabet, sample_rate: int) -> None:
    """Refuses a probe that a model of this alphabet and sample rate cannot be measured on.

    Args:
      alphabet: of the training's dataset.
      sample_rate: of that, in Hz.

    Raises:
      SettingsError: as `read_probe`; or a recording is absent, not audio or of another rate, or a transcript has
        characters outside the alphabet.
      TransientError: a bucket does not answer.
    """
    import soundfile

    utterances = read_probe(location)
    named = f"{SETTING} is {location!r}"
    remedy = "convert it with the section `convert` of this config (voxline run --until convert), and name that output"

    outside = {utterance.id: alphabet.unknown(utterance.text) for utterance in utterances}
    unknown = {id: characters for id, characters in outside.items() if characters}
    if unknown:
        characters = "".join(dict.fromkeys("".join(unknown.values())))
        raise SettingsError(
            f"{named}, and {len(unknown):,} of its {len(utterances):,} transcripts have characters outside the "
            f"alphabet (convert.alphabet), {next(iter(unknown))} first: {name_characters(characters)}; {remedy}"
        )

    step = max(1, len(utterances) // HEADERS_READ)
    sample = utterances[::step]
    localize_audio(sample)
    for utterance in sample:
        try:
            rate = soundfile.info(str(utterance.audio_filepath)).samplerate
        except (OSError, soundfile.LibsndfileError) as error:
            raise SettingsError(f"{named}, and utterance {utterance.id} cannot be read: {error}; {remedy}") from None
        if rate != sample_rate:
            raise SettingsError(
                f"{named}, and utterance {utterance.id} has {rate:,} Hz, where convert.sample_rate is {sample_rate:,}; "
                f"{remedy}"
            )
