"""The speakers of a voice: whose rows its table has, and in which order.

A corpus whose train split names several speakers makes a voice of all of them: a row each, in the order of their names.
"""

from collections.abc import Sequence

from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.tts.settings import TtsTrainSettings
from voxline.families.tts.vits.settings import SpeakerTableSettings

USUAL_UNITS = 256
"""Values of a speaker where the settings do not say, as the authors of VITS have it."""
MAX_NAMED = 5
"""Speakers or utterances that a message names."""


def speakers_of(dataset: Dataset, settings: TtsTrainSettings) -> list[str]:
    """The speakers of a voice's table, sorted; [] if it has none, or one that no corpus names.

    Raises:
      WorkError: some utterances have a speaker and others none, or dev or test has a speaker of its own.
    """
    sizes = settings.model
    if not isinstance(sizes, SpeakerTableSettings) or not settings.learns_speakers:
        return []
    rows = list(dataset.rows())
    names = sorted({row.speaker for row in rows if row.split == "train" and row.speaker})
    if not names or (len(names) == 1 and (sizes.speakers or not sizes.speaker_units)):
        return []

    advice = f"name who speaks, or train all of it as one voice (train.{settings.model.kind}.speakers: one)"
    nobodys = [row.id for row in rows if not row.speaker]
    if nobodys:
        raise WorkError(
            f"{dataset.folder}: {len(nobodys):,} utterances have no speaker, such as {nobodys[0]}, and others are of "
            f"{name_speakers(names)}; {advice}"
        )
    # Of test too: evaluate would refuse it after the training.
    strangers = sorted({row.speaker for row in rows} - set(names))
    if strangers:
        raise WorkError(
            f"{dataset.folder}: dev or test has speakers who are not in train: {name_speakers(strangers)}. A voice "
            f"speaks as those whom it was trained on: split each speaker's utterances (corpus.split.by: utterance), or "
            f"{advice}"
        )
    return names


def with_speakers(settings: TtsTrainSettings, names: Sequence[str]) -> TtsTrainSettings:
    """The settings with a table of these speakers; unchanged if there are none.

    Raises:
      SettingsError: the settings have a table of another size, or an encoder of speakers and the corpus has none.
    """
    sizes = settings.model
    if settings.fastspeech.speaker_encoder:
        if not names:
            raise SettingsError(
                "train.fastspeech.speaker_encoder is set, and the train split names fewer than two speakers, from whom "
                "nothing is learned about others; leave it out, or add recordings of many"
            )
        if isinstance(sizes, SpeakerTableSettings) and sizes.speaker_units not in (0, USUAL_UNITS):
            raise SettingsError(
                f"train.model.speaker_units is {sizes.speaker_units}, and train.fastspeech.speaker_encoder hears "
                f"{USUAL_UNITS} values; leave it out"
            )
    if not names or not isinstance(sizes, SpeakerTableSettings):
        return settings
    if sizes.speakers not in (0, len(names)):
        raise SettingsError(
            f"train.model.speakers is {sizes.speakers}, and the corpus has {len(names)}: {name_speakers(names)}; leave "
            "it out, and the table has these"
        )
    table = {"speakers": len(names), "speaker_units": sizes.speaker_units or USUAL_UNITS}
    model = type(sizes).of({**sizes.plain(), **table}, source="train.model")
    return settings.model_copy(update={"model": model})


def name_speakers(names: Sequence[str]) -> str:
    """
    >>> name_speakers(["ann", "bob"]), name_speakers([str(number) for number in range(9)])
    ('ann, bob', '0, 1, 2, 3, 4 and 4 more')
    """
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")
