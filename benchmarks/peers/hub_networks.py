"""Small public networks with random weights, their inputs, logits and gradients, by `transformers` and PyTorch.

python hub_networks.py whisper FOLDER      writes config.json, model.safetensors and outputs.npz
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers


def randomize(model: torch.nn.Module, seed: int) -> None:
    """Draws every parameter again: fresh biases are zero and fresh norms one, which would hide a fault."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = noise * 0.2 + (1.0 if parameter.ndim == 1 and parameter.data.mean() > 0.5 else 0.0)


def whisper(folder: Path) -> None:
    """An encoder of two blocks; features of 64 frames, the longest that it takes."""
    config = transformers.WhisperConfig(
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=32,
        max_target_positions=16,
        vocab_size=60,
        num_mel_bins=8,
        pad_token_id=57,
        bos_token_id=57,
        eos_token_id=57,
        decoder_start_token_id=58,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    positions = model.model.encoder.embed_positions.weight.detach().clone()
    randomize(model, 1)
    model.model.encoder.embed_positions.weight.data = positions
    model.save_pretrained(folder)

    generator = np.random.default_rng(2)
    features = generator.standard_normal((2, 64, 8)).astype(np.float32)
    labels = torch.tensor(generator.integers(0, 57, (2, 6)))
    output = model(
        input_features=torch.tensor(features).transpose(1, 2), decoder_input_ids=labels, labels=labels.roll(-1, 1)
    )
    output.loss.backward()
    gradients = {
        name: parameter.grad.numpy() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    np.savez_compressed(
        folder / "outputs.npz",
        features=features,
        tokens=labels.numpy().astype(np.int32),
        encoded=output.encoder_last_hidden_state.detach().numpy(),
        logits=output.logits.detach().numpy(),
        loss=output.loss.item(),
        **{f"gradients/{name}": value for name, value in gradients.items()},
    )


if __name__ == "__main__":
    {"whisper": whisper}[sys.argv[1]](Path(sys.argv[2]))
