"""Speech recognition: from a corpus to a model in service, or to the reason why not."""

from kfp import dsl

from voxline.components.convert.component import convert
from voxline.components.evaluate.asr.component import evaluate
from voxline.components.extract.component import extract
from voxline.components.ingest.component import ingest
from voxline.components.push.asr.component import push
from voxline.components.train.asr.component import train
from voxline.components.validate.component import validate


@dsl.pipeline(name="asr", description="Speech recognition: from a corpus to a model in service, or the reason why not.")
def asr(
    store: str,
    registry: str,
    corpus_uri: str,
    corpus_format: str = "librispeech",
    corpus_settings: str = "{}",
    convert_sample_rate: int = 16000,
    convert_alphabet: str = "english",
    convert_frontend_kind: str = "transcript",
    convert_settings: str = "{}",
    validate_settings: str = "{}",
    extract_features_kind: str = "log_mel",
    extract_features_mels: int = 80,
    extract_runner: str = "FnApiRunner",
    extract_settings: str = "{}",
    train_epochs: int = 15,
    train_batch_size: int = 16,
    train_learning_rate: float = 0.003,
    train_model_layers: int = 2,
    train_model_units: int = 96,
    train_precision: str = "float32",
    train_seed: int = 1,
    train_settings: str = "{}",
    evaluate_settings: str = "{}",
    model: str = "asr",
    push_max_wer: float = 0.3,
    push_max_regression: float = 0.01,
    push_confidence: float = 0.95,
    push_settings: str = "{}",
) -> None:
    """Retrains a recogniser; `<step>_settings` hold, as JSON, the keys of the config that have no field of their own.

    Args:
      store: folder of all keyed work; runs that share it reuse what has not changed.
      registry: folder of served models, as TensorFlow Serving reads it.
      corpus_uri: folder or archive that holds the corpus.
      corpus_format: its layout: librispeech, fsdd, manifest, csv or kaldi.
      corpus_settings: JSON: splits, limits on archives and rejects.
      convert_sample_rate: Hz of the converted audio, and of all that follows.
      convert_alphabet: the characters of the transcripts: english, or the characters themselves.
      convert_frontend_kind: how a transcript becomes them: transcript (lower case, no punctuation) or as_is.
      convert_settings: JSON: limits on length, silence and rejects.
      validate_settings: JSON: thresholds and severities of the checks, the schema of TFX's data validation.
      extract_features_kind: log_mel, mfcc or linear.
      extract_features_mels: mel bins.
      extract_runner: FnApiRunner, multi_process, or any Beam runner.
      extract_settings: JSON: windows, speeds, shards, options for Beam.
      train_epochs: times through the training split, at most.
      train_batch_size: utterances in a step, over all devices.
      train_learning_rate: highest rate, reached after warm-up.
      train_model_layers: bidirectional recurrent layers.
      train_model_units: units in each direction of a recurrent layer.
      train_precision: float32 or mixed_bfloat16.
      train_seed: of initial weights, order, augmentation and dropout.
      train_settings: JSON: convolutions, augmentation, schedule, early stopping.
      evaluate_settings: JSON: slices, bootstrap, confidence.
      model: the model's name in the registry.
      push_max_wer: word error rate (0.3: 30%) above which the model is refused.
      push_max_regression: how much higher than that of the model in service it may be (0.01: 1 point).
      push_confidence: with which it must be no worse than that.
      push_settings: JSON: the comparison with the model in service, slices.
    """
    ingested = ingest(store=store, uri=corpus_uri, format=corpus_format, settings=corpus_settings)
    converted = convert(
        manifest=ingested.outputs["manifest"],
        store=store,
        sample_rate=convert_sample_rate,
        alphabet=convert_alphabet,
        frontend=convert_frontend_kind,
        settings=convert_settings,
    )
    wavs = converted.outputs["wavs"]
    checked = validate(wavs=wavs, store=store, registry=registry, model_name=model, settings=validate_settings)
    extracted = extract(
        wavs=wavs,
        store=store,
        features_kind=extract_features_kind,
        features_mels=extract_features_mels,
        sample_rate=convert_sample_rate,
        alphabet=convert_alphabet,
        frontend=convert_frontend_kind,
        runner=extract_runner,
        settings=extract_settings,
    ).after(checked)
    trained = train(
        dataset=extracted.outputs["dataset"],
        store=store,
        name=model,
        epochs=train_epochs,
        batch_size=train_batch_size,
        learning_rate=train_learning_rate,
        model_layers=train_model_layers,
        model_units=train_model_units,
        precision=train_precision,
        seed=train_seed,
        settings=train_settings,
    )
    evaluated = evaluate(
        model=trained.outputs["model"],
        wavs=wavs,
        store=store,
        registry=registry,
        model_name=model,
        settings=evaluate_settings,
    )
    push(
        model=trained.outputs["model"],
        evaluation=evaluated.outputs["evaluation"],
        store=store,
        registry=registry,
        model_name=model,
        max_wer=push_max_wer,
        max_regression=push_max_regression,
        confidence=push_confidence,
        settings=push_settings,
    )
