"""The authors' vocoders in PyTorch's own operations, for the tests of vocoders; runs in the peers' environment.

python vocoders_torch.py FOLDER: reads FOLDER/given.npz (mels, waveforms and the weights of our networks, in the order
of computation) and writes FOLDER/torch.npz. Composed as in hifi-gan's models.py, iSTFTNet's, vocos' modules.py and
heads.py, waveglow's glow.py and denoiser.py, and the pseudo-QMF of multi-band MelGAN.
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


def vocos(mels, weights, kernel, layers, size, hop, filterbank=None, power=1.0):
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
    if filterbank is not None:
        magnitude = magnitude + prior(mels, filterbank, power).transpose(1, 2)
    magnitude = torch.clip(torch.exp(magnitude), max=1e2)
    spectrum = magnitude * (torch.cos(phase) + 1j * torch.sin(phase))
    return torch.istft(spectrum, size, hop, size, torch.hann_window(size), center=True)


def prior(mels, filterbank, power):
    """Log magnitudes whose mels are given, by four updates of Lee and Seung 2000 for the divergence of Kullback and
    Leibler; of windows as long as the transform that the mels are of. Bins that no band has stay at the floor.
    """
    bands, total = torch.exp(mels), filterbank.sum(1)
    back = torch.where(total[:, None] > 0, filterbank / total.clamp(min=1e-30)[:, None], torch.zeros(())).T
    spectrum = bands @ back
    for _ in range(4):
        spectrum = spectrum * ((bands / (spectrum @ filterbank).clamp(min=1e-10)) @ back)
    return power * torch.log(spectrum.clamp(min=1e-5 ** (1 / power)))


def wavenet(x, condition, weights, layers, width):
    """WN.forward of glow.py; the weights are those of one flow, in its order."""
    x, conditions, total = convolution(x, weights), convolution(condition, weights), 0
    for layer in range(layers):
        gates = convolution(x, weights, dilation=2**layer, padding=2**layer)
        gates = gates + conditions[:, 2 * width * layer : 2 * width * (layer + 1)]
        made = convolution(torch.tanh(gates[:, :width]) * torch.sigmoid(gates[:, width:]), weights)
        total = total + made[:, -width:]
        x = x + made[:, :width]
    shift, log_scale = convolution(total, weights).chunk(2, dim=1)
    return shift, log_scale


def waveglow(mels, waveforms, weights, group, every, early, layers, width, hop, sigma):
    """WaveGlow.forward, its loss for each row, and WaveGlow.infer from the same noise."""
    up, bias, rows = next(weights), next(weights), len(mels)
    spectrum = F.conv_transpose1d(mels.transpose(1, 2), up.permute(2, 1, 0), bias, stride=hop)
    spectrum = spectrum[:, :, : waveforms.shape[1]].unfold(2, group, group).permute(0, 2, 1, 3)
    condition = spectrum.reshape(rows, spectrum.shape[1], -1).permute(0, 2, 1)
    x = waveforms.unfold(1, group, group).permute(0, 2, 1)
    out, flows, loss = [], [], 0
    while (mixing := next(weights, None)) is not None:
        if flows and len(flows) % every == 0:
            out.append(x[:, :early])
            x = x[:, early:]
        of_flow = [next(weights) for _ in range(6 + 4 * layers)]
        # glow.py lays the mels of a group side by side, ours the frames: the same sums in another order.
        kernel = of_flow[2].reshape(1, group, mels.shape[2], -1).transpose(1, 2)
        of_flow[2] = kernel.reshape(1, group * mels.shape[2], -1)
        flows.append((mixing.T[:, :, None], of_flow))
        x = F.conv1d(x, flows[-1][0])
        same, changed = x.chunk(2, dim=1)
        shift, log_scale = wavenet(same, condition, iter(of_flow), layers, width)
        x = torch.cat([same, torch.exp(log_scale) * changed + shift], 1)
        loss = loss - log_scale.sum((1, 2)) - x.shape[2] * torch.logdet(mixing)
    noise = torch.cat([*out, x], 1)
    loss = (loss + (noise * noise).sum((1, 2)) / (2 * sigma * sigma)) / waveforms.shape[1]
    for index in reversed(range(len(flows))):
        kernel, of_flow = flows[index]
        same, changed = x.chunk(2, dim=1)
        shift, log_scale = wavenet(same, condition, iter(of_flow), layers, width)
        x = F.conv1d(
            torch.cat([same, (changed - shift) / torch.exp(log_scale)], 1), kernel[:, :, 0].inverse()[..., None]
        )
        if index and index % every == 0:
            x = torch.cat([out.pop(), x], 1)
    return [noise.permute(0, 2, 1), loss, x.permute(0, 2, 1).reshape(rows, -1)]


def denoised(waveforms, bias, strength):
    """Denoiser.forward, by torch.stft."""
    how = {"n_fft": 1024, "hop_length": 256, "window": torch.hann_window(1024)}
    spectrum = torch.stft(waveforms, **how, pad_mode="constant", return_complex=True)
    magnitude = torch.clamp(spectrum.abs() - strength * bias[:, None], min=0)
    return torch.istft(torch.polar(magnitude, spectrum.angle()), **how, length=waveforms.shape[1])


def join_bands(parts):
    """Zeros between the samples of each band, and its filter: an ideal low pass under a Kaiser window, modulated."""
    bands, taps = parts.shape[1], np.arange(63) - 31
    prototype = 0.142 * np.sinc(0.142 * taps) * np.kaiser(63, 9.0)
    prototype /= prototype.sum()
    filters = [
        2 * prototype * np.cos((2 * band + 1) * np.pi / (2 * bands) * taps - (-1) ** band * np.pi / 4)
        for band in range(bands)
    ]
    apart = torch.zeros(bands, bands, bands)
    for band in range(bands):
        apart[band, band, 0] = bands
    spread = F.conv_transpose1d(parts, apart, stride=bands)
    return F.conv1d(F.pad(spread, (31, 31)), torch.tensor(np.array(filters), dtype=torch.float32)[None])


def hifigan(mels, weights, rates, kernels, residual_kernels, dilations, double, istft_hop=0, bands=1):
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
    if istft_hop:
        size = 4 * istft_hop
        x = convolution(F.pad(F.leaky_relu(x), (1, 0), "reflect"), weights, padding=3)
        x = x.reshape(len(x) * bands, size + 2, -1)
        magnitude, phase = torch.clip(torch.exp(x[:, : size // 2 + 1]), max=1e2), torch.sin(x[:, size // 2 + 1 :])
        spectrum = magnitude * torch.exp(phase * 1j)
        x = torch.istft(spectrum, size, istft_hop, size, torch.hann_window(size), center=True)
        x = x.reshape(len(mels), bands, -1)
    else:
        x = torch.tanh(convolution(F.leaky_relu(x), weights, padding=3))
    x = (join_bands(x) if bands > 1 else x)[:, 0]
    hop = int(np.prod(rates)) * max(istft_hop, 1) * bands
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
    make = {
        "vocos": lambda *sizes: [vocos(mels, weights("vocos"), *sizes)],
        "vocos_with_prior": lambda *sizes: [
            vocos(
                torch.from_numpy(given["mels_of_prior"]),
                weights("vocos_with_prior"),
                *sizes,
                torch.from_numpy(given["filterbank"]),
            )
        ],
        **{
            name: lambda *sizes, name=name: [hifigan(mels, weights(name), *sizes)]
            for name in ("hifigan", "hifigan_with_istft", "hifigan_with_bands", "hifigan_with_both")
        },
        "discriminators": lambda *sizes: discriminators(waveforms, weights("discriminators"), *sizes),
        "waveglow": lambda *sizes: waveglow(mels, waveforms, weights("waveglow"), *sizes),
        "denoised": lambda strength: [denoised(waveforms, torch.from_numpy(given["bias"]), strength)],
    }
    made = {name: make[name](*sizes) for name, sizes in how.items()}
    np.savez(
        f"{folder}/torch.npz",
        **{f"{name}/{index}": part.numpy() for name, parts in made.items() for index, part in enumerate(parts)},
    )


if __name__ == "__main__":
    main(sys.argv[1])
