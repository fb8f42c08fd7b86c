"""The config of a run: YAML, typed and strict, with `--set` laid over it and what follows from it filled in.

A value is given once. What another step must know too (the sample rate, the alphabet, the model's name)
is passed on here, in one place; a config that gives it twice and differently is refused, naming both keys.
"""

import difflib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Self

import pydantic

from components.convert.settings import ConvertSettings
from components.evaluate.recognition.settings import RecognitionEvaluateSettings
from components.extract.settings import ExtractSettings
from components.ingest.settings import CorpusSettings
from components.push.settings import RecognitionPushSettings
from components.speech.errors import SettingsError
from components.speech.settings import Settings, explain
from components.train.recognition.settings import RecognitionSettings
from components.validate.settings import ValidateSettings
from pipelines.documents import overlay, read_document, write_document

PATHS = ("corpus.uri", "store", "registry")
"""Keys that hold a path: relative to the YAML file in it, to the current folder in `--set`."""

SAME = {
    "extract.alphabet": "convert.alphabet",
    "extract.features.sample_rate": "convert.sample_rate",
    "train.name": "model",
    "evaluate.model_name": "model",
    "push.model_name": "model",
}
"""Keys that take the value of another one."""


class AsrConfig(Settings):
    """A run of the `asr` pipeline, from a corpus to a pushed model."""

    pipeline: Literal["asr"] = pydantic.Field("asr", description="the graph that this config is for")
    name: str = pydantic.Field(
        ..., pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="of the run; its folder is runs/<name>"
    )
    model: str = pydantic.Field(
        "asr", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="name of the model in the registry"
    )
    store: str = pydantic.Field("", description="folder of all keyed work; empty: <run-dir>/store")
    registry: str = pydantic.Field("", description="folder of served models; empty: <run-dir>/registry")
    corpus: CorpusSettings = pydantic.Field(..., description="the recordings")
    convert: ConvertSettings = pydantic.Field(default_factory=ConvertSettings, description="any audio to wav")
    validate_: ValidateSettings = pydantic.Field(
        default_factory=ValidateSettings, alias="validate", description="checks before training"
    )
    extract: ExtractSettings = pydantic.Field(default_factory=ExtractSettings, description="features, shards")
    train: RecognitionSettings = pydantic.Field(
        default_factory=RecognitionSettings, description="the model and its training"
    )
    evaluate: RecognitionEvaluateSettings = pydantic.Field(
        default_factory=RecognitionEvaluateSettings, description="error rates"
    )
    push: RecognitionPushSettings = pydantic.Field(default_factory=RecognitionPushSettings, description="the gate")

    def section(self, step: str) -> Settings:
        """The settings of a step."""
        name = {"ingest": "corpus", "validate": "validate_"}.get(step, step)
        section: Settings = getattr(self, name)
        return section

    def plain(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def to_yaml(self) -> str:
        """The config as it took effect, every default written out; it starts the same run again."""
        return write_document(self.plain())

    def placed(self, run_dir: Path) -> Self:
        """The config with the store and the registry where a run in this folder has them."""
        return self.model_copy(
            update={
                "store": self.store or str(run_dir / "store"),
                "registry": self.registry or str(run_dir / "registry"),
            }
        )


def load_config(file: Path, assignments: Iterable[str] = ()) -> AsrConfig:
    """Reads a config, with `a.b=c` assignments over it.

    Raises:
      SettingsError: a line for each fault: where it stands, the key, what it got and what it accepts.
    """
    document = _absolute(read_document(file), file.absolute().parent)
    pipeline = document.get("pipeline", "asr")
    if pipeline != "asr":
        raise SettingsError(f"{file}: 'pipeline' is {pipeline!r}; accepted: 'asr'")
    assignments = list(assignments)
    document, assigned = overlay(document, assignments)
    for key in PATHS:
        if _is_assigned(key, assigned) and _get(document, key) is not None:
            _put(document, key, _absolute_path(_get(document, key), Path.cwd()))
    config = _validated(document, file, assigned)
    return _completed(config, file, assigned)


def _validated(document: dict[str, Any], file: Path, assigned: set[str]) -> AsrConfig:
    try:
        return AsrConfig.model_validate(document)
    except pydantic.ValidationError as error:
        lines = []
        for fault, line in zip(error.errors(include_url=False), explain(AsrConfig, error, ""), strict=True):
            key = ".".join(str(part) for part in fault["loc"])
            if fault["type"] == "extra_forbidden" and "did you mean" not in line:
                line = _nearest_anywhere(key, line)
            lines.append(_source(key, file, assigned) + line)
        raise SettingsError("\n".join(lines)) from None


def _source(key: str, file: Path, assigned: set[str]) -> str:
    """Where a key's value came from."""
    return f"--set {key}" if _is_assigned(key, assigned) else str(file)


def _is_assigned(key: str, assigned: set[str]) -> bool:
    """Whether `--set` gave the key, or a section that holds it."""
    return any(key == one or key.startswith(one + ".") for one in assigned)


def _nearest_anywhere(key: str, line: str) -> str:
    """Names a key of another section when it is what was meant: `epochs` at the top is `train.epochs`."""
    last = key.rsplit(".", 1)[-1]
    known = {name.rsplit(".", 1)[-1]: name for name in _keys(AsrConfig)}
    near = difflib.get_close_matches(last, known, n=1, cutoff=0.8)
    return f"{line.split(';')[0]}; did you mean {known[near[0]]!r}?" if near else line


def _keys(model: type[pydantic.BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted key that a config accepts."""
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        yield key
        if isinstance(field.annotation, type) and issubclass(field.annotation, pydantic.BaseModel):
            yield from _keys(field.annotation, key + ".")


def _completed(config: AsrConfig, file: Path, assigned: set[str]) -> AsrConfig:
    """Fills in what follows from other settings."""
    values = config.plain()
    follows = {key: (_get(values, origin), origin) for key, origin in SAME.items()}
    follows["validate.frames_per_second"] = (frames_per_second(config), "extract.features over train.model's stride")
    for key, (value, origin) in follows.items():
        given = _get(values, key) if _is_given(config, key.split(".")) else None
        if given not in (None, value):
            raise SettingsError(
                f"{_source(key, file, assigned)}: {key!r} is {given!r} and {origin!r} makes it {value!r}; "
                f"leave {key!r} out, and it follows"
            )
        _put(values, key, value)
    return _validated(values, file, assigned)


def frames_per_second(config: AsrConfig) -> float:
    """Frames of the model's output to a second of speech: what CTC has to spell with."""
    rate = config.convert.sample_rate
    features = config.extract.features.model_copy(update={"sample_rate": rate})
    return round(rate / (features.hop * config.train.time_stride), 6)


def _is_given(config: pydantic.BaseModel, path: list[str]) -> bool:
    """Whether a key was set, rather than left at its default."""
    fields = {field.alias or name: name for name, field in type(config).model_fields.items()}
    name = fields[path[0]]
    if name not in config.model_fields_set:
        return False
    return len(path) == 1 or _is_given(getattr(config, name), path[1:])


def _absolute(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    for key in PATHS:
        value = _get(document, key)
        if value is not None:
            _put(document, key, _absolute_path(value, folder))
    return document


def _absolute_path(value: Any, folder: Path) -> Any:
    """A local path made absolute; a `gs://` address, an empty value and what is no text stay as they are."""
    if not isinstance(value, str) or not value or "://" in value:
        return value
    return os.path.normpath(folder / Path(value).expanduser())


def _get(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
    values[last] = value
