"""Speech synthesis: from a corpus of one speaker to a voice in service, or to the reason why not."""

from kfp import dsl

from voxline.components.convert.component import convert
from voxline.components.evaluate.tts.component import evaluate
from voxline.components.extract.component import extract
from voxline.components.ingest.component import ingest
from voxline.components.push.tts.component import push
from voxline.components.train.tts.component import train
from voxline.components.validate.component import validate


@dsl.pipeline(name="tts", description="Speech synthesis: from one speaker's corpus to a voice in service, or why not.")
def tts(
    store: str,
    registry: str,
    corpus_uri: str,
    corpus_format: str = "ljspeech",
    corpus_settings: str = "{}",
    convert_sample_rate: int = 22050,
    convert_alphabet: str = "english_speech",
    convert_frontend_kind: str = "english",
    convert_settings: str = "{}",
    validate_settings: str = "{}",
    extract_features_kind: str = "log_mel",
    extract_features_mels: int = 80,
    extract_runner: str = "FnApiRunner",
    extract_settings: str = "{}",
    train_model_kind: str = "tacotron2",
    train_model_reduction: int = 2,
    train_epochs: int = 100,
    train_batch_size: int = 16,
    train_learning_rate: float = 0.001,
    train_precision: str = "float32",
    train_seed: int = 1,
    train_settings: str = "{}",
    evaluate_listener: str = "",
    evaluate_settings: str = "{}",
    model: str = "tts",
    push_max_round_trip_wer: float = 0.5,
    push_max_hit_limit: float = 0.1,
    push_min_attention_diagonality: float = 0.5,
    push_confidence: float = 0.95,
    push_settings: str = "{}",
) -> None:
    """Retrains a voice; `<step>_settings` hold, as JSON, the keys of the config that have no field of their own.

    Args:
      store: folder of all keyed work; runs that share it reuse what has not changed.
      registry: folder of served models, as TensorFlow Serving reads it.
      corpus_uri: folder or archive that holds the corpus.
      corpus_format: its layout: ljspeech, thchs30, manifest or any other that ingest knows.
      corpus_settings: JSON: splits, which text to take, limits on archives and rejects.
      convert_sample_rate: Hz of the converted audio, and of all that follows.
      convert_alphabet: the symbols that the voice reads: english_speech, phonemes, pinyin_speech, or the characters.
      convert_frontend_kind: how a text becomes them: english, english_phonemes, mandarin or pinyin.
      convert_settings: JSON: trimming, loudness, limits; sandhi (the same as in extract_settings).
      validate_settings: JSON: thresholds and severities of the checks, the schema of TFX's data validation.
      extract_features_kind: log_mel for Tacotron 2, mel_and_linear for Tacotron.
      extract_features_mels: mel bins.
      extract_runner: FnApiRunner, multi_process, or any Beam runner.
      extract_settings: JSON: windows, shards, options for Beam; sandhi (the same as in convert_settings).
      train_model_kind: tacotron or tacotron2.
      train_model_reduction: frames that the decoder makes in a step.
      train_epochs: times through the training split, at most.
      train_batch_size: utterances in a step, over all devices.
      train_learning_rate: highest rate, reached after warm-up.
      train_precision: float32 or mixed_bfloat16.
      train_seed: of initial weights, order and dropout.
      train_settings: JSON: the network, its losses, remedies for attention, schedule, early stopping.
      evaluate_listener: name of the recogniser in the registry that transcribes what is spoken; empty: none does.
      evaluate_settings: JSON: how much is measured, slices, bootstrap, confidence.
      model: the model's name in the registry.
      push_max_round_trip_wer: share of words (0.5: 50%) that the listener may get wrong; judged where one listened.
      push_max_hit_limit: share of utterances that may run into the limit on decoder steps.
      push_min_attention_diagonality: share of the attention that must lie near the diagonal.
      push_confidence: with which it must be no worse than the model in service.
      push_settings: JSON: the comparison with the model in service, slices, limits on any other figure.
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
        model_kind=train_model_kind,
        model_reduction=train_model_reduction,
        epochs=train_epochs,
        batch_size=train_batch_size,
        learning_rate=train_learning_rate,
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
        listener=evaluate_listener,
        settings=evaluate_settings,
    )
    push(
        model=trained.outputs["model"],
        evaluation=evaluated.outputs["evaluation"],
        store=store,
        registry=registry,
        model_name=model,
        max_round_trip_wer=push_max_round_trip_wer,
        max_hit_limit=push_max_hit_limit,
        min_attention_diagonality=push_min_attention_diagonality,
        confidence=push_confidence,
        settings=push_settings,
    )
