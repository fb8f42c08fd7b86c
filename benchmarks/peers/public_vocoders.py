"""Small public vocoders with random weights, for the tests of networks; runs in the peers' environment.

python public_vocoders.py FOLDER: writes a folder for each, with the config.json of its authors, model.safetensors with
weight norm, and outputs.npz:
  mels                    [rows, frames, bands]
  waveforms               [rows, samples], HiFi-GAN's of all frames; WaveGlow's input, in [-1, 1]
  noise                   [rows, groups, group], WaveGlow's of these waveforms

HiFi-GAN is that of `transformers`, by its authors' names. WaveGlow is composed as in NVIDIA's glow.py.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import weight_norm
from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

MELS = 9
HOP = 32
HIFIGAN = {
    "resblock": "1",
    "upsample_rates": [8, 4],
    "upsample_kernel_sizes": [16, 8],
    "upsample_initial_channel": 16,
    "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 3, 5], [1, 2, 3]],
    "num_mels": MELS,
    "n_fft": 128,
    "hop_size": HOP,
    "win_size": 128,
    "sampling_rate": 8000,
    "fmin": 0,
    "fmax": 3800,
}
WAVEGLOW = {
    "data_config": {
        "sampling_rate": 8000,
        "filter_length": 128,
        "hop_length": HOP,
        "win_length": 128,
        "mel_fmin": 0.0,
        "mel_fmax": 3800.0,
    },
    "waveglow_config": {
        "n_mel_channels": MELS,
        "n_flows": 5,
        "n_group": 8,
        "n_early_every": 2,
        "n_early_size": 2,
        "WN_config": {"n_layers": 3, "n_channels": 6, "kernel_size": 3},
    },
}


class WaveNet(nn.Module):
    """WN of glow.py."""

    def __init__(self, channels, bands, n_layers, n_channels, kernel_size):
        super().__init__()
        self.start = weight_norm(nn.Conv1d(channels, n_channels, 1))
        self.end = nn.Conv1d(n_channels, 2 * channels, 1)
        self.cond_layer = weight_norm(nn.Conv1d(bands, 2 * n_channels * n_layers, 1))
        self.in_layers = nn.ModuleList()
        self.res_skip_layers = nn.ModuleList()
        for layer in range(n_layers):
            reach = (kernel_size // 2) << layer
            gates = nn.Conv1d(n_channels, 2 * n_channels, kernel_size, dilation=1 << layer, padding=reach)
            outputs = nn.Conv1d(n_channels, n_channels if layer == n_layers - 1 else 2 * n_channels, 1)
            self.in_layers.append(weight_norm(gates))
            self.res_skip_layers.append(weight_norm(outputs))

    def forward(self, x, condition):
        x = self.start(x)
        width = x.shape[1]
        conditions = self.cond_layer(condition).split(2 * width, dim=1)
        skipped = 0
        for gated, mixed, given in zip(self.in_layers, self.res_skip_layers, conditions, strict=True):
            tangent, sigmoid = (gated(x) + given).chunk(2, dim=1)
            made = mixed(torch.tanh(tangent) * torch.sigmoid(sigmoid))
            if made.shape[1] > width:
                x = x + made[:, :width]
            skipped = skipped + made[:, -width:]
        return self.end(skipped)


class Mixing(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 1, bias=False)


class WaveGlow(nn.Module):
    """Towards noise."""

    def __init__(self, n_mel_channels, n_flows, n_group, n_early_every, n_early_size, WN_config):  # noqa: N803 - theirs
        super().__init__()
        self.group, self.every, self.early = n_group, n_early_every, n_early_size
        self.upsample = nn.ConvTranspose1d(n_mel_channels, n_mel_channels, 4 * HOP, stride=HOP)
        channels = [n_group - flow // n_early_every * n_early_size for flow in range(n_flows)]
        self.WN = nn.ModuleList(WaveNet(count // 2, n_mel_channels * n_group, **WN_config) for count in channels)
        self.convinv = nn.ModuleList(map(Mixing, channels))

    def forward(self, mels, waveforms):
        spectrum = self.upsample(mels)[:, :, : waveforms.shape[1]].unfold(2, self.group, self.group)
        condition = spectrum.permute(0, 2, 1, 3).flatten(2).permute(0, 2, 1)
        x = waveforms.unfold(1, self.group, self.group).permute(0, 2, 1)
        noise = []
        for flow, (mixing, wavenet) in enumerate(zip(self.convinv, self.WN, strict=True)):
            if flow and flow % self.every == 0:
                noise.append(x[:, : self.early])
                x = x[:, self.early :]
            same, changed = mixing.conv(x).chunk(2, dim=1)
            shift, log_scale = wavenet(same, condition).chunk(2, dim=1)
            x = torch.cat([same, torch.exp(log_scale) * changed + shift], 1)
        return torch.cat([*noise, x], 1).permute(0, 2, 1)


def randomize(model, seed):
    """Weights of such a size that each of them matters."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        with torch.no_grad():
            if name.endswith(("weight_g", "original0")):
                value.copy_(1 + 0.2 * noise)
            elif "convinv" in name:
                value.copy_(torch.linalg.qr(noise[:, :, 0])[0][..., None] + 0.1 * noise)
            elif value.ndim > 1:
                value.copy_(noise * 0.8 / value[0].numel() ** 0.5)
            else:
                value.copy_(0.2 * noise)


def write(folder, config, tensors, outputs):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "README.md").write_text("---\nlicense: bsd-3-clause\n---\nRandom weights.\n")
    save_file({name: value.contiguous() for name, value in tensors.items()}, str(folder / "model.safetensors"))
    np.savez_compressed(folder / "outputs.npz", **{name: value.numpy() for name, value in outputs.items()})


@torch.no_grad()
def main(folder):
    generator = torch.Generator().manual_seed(4)
    mels = torch.randn((2, 11, MELS), generator=generator)
    waveforms = 0.3 * torch.randn((2, 10 * HOP), generator=generator)

    same = ("upsample_rates", "upsample_kernel_sizes", "upsample_initial_channel", "resblock_kernel_sizes")
    sizes = {name: HIFIGAN[name] for name in (*same, "resblock_dilation_sizes")}
    hifigan = SpeechT5HifiGan(SpeechT5HifiGanConfig(model_in_dim=MELS, normalize_before=False, **sizes)).eval()
    hifigan.apply_weight_norm()
    randomize(hifigan, 5)
    renamed = {
        name.replace("upsampler.", "ups.")
        .replace("parametrizations.weight.original0", "weight_g")
        .replace("parametrizations.weight.original1", "weight_v"): value
        for name, value in hifigan.state_dict().items()
        if name not in ("mean", "scale")
    }
    write(folder / "hifigan", HIFIGAN, renamed, {"mels": mels, "waveforms": hifigan(mels)})

    waveglow = WaveGlow(**WAVEGLOW["waveglow_config"]).eval()
    randomize(waveglow, 6)
    noise = waveglow(mels.transpose(1, 2), waveforms)
    outputs = {"mels": mels, "waveforms": waveforms, "noise": noise}
    write(folder / "waveglow", WAVEGLOW, waveglow.state_dict(), outputs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
