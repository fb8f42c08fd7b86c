"""The demo's recognizer makes as few errors in recordings with pauses as in single utterances."""

import pytest

from tests.conftest import ROOT
from voxline.data.dataset import read_utterances
from voxline.families.asr.details import JoinedInfo
from voxline.families.asr.joined import measure_joined
from voxline.inference.recognizer import Recognizer
from voxline.registry.models import find_model

DEMO = ROOT / "runs/demo"
POINTS = 0.01


def measured(pauses: str) -> JoinedInfo:
    manifest = max((DEMO / "store/convert").glob("*/manifest.jsonl"), key=lambda path: path.stat().st_mtime)
    utterances = [utterance for utterance in read_utterances(manifest.parent) if utterance.split == "test"]
    recognizer = Recognizer(find_model(str(DEMO / "registry/asr")), pauses=pauses)
    joined = measure_joined(recognizer, utterances, 60.0, str)
    assert joined is not None
    return joined


@pytest.mark.slow
@pytest.mark.skipif(not (DEMO / "registry/asr").is_dir(), reason="no demo: run make demo, a quarter of an hour")
def test_the_demo_loses_at_most_a_point_to_pauses() -> None:
    cut = measured("level")
    for kind in cut.kinds:
        assert kind.words.rate <= cut.single.rate + POINTS, kind
        assert kind.words_in_pauses == 0

    # What is heard whole shows that the figure means something.
    whole = measured("off")
    assert min(kind.words.rate for kind in whole.kinds) > whole.single.rate + 10 * POINTS
