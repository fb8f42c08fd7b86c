"""A small Tacotron 2 with random weights, for the tests of networks; runs in the peers' environment.

python public_tacotron2.py FOLDER: writes a folder with the config.json of NVIDIA's checkpoints, model.safetensors by
its names, and outputs.npz:
  ids                     int64 [rows, symbols], of NVIDIA's symbols
  counts, frames          int64 [rows], of real ones
  mels                    [rows, frames, bands], which the decoder is fed with
  before, after, stop     what it predicts, without dropout: mels before and after the post-net, stop logits
  alignments              [rows, frames, symbols]

Composed as in NVIDIA's model.py.
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

CONFIG = {
    "mask_padding": True,
    "n_mel_channels": 8,
    "n_symbols": 148,
    "symbols_embedding_dim": 12,
    "encoder_kernel_size": 5,
    "encoder_n_convolutions": 3,
    "encoder_embedding_dim": 12,
    "attention_rnn_dim": 14,
    "attention_dim": 10,
    "attention_location_n_filters": 4,
    "attention_location_kernel_size": 7,
    "n_frames_per_step": 1,
    "decoder_rnn_dim": 14,
    "prenet_dim": 9,
    "max_decoder_steps": 1000,
    "gate_threshold": 0.5,
    "p_attention_dropout": 0.1,
    "p_decoder_dropout": 0.1,
    "postnet_embedding_dim": 11,
    "postnet_kernel_size": 5,
    "postnet_n_convolutions": 5,
    "decoder_no_early_stopping": False,
}
LETTERS = torch.tensor([1, 2, 3, *range(6, 12), *range(38, 64)])
"""Small letters and marks."""
ROWS, SYMBOLS, FRAMES = (9, 6), 9, (12, 8)


class Linear(nn.Module):
    def __init__(self, inputs, outputs, bias=False):
        super().__init__()
        self.linear_layer = nn.Linear(inputs, outputs, bias=bias)

    def forward(self, x):
        return self.linear_layer(x)


class Convolution(nn.Module):
    def __init__(self, inputs, outputs, taps, bias=True):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, taps, padding=taps // 2, bias=bias)

    def forward(self, x):
        return self.conv(x)


def convolutions(widths, taps):
    return nn.ModuleList(
        nn.Sequential(Convolution(inputs, outputs, taps), nn.BatchNorm1d(outputs))
        for inputs, outputs in itertools.pairwise(widths)
    )


class Encoder(nn.Module):
    def __init__(self, size):
        super().__init__()
        width = size["encoder_embedding_dim"]
        self.convolutions = convolutions([width] * (size["encoder_n_convolutions"] + 1), size["encoder_kernel_size"])
        self.lstm = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)


class Prenet(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.layers = nn.ModuleList([Linear(inputs, width), Linear(width, width)])

    def forward(self, x):
        for layer in self.layers:
            x = functional.relu(layer(x))
        return x


class Location(nn.Module):
    def __init__(self, filters, taps, width):
        super().__init__()
        self.location_conv = Convolution(2, filters, taps, bias=False)
        self.location_dense = Linear(filters, width)


class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        width = size["attention_dim"]
        self.query_layer = Linear(size["attention_rnn_dim"], width)
        self.memory_layer = Linear(size["encoder_embedding_dim"], width)
        self.v = Linear(width, 1)
        filters, taps = size["attention_location_n_filters"], size["attention_location_kernel_size"]
        self.location_layer = Location(filters, taps, width)


class Decoder(nn.Module):
    def __init__(self, size):
        super().__init__()
        units, memory, mels = size["decoder_rnn_dim"], size["encoder_embedding_dim"], size["n_mel_channels"]
        self.prenet = Prenet(mels, size["prenet_dim"])
        self.attention_rnn = nn.LSTMCell(size["prenet_dim"] + memory, units)
        self.attention_layer = Attention(size)
        self.decoder_rnn = nn.LSTMCell(units + memory, units)
        self.linear_projection = Linear(units + memory, mels, bias=True)
        self.gate_layer = Linear(units + memory, 1, bias=True)


class Postnet(nn.Module):
    def __init__(self, size):
        super().__init__()
        inner = [size["postnet_embedding_dim"]] * (size["postnet_n_convolutions"] - 1)
        widths = [size["n_mel_channels"], *inner, size["n_mel_channels"]]
        self.convolutions = convolutions(widths, size["postnet_kernel_size"])


class Tacotron2(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embedding = nn.Embedding(size["n_symbols"], size["symbols_embedding_dim"])
        self.encoder = Encoder(size)
        self.decoder = Decoder(size)
        self.postnet = Postnet(size)

    def row(self, ids, mels):
        """One row without padding, fed with its frames [frames, mels]."""
        x = self.embedding(ids)[None].transpose(1, 2)
        for convolution in self.encoder.convolutions:
            x = functional.relu(convolution(x))
        memory = self.encoder.lstm(x.transpose(1, 2))[0]

        decoder = self.decoder
        attention = decoder.attention_layer
        keys = attention.memory_layer(memory)
        previous = torch.zeros(1, len(ids))
        cumulative = torch.zeros(1, len(ids))
        context = torch.zeros(1, memory.shape[2])
        asking = reading = None
        fed = decoder.prenet(torch.cat([torch.zeros(1, mels.shape[1]), mels[:-1]]))
        before, stop, alignments = [], [], []
        for frame in fed:
            asking = decoder.attention_rnn(torch.cat([frame[None], context], 1), asking)
            past = attention.location_layer.location_conv(torch.stack([previous, cumulative], 1))
            placed = attention.location_layer.location_dense(past.transpose(1, 2))
            energy = attention.v(torch.tanh(attention.query_layer(asking[0])[:, None] + placed + keys))[..., 0]
            previous = torch.softmax(energy, 1)
            cumulative = cumulative + previous
            context = (previous[:, None] @ memory)[:, 0]
            reading = decoder.decoder_rnn(torch.cat([asking[0], context], 1), reading)
            output = torch.cat([reading[0], context], 1)
            before.append(decoder.linear_projection(output)[0])
            stop.append(decoder.gate_layer(output)[0, 0])
            alignments.append(previous[0])

        before = torch.stack(before)
        x = before.T[None]
        for convolution in self.postnet.convolutions[:-1]:
            x = torch.tanh(convolution(x))
        after = before + self.postnet.convolutions[-1](x)[0].T
        return before, after, torch.stack(stop), torch.stack(alignments)


def randomize(model, seed):
    """Weights of such a size that each of them matters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=generator)
            if ".1.weight" in name:
                value.copy_(1 + 0.3 * noise)
            else:
                value.copy_(noise / value[0].numel() ** 0.5 if value.ndim > 1 else 0.3 * noise)
        for name, value in model.named_buffers():
            noise = torch.randn(value.shape, generator=generator)
            if name.endswith("running_mean"):
                value.copy_(0.3 * noise)
            elif name.endswith("running_var"):
                value.copy_(torch.exp(2 * noise - 3))


@torch.no_grad()
def main(folder):
    model = Tacotron2(CONFIG).eval()
    randomize(model, 11)
    generator = torch.Generator().manual_seed(12)
    ids = LETTERS[torch.randint(len(LETTERS), (len(ROWS), SYMBOLS), generator=generator)]
    mels = torch.randn((len(ROWS), max(FRAMES), CONFIG["n_mel_channels"]), generator=generator)
    padded = [[], [], [], []]
    for row, (count, frames) in enumerate(zip(ROWS, FRAMES, strict=True)):
        for part, value in zip(padded, model.row(ids[row, :count], mels[row, :frames]), strict=True):
            part.append(functional.pad(value, [0, 0] * (value.ndim - 1) + [0, max(FRAMES) - frames]))
        padded[3][-1] = functional.pad(padded[3][-1], [0, SYMBOLS - count])

    folder = folder / "tacotron2"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    (folder / "README.md").write_text("---\nlicense: bsd-3-clause\n---\nRandom weights.\n")
    save_file(
        {name: value.contiguous() for name, value in model.state_dict().items()}, str(folder / "model.safetensors")
    )
    names = ("before", "after", "stop", "alignments")
    outputs = {name: torch.stack(part).numpy() for name, part in zip(names, padded, strict=True)}
    counts = {"counts": np.array(ROWS), "frames": np.array(FRAMES)}
    np.savez_compressed(folder / "outputs.npz", ids=ids.numpy(), mels=mels.numpy(), **counts, **outputs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
