"""Schedules of TTS training, and contradictory settings."""

import pytest

from voxline.errors import SettingsError
from voxline.families.tts.settings import TtsTrainSettings


def test_the_reduction_factor_follows_its_schedule() -> None:
    settings = TtsTrainSettings.of(
        {
            "model": {"kind": "tacotron2", "reduction": 5},
            "reduction_schedule": [
                {"step": 0, "reduction": 5},
                {"step": 100, "reduction": 3},
                {"step": 200, "reduction": 2},
            ],
        }
    )
    assert [settings.reduction(step) for step in (0, 99, 100, 199, 200, 10_000)] == [5, 5, 3, 3, 2, 2]
    # What 100 steps have taught is what the last of them taught.
    assert [settings.trained_reduction(steps) for steps in (0, 1, 100, 101, 200, 201)] == [5, 5, 5, 3, 3, 2]
    assert TtsTrainSettings.of({"model": {"kind": "tacotron", "reduction": 4}}).reduction(7) == 4


def test_the_weight_of_guided_attention_decays_or_stays() -> None:
    falls = TtsTrainSettings.of({"guided_attention": {"weight": 2.0, "decay_steps": 100}})
    assert [falls.guided_attention_weight(step) for step in (0, 50, 100, 500)] == [2.0, 1.0, 0.0, 0.0]
    assert TtsTrainSettings.of({"guided_attention": {"weight": 2.0}}).guided_attention_weight(10_000) == 2.0


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"reduction_schedule": [{"step": 5, "reduction": 2}]}, "the first at 0"),
        ({"reduction_schedule": [{"step": 0, "reduction": 2}, {"step": 0, "reduction": 1}]}, "each later"),
        (
            {"model": {"kind": "tacotron2", "reduction": 2}, "reduction_schedule": [{"step": 0, "reduction": 5}]},
            "raise it to 5",
        ),
        ({"teacher_forcing": {"from_step": 10, "to_step": 5}}, "to_step"),
        ({"model": {"kind": "tacotron3"}}, "tacotron2"),
    ],
)
def test_contradictory_settings_are_refused_by_name(values: dict[str, object], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        TtsTrainSettings.of(values)
