"""The authors' vocoders in PyTorch's own operations, for `test_vocoders.py`; runs in the peers' environment.

python vocoders_torch.py FOLDER: reads FOLDER/given.npz (mels, waveforms and the weights of our networks, in the order
of Keras) and writes FOLDER/torch.npz. Composed as in hifi-gan's models.py and vocos' modules.py and heads.py.
"""

import json
import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812


def convolution(x, weights, **how):
    kernel, bias = next(weights), next(weights)
    if kernel.ndim == 4:
        return F.conv2d(x, kernel.permute(3, 2, 0, 1), bias, **how)
    return F.conv1d(x, kernel.permute(2, 1, 0), bias, **how)


def vocos(mels, weights, kernel, layers, size, hop):
    def norm(x):
        return F.layer_norm(x, x.shape[-1:], next(weights), next(weights), eps=1e-6)

    x = norm(convolution(mels.transpose(1, 2), weights, padding=kernel // 2).transpose(1, 2))
    for _ in range(layers):
        depthwise, bias = next(weights), next(weights)
        y = F.conv1d(
            x.transpose(1, 2), depthwise.permute(1, 2, 0), bias, padding=kernel // 2, groups=x.shape[-1]
        ).transpose(1, 2)
        y = norm(y)
        y = F.gelu(y @ next(weights) + next(weights))
        y = y @ next(weights) + next(weights)
        x = x + next(weights) * y
    x = norm(x) @ next(weights) + next(weights)
    magnitude, phase = x.transpose(1, 2).chunk(2, dim=1)
    magnitude = torch.clip(torch.exp(magnitude), max=1e2)
    spectrum = magnitude * (torch.cos(phase) + 1j * torch.sin(phase))
    return torch.istft(spectrum, size, hop, size, torch.hann_window(size), center=True)


def hifigan(mels, weights, rates, kernels, residual_kernels, dilations, double):
    x = convolution(mels.transpose(1, 2), weights, padding=3)
    for rate, kernel in zip(rates, kernels, strict=True):
        up, bias = next(weights), next(weights)
        x = F.conv_transpose1d(
            F.leaky_relu(x, 0.1), up.permute(2, 1, 0), bias, stride=rate, padding=(kernel - rate) // 2
        )
        total = 0
        for size, spread in zip(residual_kernels, dilations, strict=True):
            first = [(next(weights), next(weights)) for _ in spread]
            second = [(next(weights), next(weights)) for _ in spread] if double else []
            y = x
            for index, dilation in enumerate(spread):
                z = convolution(
                    F.leaky_relu(y, 0.1), iter(first[index]), dilation=dilation, padding=(size - 1) * dilation // 2
                )
                if double:
                    z = convolution(F.leaky_relu(z, 0.1), iter(second[index]), padding=(size - 1) // 2)
                y = y + z
            total = total + y
        x = total / len(residual_kernels)
    x = torch.tanh(convolution(F.leaky_relu(x), weights, padding=3))[:, 0]
    hop = int(np.prod(rates))
    return x[:, hop // 2 : hop // 2 + (mels.shape[1] - 1) * hop]


def by_period(x, weights, period, strides):
    batch, _, samples = x.shape
    if samples % period:
        x = F.pad(x, (0, period - samples % period), "reflect")
    x, found = x.view(batch, 1, -1, period), []
    for stride in strides:
        x = F.leaky_relu(convolution(x, weights, stride=(stride, 1), padding=(2, 0)), 0.1)
        found.append(x.permute(0, 2, 3, 1))
    return [*found, convolution(x, weights, padding=(1, 0)).permute(0, 2, 3, 1)]


def by_scale(x, weights, shapes):
    found = []
    for kernel, stride, groups in shapes:
        parts = [(next(weights), next(weights)) for _ in range(groups)]
        together = torch.cat([part for part, _ in parts], dim=-1), torch.cat([bias for _, bias in parts])
        x = F.leaky_relu(convolution(x, iter(together), stride=stride, groups=groups, padding=kernel // 2), 0.1)
        found.append(x.transpose(1, 2))
    return [*found, convolution(x, weights, padding=1).transpose(1, 2)]


def discriminators(waveforms, weights, periods, strides, scales, shapes):
    x, found = waveforms[:, None], []
    for period in periods:
        found += by_period(x, weights, period, strides)
    for index in range(scales):
        x = F.avg_pool1d(x, 4, 2, padding=2) if index else x
        found += by_scale(x, weights, shapes)
    return found


def main(folder: str) -> None:
    given = np.load(f"{folder}/given.npz", allow_pickle=False)
    how = json.loads(str(given["how"]))

    def weights(name: str) -> Iterator[torch.Tensor]:
        found = (given[f"{name}/{index}"] for index in range(int(given[f"{name}/count"])))
        return iter([torch.from_numpy(array) for array in found])

    mels, waveforms = torch.from_numpy(given["mels"]), torch.from_numpy(given["waveforms"])
    made = {
        "vocos": [vocos(mels, weights("vocos"), *how["vocos"])],
        "hifigan": [hifigan(mels, weights("hifigan"), *how["hifigan"])],
        "discriminators": discriminators(waveforms, weights("discriminators"), *how["discriminators"]),
    }
    np.savez(
        f"{folder}/torch.npz",
        **{f"{name}/{index}": part.numpy() for name, parts in made.items() for index, part in enumerate(parts)},
    )


if __name__ == "__main__":
    main(sys.argv[1])
