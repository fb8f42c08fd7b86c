"""The benchmark of a tuned voice: what it is tested on is trained on nowhere, and who speaks is heard."""

from pathlib import Path

import numpy as np

from benchmarks.public_voices import TESTED, VALIDATED, Prompt, split_prompts
from voxline.audio.speaker_encoder import ENCODER_RATE, PART, read_pytorch, voice_mels

TEXTS = [
    "; a comment",
    "beep: [this is a simple beep tone]",
    "silence/10: (10 seconds of silence)",
    "digits/1: One.",
    "letters/a: A [A]",
    *(f"menu/{number}: Press {number} to hear message {number}." for number in range(100)),
    *(f"again/{number}: press {number} to hear message {number}" for number in range(0, 100, 2)),
]


def splits(prompts: list[Prompt]) -> dict[str, list[str]]:
    return {
        split: [prompt.text.lower().rstrip(".") for prompt in prompts if prompt.split == split]
        for split in ("test", "dev", "train")
    }


def test_no_text_of_the_test_is_trained_on(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    prompts = split_prompts(texts)
    said = splits(prompts)
    assert (len(said["test"]), len(said["dev"])) == (TESTED, VALIDATED)
    assert not set(said["train"]) & {*said["test"], *said["dev"]}
    assert {"one", "a"} <= set(said["train"])
    assert len({prompt.name for prompt in prompts}) == len(prompts)

    # A further prompt moves none, and those that were not recorded are in no split.
    texts.write_text("\n".join([*TEXTS, "more: This is something else."]), encoding="utf-8")
    moved = {prompt.name for prompt in split_prompts(texts) if prompt.split == "test"}
    assert len(moved - {prompt.name for prompt in prompts if prompt.split == "test"}) <= 1
    assert split_prompts(texts, tmp_path) == []


def test_tensors_of_an_old_pytorch_file_are_read_without_running_it() -> None:
    """A file as PyTorch 1.0 wrote it: two tensors share a storage, of which one begins behind the other."""
    head = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}."

    def text(value: str) -> bytes:
        return b"X" + len(value).to_bytes(4, "little") + value.encode()

    def tensor(name: str, first: int, shape: tuple[int, int], *, again: bool) -> bytes:
        rebuild = b"h\x02" if again else b"ctorch._utils\n_rebuild_tensor_v2\nq\x02"
        kind = b"h\x03h\x04" if again else text("storage") + b"q\x03ctorch\nFloatStorage\nq\x04"
        key = b"h\x05h\x06" if again else text("77") + b"q\x05" + text("cpu") + b"q\x06"
        rows, columns = shape
        sizes = b"K%cK%c\x86K%cK\x01\x86" % (rows, columns, columns)
        place = b"((" + kind + key + b"K\x08NtQK%c" % first + sizes + b"\x89ccollections\nOrderedDict\n)Rt"
        return text(name) + rebuild + place + b"R"

    state = b"\x80\x02}(" + text("step") + b"K\x07" + text("model_state") + b"}("
    state += tensor("first", 0, (1, 2), again=False) + tensor("second", 2, (2, 3), again=True)
    state += b"u" + text("_metadata") + b"Nu."
    values = np.arange(8, dtype="<f4")
    content = head + state + b"\x80\x02](" + text("77") + b"e." + (8).to_bytes(8, "little") + values.tobytes()
    tensors = read_pytorch(content)
    np.testing.assert_array_equal(tensors["first"], [[0, 1]])
    np.testing.assert_array_equal(tensors["second"], [[2, 3, 4], [5, 6, 7]])
    assert set(tensors) == {"first", "second"}


def test_a_voice_is_heard_at_one_level_and_without_its_pauses() -> None:
    speech = np.sin(2 * np.pi * 220 * np.arange(2 * ENCODER_RATE) / ENCODER_RATE)
    paused = np.concatenate([np.zeros(ENCODER_RATE), 0.01 * speech, np.zeros(ENCODER_RATE)])
    mels, heard = voice_mels(speech), voice_mels(paused)
    assert abs(len(mels) - len(heard)) <= 4
    np.testing.assert_allclose(heard[20:PART].mean(axis=0), mels[20:PART].mean(axis=0), rtol=0.05, atol=1e-6)
