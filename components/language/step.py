"""language: puts an n-gram language model beside an exported recognizer.

The n-grams are made once per text, and kept under `ngrams/`. The weights of the beam search are tuned on dev, from the
network's output for it, for each model. The output is the model that later steps evaluate, judge and push: train's
files, and `language_model/` with them.
"""

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.components.language.settings import LanguageSettings
from voxline.data.dataset import read_utterances
from voxline.data.drafts import is_draft
from voxline.data.manifest import Utterance, fingerprint_utterances, localize_audio
from voxline.data.recordings import refuse_changed_audio
from voxline.errors import WorkError
from voxline.inference.model_info import ATTENTION
from voxline.inference.saved_model import (
    CURVES_FILE,
    TRAINING_FOLDERS,
    exported_folder,
    find_curves,
    model_digest,
    read_model_info,
    require_family,
)
from voxline.inference.token_decoder import needs_ctc
from voxline.progress import print_status
from voxline.store.files import atomic_write, link_or_copy_tree
from voxline.store.hashing import hash_file, hash_value
from voxline.store.step_cache import StepOutput, cached_step, local_inputs

if TYPE_CHECKING:
    from voxline.inference.beam_search import BeamSearch

REVISION = 1
NGRAMS = "ngrams"
NGRAMS_FILE = "ngrams.npz"
ARPA_FILE = "ngrams.arpa.gz"
"""Written by train beside the exported model; evaluate shows it."""
UNTUNED = (1.0, 1.0)
"""Alpha and beta where there is no dev split, and the settings have none."""
MIN_UNSEEN = 20
"""With as many sentences of dev that train lacks, only these tune the weights: the model knows the others by heart."""
TUNING_WIDTH = 16
MANY_UNKNOWN = 0.05
"""Share of the words of train that a model by `arpa` lacks, above which it is warned of."""


@local_inputs("model", "manifest", without=TRAINING_FOLDERS)
def run(model: Path | str, manifest: Path | str, store: Path | str, settings: LanguageSettings) -> StepOutput:
    """Trains a language model on text, or reads one, tunes it on dev, and puts it beside the model.

    Args:
      model: train's folder, or an exported model of the family asr.
      manifest: convert's folder, or a manifest.

    Returns:
      StepOutput with the outputs `model` and `arpa`; error rates of dev, greedy and with the language model.

    Raises:
      WorkError: a text cannot be read, holds sentences of dev or test, or has no sentence; the model is damaged.
    """
    # The n-grams depend on the text alone, so models of the same text share them. The weights of the search are each
    # model's own, and so are the key and the copy of its files.
    folder = exported_folder(Path(model))
    info = read_model_info(folder)
    require_family(info, "asr", folder)
    if info.kind == ATTENTION:
        raise needs_ctc(folder, "a language model")
    splits = _read_splits(Path(manifest))
    ngrams = _take_over_arpa(splits, store, settings) if settings.arpa else _make_ngrams(splits, store, settings)
    dev = _choose_dev(splits, settings)
    inputs = {"model": model_digest(folder), "ngrams": ngrams.key, "dev": fingerprint_utterances(dev)}

    with cached_step(store, "language", settings, inputs, revision=REVISION) as output:
        if not output.reused:
            _write_model(Path(model), folder, dev, ngrams, settings, output)
        print_status(f"language: {_summarize(output)}")
    return output


def check(manifest: Path | str, settings: LanguageSettings) -> None:
    """Refuses text that `run` would refuse; a dry run calls this before a model is trained.

    Args:
      manifest: convert's folder, or a manifest.

    Raises:
      WorkError: a text cannot be read, or holds sentences of dev or test.
    """
    from voxline.data.language_text import check_language_text

    texts = ((utterance.split, utterance.text) for utterance in read_utterances(manifest))
    check_language_text(settings.text_settings(), texts)


def _read_splits(manifest: Path) -> dict[str, list[Utterance]]:
    # All three are there, since a corpus may have no dev or no test.
    splits: dict[str, list[Utterance]] = {"train": [], "dev": [], "test": []}
    for utterance in read_utterances(manifest):
        # Drafts have the words of a model, and maybe of its language model: only what people wrote is counted.
        if not is_draft(utterance.extra):
            splits.setdefault(utterance.split, []).append(utterance)
    return splits


def _choose_dev(splits: dict[str, list[Utterance]], settings: LanguageSettings) -> list[Utterance]:
    """The utterances of dev to tune on; none where there is nothing to tune."""
    if settings.alpha is not None and settings.beta is not None:
        return []

    # On a sentence that the n-grams have seen, the language model is always right: tuned on these, it would get too
    # much weight.
    trained_texts = {utterance.text for utterance in splits["train"]}
    unseen = [utterance for utterance in splits["dev"] if utterance.text not in trained_texts]
    utterances = unseen if len({utterance.text for utterance in unseen}) >= MIN_UNSEEN else splits["dev"]

    # Evenly spaced, as dev may be sorted by speaker or by length.
    count = min(len(utterances), settings.tuning_utterances)
    return [utterances[index * len(utterances) // count] for index in range(count)]


def _make_ngrams(splits: dict[str, list[Utterance]], store: Path | str, settings: LanguageSettings) -> StepOutput:
    """The n-grams of the text: trained now, or found in the store."""
    from voxline.data.language_text import LanguageText, held_out_sentences
    from voxline.text.alphabet import split_words

    # Sorted: the key must not depend on the order of the manifest, of which the counts of n-grams know nothing either.
    # Recordings in which nobody speaks have no sentence.
    spoken = [utterance.text for utterance in splits["train"] if utterance.text]
    transcripts = sorted(spoken) if settings.transcripts else []

    held_out = held_out_sentences(
        (name, utterance.text) for name, all_of_it in splits.items() for utterance in all_of_it
    )
    text = LanguageText(settings, held_out)

    # The paths of the files are not in the key, and the held-out sentences only where they decide what is left out.
    inputs = {
        "text": [hash_file(file) for file in text.files],
        "transcripts": hash_value(transcripts),
        "held_out": hash_value(sorted(held_out)) if text.files and settings.held_out != "keep" else "",
    }

    with cached_step(store, NGRAMS, settings.ngram_settings(), inputs, revision=REVISION) as output:
        if not output.reused:
            from voxline.training.kneser_ney import train_ngrams

            sentences = [*map(split_words, transcripts), *text.lines()]
            # Known once all lines were read: text that holds dev or test would make the error rates a lie.
            text.refuse_held_out()
            print_status(f"language: training {settings.order}-grams on {len(sentences):,} sentences")

            model = train_ngrams(sentences, settings.order, settings.prune, settings.vocabulary)
            model.save(output.folder / NGRAMS_FILE)
            model.write_arpa(output.folder / ARPA_FILE)

            output.outputs = {"ngrams": NGRAMS_FILE, "arpa": ARPA_FILE}
            output.counts = {
                "sentences": len(sentences),
                "words": sum(map(len, sentences)),
                "vocabulary": len(model.vocabulary),
                "held_out_dropped": text.dropped,
                "unreadable": text.unreadable,
                **{f"{order}-grams": count for order, count in enumerate(model.counts, 1)},
            }
    return output


def _take_over_arpa(splits: dict[str, list[Utterance]], store: Path | str, settings: LanguageSettings) -> StepOutput:
    """The n-grams of an ARPA file."""
    from voxline.data.language_text import ARPA, local_file
    from voxline.inference.ngram import NgramModel
    from voxline.text.alphabet import split_words

    file = local_file("language.arpa", settings.arpa, ARPA)
    with cached_step(store, NGRAMS, settings.ngram_settings(), {"arpa": hash_file(file)}, revision=REVISION) as output:
        if not output.reused:
            # The first run of a store reads it; each later one, and each recognizer, loads the tables.
            try:
                model = NgramModel.read_arpa(file)
            except WorkError as error:
                raise WorkError(f"language.arpa: {error}") from None
            model.save(output.folder / NGRAMS_FILE)
            model.write_arpa(output.folder / ARPA_FILE)
            output.outputs = {"ngrams": NGRAMS_FILE, "arpa": ARPA_FILE}
            output.counts = {
                "vocabulary": len(model.vocabulary),
                **{f"{order}-grams": count for order, count in enumerate(model.counts, 1)},
            }

    # Models of other people are often in capitals, and their words may be another corpus's.
    word_ids = NgramModel.load(output.path("ngrams")).word_ids
    words = [word for utterance in splits["train"] for word in split_words(utterance.text)]
    unknown = Counter(word for word in words if word not in word_ids)
    missing = unknown.total() / max(len(words), 1)
    examples = ", ".join(word for word, _ in unknown.most_common(5))
    if words and missing == 1:
        raise WorkError(
            f"language.arpa: {settings.arpa}: it knows no word of the transcripts of train, such as {examples}; give a "
            "model whose words are spelled as they are"
        )
    if missing > MANY_UNKNOWN:
        print_status(
            f"language: warning: {missing:.0%} of the words of train are unknown to {file.name}, such as {examples}: "
            "none of them can be recognized unless language.open_vocabulary is true"
        )
    return output


def _write_model(
    source: Path,
    folder: Path,
    dev: list[Utterance],
    ngrams: StepOutput,
    settings: LanguageSettings,
    output: StepOutput,
) -> None:
    """Writes the model with its language model."""
    from voxline.inference.beam_search import BeamSearch
    from voxline.inference.language_model import write_language_model
    from voxline.inference.ngram import NgramModel

    model = NgramModel.load(ngrams.path("ngrams"))
    alphabet = read_model_info(folder).read_alphabet(folder)

    # Tuning decodes dev once for each pair of weights, with a narrower beam than the model's own.
    search = BeamSearch(
        alphabet,
        model.vocabulary,
        model,
        open_vocabulary=settings.open_vocabulary,
        unknown_penalty=settings.unknown_penalty,
        width=min(settings.width, TUNING_WIDTH),
    )
    alpha, beta, tuned = _tune(search, folder, dev, settings)

    # The same bytes as train's model: links where the disk has them. A run that was killed may have left half of them.
    target = output.folder / "model"
    shutil.rmtree(target, ignore_errors=True)
    link_or_copy_tree(folder, target)

    # What a recognizer needs for the search, and for a person how the language model was made.
    description = {
        "kind": settings.kind,
        "alpha": alpha,
        "beta": beta,
        "width": settings.width,
        "open_vocabulary": settings.open_vocabulary,
        "unknown_penalty": settings.unknown_penalty,
        "order": model.order,
        "ngrams": model.counts,
        "vocabulary": len(model.vocabulary),
        "text": {
            "key": ngrams.key,
            "files": len(settings.text),
            "transcripts": settings.transcripts and not settings.arpa,
            # Without the key where none is stated: the model's bytes are as those of earlier versions.
            **({"licences": settings.licences} if settings.licences else {}),
            **ngrams.counts,
        },
        "tuned_on": tuned,
    }
    write_language_model(target, model, description)

    # Later steps get this folder in place of train's, and evaluate shows both files.
    if curves := find_curves(source):
        shutil.copyfile(curves, output.folder / CURVES_FILE)
    with atomic_write(output.folder / ARPA_FILE) as file:
        file.write(ngrams.path("arpa").read_bytes())

    output.outputs = {"model": "model", "arpa": ARPA_FILE}
    output.counts = {"words": len(model.vocabulary), "dev_utterances": len(dev)}
    output.metrics = {"alpha": alpha, "beta": beta}
    if tuned:
        output.metrics |= {"dev_wer": tuned["wer"], "dev_wer_greedy": tuned["wer_greedy"]}


def _tune(
    search: "BeamSearch", folder: Path, dev: list[Utterance], settings: LanguageSettings
) -> tuple[float, float, dict[str, Any] | None]:
    """Alpha, beta, and how they were found."""
    if not dev:
        # Both weights were given, or there is no dev; a weight that was given counts in either case.
        alpha, beta = (
            default if value is None else value
            for value, default in zip((settings.alpha, settings.beta), UNTUNED, strict=True)
        )
        if settings.alpha is None or settings.beta is None:
            print_status(f"language: there is no dev split to tune on; alpha is {alpha:g}, beta {beta:g}")
        return alpha, beta, None

    # A weight that the settings give is not tuned; the other one still is.
    from voxline.inference.language_model import tune_weights
    from voxline.inference.recognizer import Recognizer
    from voxline.inference.waveforms import read_waveform

    alphas = settings.alphas if settings.alpha is None else [settings.alpha]
    betas = settings.betas if settings.beta is None else [settings.beta]
    print_status(f"language: tuning on {len(dev):,} utterances of dev, {len(alphas) * len(betas)} pairs of weights")

    # The recordings may be in a bucket. Changed ones are refused: the key is of those that the manifest lists.
    localize_audio(dev)
    refuse_changed_audio(dev, "language")

    # The network runs once. All pairs of weights are tried on its output: a [frames, symbols] array an utterance.
    recognizer = Recognizer(folder)
    waveforms = [
        read_waveform(Path(utterance.audio_filepath), recognizer.sample_rate, utterance.offset, utterance.duration)
        for utterance in dev
    ]
    values = recognizer.log_probabilities(waveforms)
    best = tune_weights(search, values, [utterance.text for utterance in dev], alphas, betas)

    rates = {"wer": best.errors / max(best.words, 1), "wer_greedy": best.greedy_errors / max(best.words, 1)}
    return best.alpha, best.beta, {"split": "dev", "utterances": len(dev), "words": best.words, **rates}


def _summarize(output: StepOutput) -> str:
    measured = output.metrics
    words = output.counts["words"]
    line = f"{words:,} words, alpha {measured['alpha']:g}, beta {measured['beta']:g}"
    if "dev_wer" in measured:
        line += f", WER on dev {measured['dev_wer']:.2%} ({measured['dev_wer_greedy']:.2%} greedy)"
    return line
