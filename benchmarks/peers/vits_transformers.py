"""Small VITS models of `transformers`, for the tests of networks; runs in the peers' environment.

python vits_transformers.py FOLDER: writes a folder for each model as the Hub has it, of random weights, and beside them
outputs.npz:
  ids/N                   int64 [symbols], text N with blanks
  log_durations/N         [symbols], without noise
  latent/N                [frames, values], that the decoder reads
  waveform/N              [samples]; of several speakers this is the first one, and the others' are waveform/N/SPEAKER
  training/...            two rows, the second one shorter, through what training adds:
    spectrogram           [rows, frames, bins] → posterior/mean, posterior/deviation (log) [rows, frames, values]
    latent                [rows, frames, values] → flow, likewise
    text, durations       [rows, symbols, units], [rows, symbols] → likelihood [rows], of a stochastic predictor, with
                          the noise drawn [rows, symbols, 2]
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import VitsConfig, VitsModel

SMALL = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "ffn_dim": 20,
    "flow_size": 8,
    "spectrogram_bins": 9,
    "upsample_initial_channel": 16,
    "upsample_rates": [4, 2],
    "upsample_kernel_sizes": [8, 4],
    "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 3], [1, 2]],
    "duration_predictor_flow_bins": 5,
    "duration_predictor_filter_channels": 10,
    "prior_encoder_num_flows": 2,
    "prior_encoder_num_wavenet_layers": 2,
    "posterior_encoder_num_wavenet_layers": 1,
    "noise_scale": 0.0,
    "noise_scale_duration": 0.0,
}
MODELS = {
    "vits": {},
    "vits-fixed-speakers": {
        "use_stochastic_duration_prediction": False,
        "num_speakers": 3,
        "speaker_embedding_size": 6,
    },
    "vits-speakers": {"num_speakers": 3, "speaker_embedding_size": 6},
}
LETTERS = "k'abcdeno "
TEXTS = ("a bad one", "be")


def randomize(model, generator):
    """Weights of such a size that each of them matters to the waveform."""
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        with torch.no_grad():
            if name.endswith("original0"):
                value.copy_(1 + 0.2 * noise)
            elif name == "duration_predictor.proj.bias":
                value.copy_(0.8 + 0 * noise)
            elif value.ndim > 1:
                value.copy_(noise * 1.2 / value[0].numel() ** 0.5)
            elif "norm" in name and name.endswith("weight"):
                value.copy_(1 + 0.3 * noise)
            else:
                value.copy_(0.3 * noise)


FRAMES = (13, 9)
SYMBOLS = (7, 5)


def training_outputs(model, config):
    """What training adds to speech, on random inputs; arrays have time before values."""
    generator = torch.Generator().manual_seed(17)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    def mask(counts):
        return (torch.arange(max(counts)) < torch.tensor(counts)[:, None]).float()[:, None]

    frames = mask(FRAMES)
    spectrogram = draw(len(FRAMES), config.spectrogram_bins, max(FRAMES)).abs()
    latent = draw(len(FRAMES), config.flow_size, max(FRAMES)) * frames
    speaker = None
    if config.num_speakers > 1:
        speaker = model.embed_speaker(torch.zeros(1, dtype=torch.long)).unsqueeze(-1)
    outputs = {"spectrogram": spectrogram, "latent": latent}
    _, outputs["posterior/mean"], outputs["posterior/deviation"] = model.posterior_encoder(spectrogram, frames, speaker)
    outputs["flow"] = model.flow(latent, frames, speaker)

    if config.use_stochastic_duration_prediction:
        symbols = mask(SYMBOLS)
        text = draw(len(SYMBOLS), config.hidden_size, max(SYMBOLS)) * symbols
        durations = torch.randint(1, 9, symbols.shape, generator=generator) * symbols
        drawn = draw(len(SYMBOLS), 2, max(SYMBOLS))
        original = torch.randn
        torch.randn = lambda *_, **__: drawn
        try:
            outputs["likelihood"] = model.duration_predictor(text, symbols, speaker, durations=durations)
        finally:
            torch.randn = original
        outputs |= {"text": text, "durations": durations[:, 0], "drawn": drawn}

    return {
        f"training/{name}": (value.transpose(1, 2) if value.ndim == 3 else value).numpy()
        for name, value in outputs.items()
    }


def main():
    folder = Path(sys.argv[1])
    for name, changes in MODELS.items():
        torch.manual_seed(3)
        config = VitsConfig(vocab_size=len(LETTERS), **{**SMALL, **changes})
        model = VitsModel(config).eval()
        randomize(model, torch.Generator().manual_seed(11))
        model.save_pretrained(folder / name)
        (folder / name / "vocab.json").write_text(json.dumps({letter: n for n, letter in enumerate(LETTERS)}) + "\n")
        tokenizer = {"add_blank": True, "is_uroman": False, "normalize": True, "phonemize": False}
        (folder / name / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=2) + "\n")
        (folder / name / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n# A small voice of random weights\n")

        outputs = {}
        seen = {}
        model.duration_predictor.register_forward_hook(lambda _, inputs, output, seen=seen: seen.update(log=output))
        for number, text in enumerate(TEXTS):
            ids = [0]
            for letter in text:
                ids += [LETTERS.index(letter), 0]
            with torch.no_grad():
                speaker = {"speaker_id": 0} if config.num_speakers > 1 else {}
                output = model(torch.tensor([ids]), **speaker)
            outputs[f"ids/{number}"] = np.array(ids)
            outputs[f"log_durations/{number}"] = seen["log"][0, 0].numpy()
            outputs[f"latent/{number}"] = output.spectrogram[0].T.numpy()
            outputs[f"waveform/{number}"] = output.waveform[0].numpy()
            for other in range(1, config.num_speakers):
                with torch.no_grad():
                    output = model(torch.tensor([ids]), speaker_id=other)
                outputs[f"waveform/{number}/{other}"] = output.waveform[0].numpy()
        with torch.no_grad():
            outputs |= training_outputs(model, config)
        np.savez_compressed(folder / name / "outputs.npz", **outputs)


main()
