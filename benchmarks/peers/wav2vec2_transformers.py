"""Small wav2vec 2.0 and HuBERT models of `transformers`, for the tests of networks; runs in the peers' environment.

python wav2vec2_transformers.py FOLDER: writes a folder for each model as the Hub has it, of random weights, and beside
them outputs.npz:
  waveforms, lengths      float32 [rows, samples] and int64 [rows]
  features                of Wav2Vec2FeatureExtractor, each row alone
  logits/N                of row N alone, [frames, vocabulary]
  batch                   of all rows with an attention mask, where the model was trained with one
  hidden                  bool [rows, frames], frames that the gradients' step hides
  gradients/NAME          of the mean over rows of the sum of squared logits, by the Hub's names; that of a kernel with
                          weight norm is of the merged kernel
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn.utils import parametrize
from transformers import HubertConfig, HubertForCTC, Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2ForCTC

SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "conv_dim": [12, 16, 16, 12, 16, 12, 16],
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 11,
    "mask_time_prob": 0.05,
}
LARGE = {"feat_extract_norm": "layer", "conv_bias": True, "do_stable_layer_norm": True}
MODELS = {
    "wav2vec2": (Wav2Vec2Config, Wav2Vec2ForCTC, {}),
    "xlsr": (Wav2Vec2Config, Wav2Vec2ForCTC, {**LARGE, "num_conv_pos_embeddings": 7, "layer_norm_eps": 1e-3}),
    "mms": (Wav2Vec2Config, Wav2Vec2ForCTC, {**LARGE, "adapter_attn_dim": 5}),
    "hubert": (HubertConfig, HubertForCTC, {"feat_proj_layer_norm": False}),
}
LENGTHS = (5_000, 2_311, 400)
LETTERS = "|EATN'"


def randomize(model, generator):
    """Weights of such a size that each of them matters to the logits."""
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        with torch.no_grad():
            if name.endswith("original0"):
                value.copy_(1 + 0.2 * noise)
            elif value.ndim > 1:
                value.copy_(noise * 1.4 / value[0].numel() ** 0.5)
            elif "norm" in name and name.endswith("weight"):
                value.copy_(1 + 0.3 * noise)
            else:
                value.copy_(0.3 * noise)


def outputs(model, extractor, masked_batch):
    generator = np.random.default_rng(7)
    waveforms = np.zeros((len(LENGTHS), max(LENGTHS)), np.float32)
    for row, length in enumerate(LENGTHS):
        waveforms[row, :length] = 0.02 + 0.1 * generator.standard_normal(length)
    rows = [waveforms[row, :length] for row, length in enumerate(LENGTHS)]
    features = [extractor(row, sampling_rate=16_000, return_tensors="pt").input_values for row in rows]
    arrays = {"waveforms": waveforms, "lengths": np.array(LENGTHS)}
    arrays["features"] = np.zeros_like(waveforms)
    for row, values in enumerate(features):
        arrays["features"][row, : LENGTHS[row]] = values[0].numpy()

    with torch.no_grad():
        for row, values in enumerate(features):
            arrays[f"logits/{row}"] = model(values).logits[0].numpy()
        if masked_batch:
            inputs = extractor(
                rows, sampling_rate=16_000, padding=True, return_attention_mask=True, return_tensors="pt"
            )
            arrays["batch"] = model(inputs.input_values, attention_mask=inputs.attention_mask).logits.numpy()

    # One step, of the kernel as it is used.
    hidden = np.zeros((len(LENGTHS), len(arrays["logits/0"])), bool)
    hidden[0, 2:5] = hidden[0, 9:12] = hidden[1, 3:6] = True
    arrays["hidden"] = hidden
    encoder = getattr(model, model.base_model_prefix)
    parametrize.remove_parametrizations(encoder.encoder.pos_conv_embed.conv, "weight")
    loss = 0
    for row, values in enumerate(features):
        frames = len(arrays[f"logits/{row}"])
        spans = torch.tensor(hidden[row : row + 1, :frames])
        states = encoder(values, mask_time_indices=spans).last_hidden_state
        loss = loss + model.lm_head(states).square().sum() / len(features)
    loss.backward()
    arrays["loss"] = np.float32(loss.item())
    for name, value in model.named_parameters():
        arrays[f"gradients/{name}"] = value.grad.numpy()
    return arrays


def main(folder):
    for number, (name, (config_class, model_class, changes)) in enumerate(MODELS.items()):
        generator = torch.Generator().manual_seed(number)
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        config = config_class(**{**SMALL, **changes})
        model = model_class(config).eval()
        randomize(model, generator)

        config.architectures = [model_class.__name__]
        (target / "config.json").write_text(json.dumps(config.to_dict(), indent=1, default=str) + "\n")
        tokens = ["<pad>", "<s>", "</s>", "<unk>", *LETTERS, "S"]
        vocabulary = {token: index for index, token in enumerate(tokens)}
        written = {"eng": vocabulary, "fra": {**vocabulary, "É": len(tokens)}} if name == "mms" else vocabulary
        (target / "vocab.json").write_text(json.dumps(written, ensure_ascii=False) + "\n")
        extractor = Wav2Vec2FeatureExtractor(return_attention_mask=name in ("xlsr", "mms"))
        extractor.save_pretrained(target)

        # PyTorch's older names in one of them, as most public files have them.
        weights = {key: value.contiguous().clone() for key, value in model.state_dict().items()}
        if name == "wav2vec2":
            for old, new in (("weight_g", "original0"), ("weight_v", "original1")):
                prefix = "wav2vec2.encoder.pos_conv_embed.conv."
                weights[prefix + old] = weights.pop(f"{prefix}parametrizations.weight.{new}")
        save_file(weights, target / "model.safetensors", {"format": "pt"})

        arrays = {}
        if name == "mms":
            adapted = model_class(config_class(**{**SMALL, **changes, "vocab_size": len(tokens) + 1})).eval()
            randomize(adapted, generator)
            language = {key: value.detach().clone() for key, value in adapted._get_adapters().items()}
            save_file(language, target / "adapter.fra.safetensors", {"format": "pt"})
            rest = {key: value for key, value in model.state_dict().items() if key not in language}
            adapted.load_state_dict({**rest, **language})
            arrays = {
                f"fra/{key}": value for key, value in outputs(adapted, extractor, False).items() if "logits/" in key
            }

        arrays |= outputs(model, extractor, masked_batch=name in ("xlsr", "mms"))
        np.savez_compressed(target / "outputs.npz", **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
