"""An exported model is loaded from its bytes alone; damage is reported clearly."""

import json
import shutil
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.tone_asr_model import MakeAsrModel
from voxline.errors import WorkError
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import batches_by_length, exported_folder, model_digest, read_model_json


@pytest.fixture
def copy_of_model(make_asr_model: MakeAsrModel, tmp_path: Path) -> Path:
    return Path(shutil.copytree(make_asr_model(), tmp_path / "copy"))


def test_the_digest_covers_the_model_and_not_other_files_in_its_folder(
    copy_of_model: Path, make_asr_model: MakeAsrModel
) -> None:
    assert model_digest(copy_of_model) == model_digest(make_asr_model())
    (copy_of_model / "model_card.md").write_text("# a card")
    assert model_digest(copy_of_model) == model_digest(make_asr_model())
    (copy_of_model / "model.json").write_text(json.dumps({**read_model_json(copy_of_model), "name": "other"}))
    assert model_digest(copy_of_model) != model_digest(make_asr_model())


def test_trains_output_folder_resolves_to_the_model_in_it(make_asr_model: MakeAsrModel) -> None:
    assert exported_folder(make_asr_model().parent) == make_asr_model()


@pytest.mark.parametrize("damage", ["graph cut", "graph empty", "variables cut", "variables gone"])
def test_a_damaged_model_is_named_and_not_loaded(copy_of_model: Path, damage: str) -> None:
    what, how = damage.split()
    victims = {
        "graph": [copy_of_model / "saved_model.pb"],
        "variables": sorted((copy_of_model / "variables").iterdir()),
    }
    for victim in victims[what]:
        if how == "gone":
            victim.unlink()
        else:
            victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2 if how == "cut" else 0])
    with pytest.raises(WorkError, match=r"copy: .*does not load"):
        Recognizer(copy_of_model)


def test_a_saved_model_without_the_signature_is_refused(tmp_path: Path, copy_of_model: Path) -> None:
    import tensorflow as tf

    tf.saved_model.save(tf.Module(), str(tmp_path / "other"))
    shutil.copy(copy_of_model / "model.json", tmp_path / "other")
    with pytest.raises(WorkError, match="no signature 'transcribe'"):
        Recognizer(tmp_path / "other")


def test_a_folder_without_a_model_is_refused(tmp_path: Path, copy_of_model: Path) -> None:
    with pytest.raises(WorkError, match=r"no saved_model.pb and no model.json"):
        model_digest(tmp_path)
    with pytest.raises(WorkError, match="no such folder"):
        model_digest(tmp_path / "nowhere")
    (copy_of_model / "model.json").write_text('{"name": "as')
    with pytest.raises(WorkError, match=r"model.json: not JSON"):
        read_model_json(copy_of_model)
    (copy_of_model / "model.json").write_text('{"name": "asr"}')
    with pytest.raises(WorkError, match="no family, kind, alphabet"):
        read_model_json(copy_of_model)


@hypothesis.given(st.lists(st.integers(1, 500), max_size=60), st.integers(1, 2_000))
def test_every_item_is_in_one_batch_and_no_batch_exceeds_the_limit(lengths: list[int], limit: int) -> None:
    batches = batches_by_length(lengths, limit)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        assert len(batch) == 1 or longest * len(batch) <= limit
        assert longest <= 2 * min(lengths[index] for index in batch)
