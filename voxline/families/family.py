"""What each family of models provides, and how the steps find it.

A family is a folder beside this file: `settings` of its steps, `task` and `export` of its training, `evaluate`,
`report`, `push`, and `networks/`. Its class is an entry point of the group `voxline.families`, so another package can
add a family. docs/extend/family.md walks through one.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from voxline.errors import SettingsError
from voxline.metrics.catalog import CATALOG, Metric
from voxline.plugins import FAMILIES, load_plugins
from voxline.registry.hub import is_hub_location

if TYPE_CHECKING:
    from voxline.audio.feature_settings import FeatureSettings
    from voxline.components.demo_corpus.settings import DemoCorpusSettings
    from voxline.components.evaluate.champion import ModelVersion
    from voxline.components.evaluate.measurement import EvaluationJob, Evaluator, Slicing
    from voxline.components.evaluate.settings import EvaluateSettings
    from voxline.components.push.gate import RepeatedOutput
    from voxline.components.push.settings import PushSettings
    from voxline.data.dataset import Dataset
    from voxline.data.manifest import Utterance
    from voxline.inference.model_info import ModelInfo
    from voxline.inference.onnx_model import Engine
    from voxline.metrics.bootstrap import SumAndWeight
    from voxline.metrics.evaluation import Evaluation
    from voxline.registry.parents import Parent
    from voxline.store.step_cache import StepOutput
    from voxline.training.settings import TrainSettings
    from voxline.training.task import TrainingTask

PostTrainingStage = Callable[["StepOutput", "Path | str"], "StepOutput"]
"""Takes train's output and the store, and returns the output that later steps read."""

StepTexts = Mapping[str, Mapping[str, str]]
"""Step → the first line of its description in the pipeline UI under "", and sentences for its parameters."""


@dataclasses.dataclass(frozen=True)
class AuxiliaryModel:
    """A model of another family that a training learns from.

    Attributes:
      name: its key in the step's inputs and in `model.json`.
      setting: the setting that names it, for messages.
      model: the value of that setting: `<registry>/<model>@<version>`, or a folder.
      family: the family that it must belong to.
    """

    name: str
    setting: str
    model: str
    family: str


@dataclasses.dataclass(frozen=True)
class Companion:
    """A model of another family that an exported model ships with.

    Attributes:
      name: its key in the inputs of the step export.
      digest: its bytes'.
      label: for a person.
      write: puts it into the folder of an exported model.
    """

    name: str
    digest: str
    label: str
    write: Callable[[Path], None]


@dataclasses.dataclass(frozen=True)
class TextJudgement:
    """The judgement of one text.

    Attributes:
      label: in a word, for the table of utterances, such as the class of the text.
      metric: of the catalog, that `error` adds to.
    """

    label: str
    metric: str
    error: SumAndWeight


class TextJudge(Protocol):
    """A model that judges texts, such as a recognizer's transcripts, by a field of the manifest."""

    def judge(self, texts: Sequence[str], utterances: Sequence[Utterance]) -> list[TextJudgement]:
        """Judges the normalized text of each utterance.

        Raises:
          WorkError: no utterance has the field.
        """


@dataclasses.dataclass(frozen=True)
class DemoCorpus:
    """A generated corpus, to try a family with.

    Attributes:
      settings: its class of settings, whose `kind` is the corpus' own.
      write: writes it into a new folder, with as many workers; returns counts: "utterances", "speakers", "seconds",
        and the utterances of each split. Equal settings write equal bytes.
      layout: the publisher's name of the folder.
    """

    settings: type[DemoCorpusSettings]
    write: Callable[[Path, Any, int], dict[str, int]]
    layout: str = "LibriSpeech"


class Family(abc.ABC):
    """One family of models: the settings of its steps, and the code that they call.

    The methods import that code when they are called: a step that finds its work done needs none of it.

    Attributes:
      name: as in configs and `model.json`.
      train_settings: the class of the config's section `train`.
      evaluate_settings, push_settings: the same for `evaluate` and `push`; None: no pipeline trains this family.
      description: of its pipeline, a sentence.
      step_texts: descriptions of its steps for the pipeline UI.
      copied_keys: key of its pipeline's config → the key whose value it takes.
      metrics: those that its evaluation computes beside the ones of `metrics.catalog`.
      hub_task: what its models do, in the words of the Hugging Face Hub; empty: none that the Hub knows.
      reads_texts_alone: whether it trains on datasets of texts without recordings (`components/publish/texts.py`).
    """

    name: ClassVar[str]
    train_settings: ClassVar[type[TrainSettings]]
    evaluate_settings: ClassVar[type[EvaluateSettings] | None] = None
    push_settings: ClassVar[type[PushSettings] | None] = None
    description: ClassVar[str] = "Trains a model, and puts it into service if it passes the gate."
    step_texts: ClassVar[StepTexts] = {}
    copied_keys: ClassVar[Mapping[str, str]] = {}
    metrics: ClassVar[tuple[Metric, ...]] = ()
    hub_task: ClassVar[str] = ""
    reads_texts_alone: ClassVar[bool] = False

    @property
    def has_pipeline(self) -> bool:
        """Whether `voxline run <name>` trains, evaluates and pushes a model of the family."""
        return self.evaluate_settings is not None and self.push_settings is not None

    def config_defaults(self, document: dict[str, Any]) -> dict[str, Any]:
        """Defaults of its pipeline's config that differ from those of the steps.

        Args:
          document: what the config sets, as JSON values that were not validated.
        """
        return {}

    def check_config(self, config: Any) -> None:  # noqa: B027 - most families check nothing
        """Refuses what does not fit together in a config, before the first step runs.

        Args:
          config: of the pipeline: `train`, `evaluate`, `push`, `extract` and the other sections.

        Raises:
          SettingsError: names both keys.
        """

    def derived_values(self, config: Any) -> dict[str, tuple[Any, str]]:
        """Key of the config → its value, and the key or the rule that it follows from."""
        return {}

    def check_inputs(self, config: Any) -> None:  # noqa: B027 - most families read no file
        """Refuses a run if a file that a later step reads does not exist.

        Raises:
          SettingsError: names the file.
        """

    def models_in_service(self, config: Any) -> list[tuple[str, str, str]]:
        """Models of the run's registry that a step will need: the setting, the model's name, and its family."""
        return []

    def public_parent(self, model: str) -> Parent | None:
        """Opens a public model to start from; None if `model` names none.

        Args:
          model: the value of `train.start.model`.

        Raises:
          SettingsError: it is absent, or of no network of the family.
          WorkError: it is damaged.
        """
        if is_hub_location(model) or model.endswith(".safetensors"):
            raise SettingsError(
                f"train.start.model is {model!r}, a public model, and {self.name} models start from none; give a model "
                "of this family from a registry"
            )
        return None

    def published_form(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What the export of a public parent depends on beside the parent: `export_published` takes it.

        Args:
          settings: of the training that starts from it, as JSON values.
        """
        return {}

    def export_published(
        self,
        parent: Parent,
        folder: Path,
        form: Mapping[str, Any],
        name: str = "",
        onnx: str = "none",
        precision: str = "float32",
    ) -> bool:
        """Exports a public model as it comes; returns False, and writes nothing, if it cannot work alone.

        Args:
          parent: as `public_parent` opened it.
          form: as `published_form` gave it.
          name: of the model; empty: the default.
          onnx: graphs beside it, none, float32 or int8.
          precision: of the network, as `train.export.precision` has it.

        Raises:
          SettingsError: the form does not fit the model.
          WorkError: its weights are damaged.
        """
        return False

    def demo_corpora(self) -> Mapping[str, DemoCorpus]:
        """Corpora that `voxline corpus demo --set kind=<kind>` generates, by kind."""
        return {}

    def load_model(self, folder: Path) -> Any:
        """Loads an exported model, for `voxline.load_model`.

        Raises:
          WorkError: it is damaged.
        """
        raise SettingsError(f"{folder}: models of the family {self.name!r} cannot be loaded for inference")

    def text_judge(self, folder: Path) -> TextJudge:
        """Loads an exported model that judges texts; the evaluation of recognizers may name one.

        Raises:
          WorkError: it is damaged.
        """
        raise SettingsError(f"{folder}: models of the family {self.name!r} judge no texts")

    @abc.abstractmethod
    def task(self) -> type[TrainingTask]:
        """The class that prepares the data, builds the networks, validates and exports."""

    def task_of(self, settings: Any) -> type[TrainingTask]:
        """The class for a training, of a family with several."""
        return self.task()

    def auxiliary_models(self, settings: Any) -> list[AuxiliaryModel]:
        """Models of other families that the training learns from; the task gets each by `use_auxiliary_model`."""
        return []

    def training_settings(self, settings: Any) -> Any:
        """The settings of the training alone, without those of the stages after it and of the step export."""
        return settings.weights_alone()

    def training_inputs(self, settings: Any, dataset: Dataset) -> dict[str, str]:
        """What a training takes from a dataset beside its key, for the key of the step train, by name.

        A release that takes more of the same dataset says so here, and trains again what this changes alone.

        Raises:
          WorkError: the dataset does not suit the settings.
        """
        return {}

    def check_form(self, settings: Any, features: FeatureSettings) -> None:  # noqa: B027 - most have one form
        """Refuses a form that the step export could not write, before the training.

        Raises:
          SettingsError: names the setting, and what is accepted.
        """

    def companions(self, settings: Any, registry: Path | str, features: FeatureSettings) -> list[Companion]:
        """Models of other families that the exported model ships with.

        Args:
          settings: all of the config's section `train`.

        Raises:
          SettingsError: one is missing, or does not fit.
        """
        return []

    def export_again(self, model: Path, form: Any, folder: Path) -> None:
        """Writes an exported model in another form, whole or not at all.

        Args:
          model: its folder.
          form: as `TrainSettings.export_form` returns it.

        Raises:
          SettingsError: the network has no such form.
          WorkError: the model is damaged.
        """
        raise SettingsError(f"{model}: models of the family {self.name!r} have one form")

    def post_training(self, settings: Any, registry: Path | str, dataset: Dataset) -> list[PostTrainingStage]:
        """The stages that follow the training, in order; each is a keyed work of its own.

        Args:
          settings: all of the config's section `train`.

        Raises:
          SettingsError: a model that a stage needs is missing or does not fit, found before the training starts.
        """
        return []

    def evaluation(self) -> EvaluateFamily:
        """Measures a model of the family."""
        raise SettingsError(f"evaluate: the family {self.name!r} has no evaluation")

    def promotion(self) -> PushFamily:
        """Checks and describes a model of the family that is about to go into service."""
        raise SettingsError(f"push: models of the family {self.name!r} cannot be pushed")

    def build_task(self, settings: TrainSettings, dataset: Dataset, parent: ModelInfo | None = None) -> TrainingTask:
        """The task, on the dataset as it prepares it.

        Args:
          parent: `model.json` of the model to start from.
        """
        from voxline.inference.tensorflow_import import hidden_packages, start_tensorflow

        # Keras looks for both, for wrappers and plots that training does not use: a fifth of the time to import it.
        with hidden_packages("sklearn", "matplotlib"):
            start_tensorflow()
            importlib.import_module("keras")
        task = self.task_of(settings)
        return task(settings, task.prepare(settings, dataset, parent))


class EvaluateFamily(abc.ABC):
    """A family of models, as evaluate sees it: how a model is loaded, and what measures it.

    The step knows which models there are: the new one, its ONNX graph, the one in service, and the anchor.

    Attributes:
      activity, participle: of the measuring, for status lines: "transcribing", "transcribed".
    """

    activity: ClassVar[str] = "measuring"
    participle: ClassVar[str] = "measured"

    def slicings(self, settings: Any) -> dict[str, Slicing]:
        """The slicings that are always reported."""
        return {}

    def auxiliary_models(self, registry: Path | str, settings: Any) -> dict[str, ModelVersion | None]:
        """Other models that the result depends on, by their key in metrics.json; they become part of the step's key.

        Raises:
          SettingsError: a model that the settings name is missing.
        """
        return {}

    @abc.abstractmethod
    def load(self, folder: Path, settings: Any, engine: Engine) -> Any:
        """Loads an exported model.

        Raises:
          WorkError: it is damaged.
        """

    @abc.abstractmethod
    def evaluator(self, job: EvaluationJob, model: Any) -> Evaluator[Any, Any, Any]:
        """Measures the models of a job.

        Args:
          model: the new one, as `load` returned it.
        """


class PushFamily(Protocol):
    """A family of models, as push sees it."""

    smoke_test_task: str
    """The work of the smoke test, for messages: "transcribe the clip"."""
    smoke_test_output: str
    """The key that an answer of `repeat` has at least."""
    smoke_test_tolerance: float | None
    """Largest difference that is accepted; None: outputs are not compared by a number."""

    def smoke_test_arguments(self, evaluation: Evaluation) -> list[str]:
        """The arguments of `repeat` after the model's folder: an output that evaluate recorded, and its input."""

    def repeat(self, *arguments: str) -> dict[str, Any]:
        """Runs in a fresh process: loads the model, and returns its output as JSON values."""

    def compare_repeated(self, answer: dict[str, Any], evaluation: Evaluation) -> RepeatedOutput:
        """Compares an answer of `repeat` with what evaluate recorded."""

    def describe(self, model: ModelInfo) -> str:
        """One sentence for the model card.

        Args:
          model: the contents of `model.json`.
        """

    def errors(self, evaluation: Evaluation) -> str:
        """Further results for the model card, below the table of metrics; may be empty."""

    def limitations(self, evaluation: Evaluation) -> list[str]:
        """Sentences for the model card: what the model cannot do."""

    def usage(self, model: ModelInfo, name: str, version: int) -> str:
        """Commands and signatures for the model card, in Markdown."""


_registered: dict[str, Family] = {}
"""Families by name, from the entry points; `register` adds to them."""


@functools.cache
def _load_entry_points() -> None:
    for family_class in load_plugins(FAMILIES).values():
        family: Family = family_class()
        _registered.setdefault(family.name, family)


def register(family: Family) -> None:
    """Adds a family to this process alone, as a notebook or a test does; a package uses an entry point.

    An edited family takes the place of the one of its name.

    Raises:
      SettingsError: another family has a metric of the same name as one of its own.
    """
    CATALOG.register(family.metrics, family.name)
    _registered[family.name] = family


def unregister(name: str) -> None:
    """Removes a family, and the metrics that it alone has, from this process."""
    if _registered.pop(name, None) is not None:
        CATALOG.unregister(name)


def family_names() -> list[str]:
    """The names of all families, sorted."""
    _load_entry_points()
    return sorted(_registered)


def text_judging_families() -> list[str]:
    """The names of the families whose models judge texts, sorted."""
    return [name for name in family_names() if type(_registered[name]).text_judge is not Family.text_judge]


def find_family(name: str) -> Family:
    """The family of a name.

    Raises:
      SettingsError: no installed package registers it.
    """
    if name not in _registered:
        _load_entry_points()
    if name not in _registered:
        raise SettingsError(
            f"family {name!r}, which no installed package registers; accepted: {', '.join(family_names())}; "
            "if it is one of ours, run `make setup` (or pip install) again: the installation is older than its source"
        )
    return _registered[name]
