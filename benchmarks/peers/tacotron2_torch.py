"""The peer of `benchmarks/synthesis.py`: the same Tacotron 2 in PyTorch, eager, laid out as NVIDIA's.

Runs in an environment of its own, reads sizes as JSON on standard input, and prints seconds as JSON: of training
steps fed with recorded frames where `what` is "step", of free-running decodings of `steps` steps where it is "speak".
"""

import json
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional


class Tacotron2(nn.Module):
    """Encoder, location-sensitive attention, two LSTM cells, projection, post-net; one step after the other."""

    def __init__(self, size: dict) -> None:
        super().__init__()
        self.size = size
        units, channels, mels = size["units"], size["channels"], size["mels"]
        memory = 2 * size["lstm"]
        self.embedding = nn.Embedding(size["symbols"], size["embedding"])
        self.convolutions = nn.ModuleList()
        width = size["embedding"]
        for _ in range(size["convolutions"]):
            self.convolutions.append(self._convolution(width, channels))
            width = channels
        self.lstm = nn.LSTM(width, size["lstm"], batch_first=True, bidirectional=True)
        self.prenet = nn.ModuleList()
        width = mels
        for wide in size["prenet"]:
            self.prenet.append(nn.Linear(width, wide))
            width = wide
        self.asking = nn.LSTMCell(width + memory, units)
        self.reading = nn.LSTMCell(units + memory, units)
        self.query = nn.Linear(units, size["attention"], bias=False)
        self.key = nn.Linear(memory, size["attention"])
        self.location = nn.Conv1d(2, size["filters"], size["taps"], padding=size["taps"] // 2, bias=False)
        self.placed = nn.Linear(size["filters"], size["attention"], bias=False)
        self.energy = nn.Linear(size["attention"], 1, bias=False)
        self.frames = nn.Linear(units + memory, mels * size["reduction"])
        self.stop = nn.Linear(units + memory, size["reduction"])
        self.postnet = nn.ModuleList()
        width = mels
        for index in range(size["postnet"]):
            wide = mels if index == size["postnet"] - 1 else size["postnet_channels"]
            self.postnet.append(self._convolution(width, wide))
            width = wide

    def _convolution(self, inputs: int, outputs: int) -> nn.Module:
        taps = self.size["kernel"]
        return nn.Sequential(nn.Conv1d(inputs, outputs, taps, padding=taps // 2, bias=False), nn.BatchNorm1d(outputs))

    def encode(self, labels: torch.Tensor) -> torch.Tensor:
        x = self.embedding(labels).transpose(1, 2)
        for convolution in self.convolutions:
            x = functional.dropout(functional.relu(convolution(x)), 0.5, self.training)
        return self.lstm(x.transpose(1, 2))[0]

    def start(self, memory: torch.Tensor) -> list:
        batch, symbols, wide = memory.shape
        states = [memory.new_zeros(batch, self.size["units"]) for _ in range(4)]
        return [
            *states,
            memory.new_zeros(batch, wide),
            memory.new_zeros(batch, symbols),
            memory.new_zeros(batch, symbols),
        ]

    def narrow(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.prenet:
            x = functional.dropout(functional.relu(layer(x)), 0.5, True)
        return x

    def step(
        self, x: torch.Tensor, memory: torch.Tensor, keys: torch.Tensor, mask: torch.Tensor, states: list
    ) -> tuple:
        h1, c1, h2, c2, context, previous, cumulative = states
        h1, c1 = self.asking(torch.cat([x, context], -1), (h1, c1))
        h1 = functional.dropout(h1, self.size["dropout"], self.training)
        past = self.location(torch.stack([previous, cumulative], 1)).transpose(1, 2)
        energy = self.energy(torch.tanh(self.query(h1)[:, None] + keys + self.placed(past))).squeeze(-1)
        previous = functional.softmax(energy.masked_fill(mask, -1e9), 1)
        context = torch.bmm(previous[:, None], memory).squeeze(1)
        h2, c2 = self.reading(torch.cat([h1, context], -1), (h2, c2))
        h2 = functional.dropout(h2, self.size["dropout"], self.training)
        joined = torch.cat([h2, context], -1)
        return self.frames(joined), self.stop(joined), [h1, c1, h2, c2, context, previous, cumulative + previous]

    def forward(self, labels: torch.Tensor, features: torch.Tensor, mask: torch.Tensor) -> tuple:
        size = self.size
        memory = self.encode(labels)
        keys, states = self.key(memory), self.start(memory)
        batch, length, mels = features.shape
        fed = features.reshape(batch, -1, size["reduction"], mels)[:, :-1, -1]
        fed = self.narrow(functional.pad(fed, (0, 0, 1, 0)))
        frames, stops = [], []
        for index in range(fed.shape[1]):
            made, stop, states = self.step(fed[:, index], memory, keys, mask, states)
            frames.append(made)
            stops.append(stop)
        before = torch.stack(frames, 1).reshape(batch, length, mels)
        x = before.transpose(1, 2)
        for index, convolution in enumerate(self.postnet):
            x = convolution(x)
            x = functional.dropout(x if index == size["postnet"] - 1 else torch.tanh(x), 0.5, self.training)
        return before, before + x.transpose(1, 2), torch.stack(stops, 1).reshape(batch, length)

    @torch.inference_mode()
    def synthesize(self, labels: torch.Tensor, steps: int) -> torch.Tensor:
        memory = self.encode(labels)
        keys, states = self.key(memory), self.start(memory)
        mask = torch.zeros(labels.shape, dtype=torch.bool)
        own, frames = memory.new_zeros(len(labels), self.size["mels"]), []
        for _ in range(steps):
            made, stop, states = self.step(self.narrow(own), memory, keys, mask, states)
            own = made[:, -self.size["mels"] :]
            frames.append(made)
            if bool((torch.sigmoid(stop) > 2).any()):  # never, but it is asked, as who decodes must
                break
        x = torch.stack(frames, 1).reshape(len(labels), -1, self.size["mels"]).transpose(1, 2)
        before = x
        for index, convolution in enumerate(self.postnet):
            x = convolution(x) if index == self.size["postnet"] - 1 else torch.tanh(convolution(x))
        return before + x


def peak_memory() -> int:
    """Bytes of this program alone: what `getrusage` tells begins with the peak of what started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    size = json.load(sys.stdin)
    torch.manual_seed(0)
    torch.set_num_threads(size["threads"])
    model = Tacotron2(size)
    labels = torch.randint(0, size["symbols"], (size["batch"], size["text"]))
    seconds = []
    if size["what"] == "step":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-6)
        features = torch.randn(size["batch"], size["steps"] * size["reduction"], size["mels"])
        mask = torch.zeros(labels.shape, dtype=torch.bool)
        target = torch.zeros(features.shape[:2])
        for _ in range(size["rounds"]):
            start = time.perf_counter()
            optimizer.zero_grad()
            before, after, stop = model(labels, features, mask)
            loss = functional.l1_loss(before, features) + functional.l1_loss(after, features)
            (loss + functional.binary_cross_entropy_with_logits(stop, target)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            seconds.append(time.perf_counter() - start)
    else:
        model.eval()
        for _ in range(size["rounds"]):
            start = time.perf_counter()
            model.synthesize(labels, size["steps"])
            seconds.append(time.perf_counter() - start)
    weights = sum(parameter.numel() for parameter in model.parameters())
    json.dump(
        {"seconds": seconds, "bytes": peak_memory(), "weights": weights, "version": torch.__version__}, sys.stdout
    )


if __name__ == "__main__":
    main()
