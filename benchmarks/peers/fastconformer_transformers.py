"""Small Parakeet models of transformers with random weights, and what they compute; runs in the peers' environment.

python fastconformer_transformers.py FOLDER: writes FOLDER/<name>/ for each of `VARIANTS`, as the Hub has a model
(config.json, model.safetensors; one with preprocessor_config.json, tokenizer.json and tokenizer.model), and
FOLDER/<name>/outputs.npz:
  features, lengths     a batch of three rows, zero beyond each row's length
  logits                of the batch, and "gradient/<name>" of the sum of their squares over real frames
  training/...          the same of two rows of `WHOLE` frames, with batch normalization in training mode, and its
                        moving statistics after that call
  waveforms, samples    recordings, and mels/80 and mels/128 of them with frames, by ParakeetFeatureExtractor
  texts, pieces         sentences, and the numbers of their pieces in one row, by ParakeetTokenizer
  sentencepieces        the same by the package sentencepiece
  weights/<model>       weights and moving statistics of public sizes, counted without arrays
"""

import io
import sys
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from transformers import ParakeetCTCConfig, ParakeetFeatureExtractor, ParakeetForCTC, ParakeetTokenizer
from transformers.convert_slow_tokenizer import ParakeetConverter

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "subsampling_conv_channels": 6,
    "layerdrop": 0.0,
}
BARE = {"attention_bias": False, "convolution_bias": False, "scale_input": False, "num_mel_bins": 128}
VARIANTS = {"fastconformer": SMALL, "fastconformer-without-biases": {**SMALL, **BARE, "conv_kernel_size": 5}}
PUBLIC = {
    "0.6b": {},
    "110m": {"hidden_size": 512, "num_hidden_layers": 17, "intermediate_size": 2048},
}
LENGTHS = (61, 43, 9)  # each with a stage of odd length, whose last window reaches beyond the end
WHOLE = 32
CLASSES = 49
SPECIAL = {"unk_token": "<unk>", "pad_token": "<pad>"}
TEXTS = (
    "the cat sat on the mat and looked at the moon",
    "she sells sea shells by the sea shore",
    "how much wood would a woodchuck chuck",
    "a quick brown fox jumps over the lazy dog",
    "it's not that we don't want to go it's that we can't",
)


def main() -> None:
    for name, encoder in VARIANTS.items():
        folder = Path(sys.argv[1]) / name
        torch.manual_seed(1)
        config = ParakeetCTCConfig(vocab_size=CLASSES, pad_token_id=CLASSES - 1, encoder_config=encoder)
        model = ParakeetForCTC(config)
        randomize(model)
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink()
        outputs = {**evaluated(model), **trained(model)}
        if name == "fastconformer":
            outputs |= {
                **mels(folder),
                **pieces(folder),
                **{f"weights/{size}": count(config) for size, config in PUBLIC.items()},
            }
        np.savez_compressed(folder / "outputs.npz", **outputs)


@torch.no_grad()
def randomize(model) -> None:
    """Makes every weight matter: biases, norms and moving statistics are 0 or 1 at first."""
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith("running_var"):
            value.uniform_(0.3, 2.0)
        elif "norm" in name and name.endswith("weight"):
            value.uniform_(0.5, 1.5)
        elif name.endswith(("bias", "bias_u", "bias_v", "running_mean")):
            value.normal_(std=0.3)
        elif name.endswith("weight"):
            value.normal_(std=value[0].numel() ** -0.5)


def evaluated(model):
    model.eval()
    bins = model.config.encoder_config.num_mel_bins
    lengths = torch.tensor(LENGTHS)
    real = torch.arange(max(LENGTHS)) < lengths[:, None]
    features = torch.randn(len(LENGTHS), max(LENGTHS), bins) * real[..., None]
    logits = model(features, real).logits
    frames = torch.ceil(lengths / 8).long()
    return {
        "features": features.numpy(),
        "lengths": lengths.int().numpy(),
        "logits": logits.detach().numpy(),
        **gradients(model, logits * (torch.arange(logits.shape[1]) < frames[:, None])[..., None]),
    }


def trained(model):
    model.train()
    config = model.config.encoder_config
    for module in model.modules():
        for rate in ("dropout", "activation_dropout", "attention_dropout"):
            if hasattr(module, rate):
                setattr(module, rate, 0.0)

    features = torch.randn(2, WHOLE, config.num_mel_bins)
    logits = model(features, torch.ones(2, WHOLE, dtype=torch.bool)).logits
    outputs = {"features": features.numpy(), "logits": logits.detach().numpy(), **gradients(model, logits)}
    statistics = {name: value.numpy() for name, value in model.named_buffers() if "running" in name}
    return {f"training/{name}": value for name, value in {**outputs, **statistics}.items()}


def gradients(model, logits):
    model.zero_grad()
    logits.square().sum().backward()
    return {f"gradient/{name}": value.grad.numpy().copy() for name, value in model.named_parameters()}


def mels(folder):
    samples = (5_000, 3_999, 480)
    speech = [waveform(count) for count in samples]
    outputs = {
        "samples": np.array(samples, np.int32),
        "waveforms": np.stack([np.pad(x, (0, max(samples) - len(x))) for x in speech]),
    }
    for bins in (80, 128):
        extractor = ParakeetFeatureExtractor(feature_size=bins)
        batch = extractor(speech, sampling_rate=16_000, return_tensors="np")
        outputs[f"mels/{bins}"] = batch["input_features"]
        outputs["frames"] = batch["attention_mask"].sum(1).astype(np.int32)
    ParakeetFeatureExtractor().save_pretrained(folder)
    return outputs


def pieces(folder):
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=written, vocab_size=CLASSES - 1, model_type="bpe",
        character_coverage=1.0, bos_id=-1, eos_id=-1, normalization_rule_name="identity", minloglevel=2,
    )  # fmt: skip
    (folder / "tokenizer.model").write_bytes(written.getvalue())
    converted = ParakeetConverter(str(folder / "tokenizer.model")).converted()
    tokenizer = ParakeetTokenizer(tokenizer_object=converted, **SPECIAL)
    tokenizer.save_pretrained(folder)
    processor = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    return {
        "texts": np.array(TEXTS),
        "pieces": np.concatenate([tokenizer(text)["input_ids"] for text in TEXTS]),
        "sentencepieces": np.concatenate([processor.encode(text) for text in TEXTS]),
    }


def waveform(count):
    """A gliding tone with harmonics and pauses over noise, at the resolution of 16 bits."""
    random = np.random.default_rng(count)
    time = np.arange(count) / 16_000
    voice = sum(np.sin(2 * np.pi * number * (120 * time + 200 * time**2)) / number for number in range(1, 12))
    pauses = np.sin(2 * np.pi * 3 * time) > -0.3
    samples = 0.1 * voice * pauses + 0.002 * random.standard_normal(count)
    return (np.round(samples * 32_767) / 32_768).astype(np.float32)


def count(encoder):
    with torch.device("meta"):
        model = ParakeetForCTC(ParakeetCTCConfig(encoder_config=encoder))
    held = [*model.named_parameters(), *model.named_buffers()]
    return sum(value.numel() for name, value in held if "tracked" not in name and "inv_freq" not in name)


main()
