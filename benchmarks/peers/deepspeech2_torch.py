"""The peer of `benchmarks/training.py`: the same Deep Speech 2 step in PyTorch, eager.

Runs in an environment of its own, reads what to build as JSON on standard input (batch, frames, bins,
labels, symbols, convolutions, recurrent layers, steps), and prints seconds a step as JSON.
"""

import json
import sys
import time
from pathlib import Path

import torch


class DeepSpeech2(torch.nn.Module):
    """Convolutions over time and frequency, bidirectional GRUs over packed sequences, dense to symbols."""

    def __init__(self, shape: dict) -> None:
        super().__init__()
        self.convolutions = torch.nn.ModuleList()
        self.norms = torch.nn.ModuleList()
        self.strides = []
        channels, bins = 1, shape["bins"]
        for layer in shape["convolutions"]:
            self.convolutions.append(
                torch.nn.Conv2d(
                    channels,
                    layer["channels"],
                    layer["kernel"],
                    layer["stride"],
                    padding=[size // 2 for size in layer["kernel"]],
                )
            )
            self.norms.append(torch.nn.BatchNorm2d(layer["channels"]))
            self.strides.append(layer["stride"][0])
            channels, bins = layer["channels"], -(-bins // layer["stride"][1])
        self.recurrent = torch.nn.ModuleList()
        width = channels * bins
        for _ in range(shape["layers"]):
            self.recurrent.append(torch.nn.GRU(width, shape["units"], batch_first=True, bidirectional=True))
            width = 2 * shape["units"]
        self.dropout = torch.nn.Dropout(shape["dropout"])
        self.spell = torch.nn.Linear(width, shape["symbols"] + 1)

    def forward(self, features: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`features` [batch, frames, bins] -> log-probabilities [batch, frames, symbols + 1], frames left."""
        hidden = features[:, None]
        for convolution, norm, stride in zip(self.convolutions, self.norms, self.strides, strict=True):
            hidden = torch.clamp(norm(convolution(hidden)), 0, 20)
            frames = -(-frames // stride)
            hidden = hidden * (torch.arange(hidden.shape[2])[None] < frames[:, None])[:, None, :, None]
        hidden = hidden.permute(0, 2, 1, 3).flatten(2)
        for layer in self.recurrent:
            packed = torch.nn.utils.rnn.pack_padded_sequence(hidden, frames, batch_first=True, enforce_sorted=False)
            hidden, _ = torch.nn.utils.rnn.pad_packed_sequence(layer(packed)[0], batch_first=True)
            hidden = self.dropout(hidden)
        return self.spell(hidden).log_softmax(-1), frames


def peak_memory() -> int:
    """Bytes of this program alone: what `getrusage` tells begins with the peak of what started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    shape = json.load(sys.stdin)
    torch.manual_seed(0)
    torch.set_num_threads(shape["threads"])
    model = DeepSpeech2(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3, betas=(0.9, 0.98))
    loss_of = torch.nn.CTCLoss(blank=shape["symbols"], zero_infinity=True)
    frames = torch.tensor(shape["frames"])
    features = torch.randn(len(frames), int(frames.max()), shape["bins"])
    lengths = torch.tensor(shape["labels"])
    labels = torch.randint(0, shape["symbols"], (len(frames), int(lengths.max())))
    seconds = []
    for _ in range(shape["steps"]):
        start = time.perf_counter()
        optimizer.zero_grad()
        log_probabilities, left = model(features, frames)
        loss = loss_of(log_probabilities.transpose(0, 1), labels, left, lengths)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    weights = sum(parameter.numel() for parameter in model.parameters())
    json.dump(
        {"seconds": seconds, "bytes": peak_memory(), "weights": weights, "version": torch.__version__}, sys.stdout
    )


if __name__ == "__main__":
    main()
