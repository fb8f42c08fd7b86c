"""A corpus that has changed: from its recordings to a published version of its dataset. Nothing is trained."""

from kfp import dsl

from voxline.components.convert.component import convert
from voxline.components.extract.component import extract
from voxline.components.ingest.component import ingest
from voxline.components.publish.component import publish
from voxline.components.validate.component import validate


@dsl.pipeline(name="refresh", description="A corpus that has changed: from its recordings to a version of its dataset.")
def refresh(
    store: str,
    datasets: str,
    corpus_uri: str,
    registry: str = "",
    model: str = "",
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
    publish_name: str = "corpus",
    publish_settings: str = "{}",
) -> None:
    """Publishes what a corpus holds now; what has not changed since the last time is not made again.

    Args:
      store: folder or gs:// of all keyed work; runs that share it reuse what has not changed.
      datasets: folder or gs:// of dataset versions, <datasets>/<name>/<number>.
      corpus_uri: folder, archive or gs:// that holds the corpus.
      registry: folder or gs:// of served models.
      model: the one in service there whose dataset this one is compared with; empty: nobody asks what has drifted.
      corpus_format: its layout: librispeech, ljspeech, thchs30, fsdd, manifest, csv or kaldi.
      corpus_settings: JSON: splits, limits on archives and rejects.
      convert_sample_rate: Hz of the converted audio, and of all that follows.
      convert_alphabet: the characters of the transcripts: a name (english, english_speech, ...), or they themselves.
      convert_frontend_kind: how a transcript becomes them: transcript, as_is, english, mandarin, ...
      convert_settings: JSON: limits on length, silence and rejects.
      validate_settings: JSON: thresholds and severities of the checks, the schema of TFX's data validation.
      extract_features_kind: log_mel, mfcc, linear or mel_and_linear.
      extract_features_mels: mel bins.
      extract_runner: FnApiRunner, multi_process, or any Beam runner.
      extract_settings: JSON: windows, speeds, shards, options for Beam.
      publish_name: the dataset's name.
      publish_settings: JSON: what else publish takes.
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
    publish(
        dataset=extracted.outputs["dataset"],
        store=store,
        datasets=datasets,
        name=publish_name,
        settings=publish_settings,
    )
