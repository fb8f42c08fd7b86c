"""The steps, a line each: everything that a pipeline, its config and a cluster know of a step.

A new step is a folder `voxline/components/<name>/` (`step.py` with `run`, `component.py`, `settings.py`), an entry of
`STEPS`, and its name in a graph of `graphs.py`. docs/extend/step.md walks through one.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

from voxline.components.convert.settings import ConvertSettings
from voxline.components.dataset.settings import VersionSettings
from voxline.components.extract.settings import ExtractSettings
from voxline.components.forecast.settings import ForecastSettings
from voxline.components.ingest.settings import CorporaSettings
from voxline.components.language.settings import LanguageSettings
from voxline.components.publish.settings import PublishSettings
from voxline.components.validate.settings import ValidateSettings
from voxline.settings import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the pipelines.

    Attributes:
      name: of its folder in `voxline/components`, of its component, and of its section in `cluster.steps`.
      description: of its section in a config.
      settings: the class of that section; None: `<section>_settings` of the model family.
      section: the section's name, where it is not the step's.
      inputs: outputs of earlier steps that `run` takes, by the names of its parameters; each comes from the last step
        before this one that has it.
      outputs: names of its outputs for later steps.
      image: the container image; `model` has a variant for each kind of accelerator.
      pod: resources and retries that differ from the defaults of `config.cluster.StepPlacement`.
      copies: key of the section → the key of the config whose value it takes.
      paths: keys of the section that hold paths; `*` stands for the names in a mapping.
      models: keys of the section that hold a model: a path, or a name in the registry.
      replaces: output artifact of the component → the one that later components take it for; an artifact cannot be
        input and output under one name.
      off: settings of the section, or attributes of its class, that turn the step off; empty: every run has it.
      replaces_steps: the steps that a run does without if it has this one.
      decides: whether it may end a run before the steps after it. A search leaves it out: a trial always trains.
      needed_on_cluster: keys that a config must set for a run on a cluster → the refusal if one is empty.
      after: a step that must accept the input first, although nothing that it writes is read.
      writes: the shared location that this step alone writes.
      checks: inputs that `check` of its `step.py` refuses in a dry run, before the other inputs exist; see
        `check_inputs`.
      preparation: reason for a dry run to give if something is missing that `run` makes first, with a key of its own,
        under the name `{step}`.
      takes_hours: whether its output takes hours to make again, so that a person should see each one that is deleted.
      never_reused: why it always runs, after "it"; empty: an unchanged step is reused.
      report: subject of the run's report if this step wrote the last page; `{model}` is the model's name. Empty: the
        step writes no page, or the run's report is made of its outputs.
      judges: whether the page is about the model, and worth showing of a run that failed afterwards.
      link: name of the page among the links of a run's event; of several steps, the last one has it. Empty: no link.
      page: file in the run's folder for a copy of its page. If the step fails, its page is the run's report.
      summary: a line of the run's summary, a format of the step's `counts` and `metrics`.
    """

    name: str
    description: str
    settings: type[Settings] | None = None
    section: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    image: Literal["data", "validate", "model"] = "data"
    pod: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    copies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    paths: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    replaces: Mapping[str, str] = dataclasses.field(default_factory=dict)
    off: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    replaces_steps: tuple[str, ...] = ()
    decides: bool = False
    needed_on_cluster: Mapping[str, str] = dataclasses.field(default_factory=dict)
    after: str = ""
    writes: Literal["", "registry", "datasets"] = ""
    checks: tuple[str, ...] = ()
    preparation: str = "{step} has no output yet"
    takes_hours: bool = False
    never_reused: str = ""
    report: str = ""
    judges: bool = False
    link: str = ""
    page: str = ""
    summary: str = ""

    @property
    def config_section(self) -> str:
        """The section of a config that holds its settings."""
        return self.section or self.name

    def is_on(self, config: Any) -> bool:
        """True if a run of this config has the step, which its pipeline must have."""
        section = config.section(self.name)
        return not self.off or any(getattr(section, key) != value for key, value in self.off.items())

    def function(self) -> Callable[..., Any]:
        """Its `run`, which a run on this machine and a component call alike."""
        run: Callable[..., Any] = importlib.import_module(f"voxline.components.{self.name}.step").run
        return run

    def check_inputs(self, inputs: Mapping[str, str], settings: Any) -> None:
        """Refuses what `run` would refuse of the inputs in `checks`.

        Args:
          inputs: their locations by name.

        Raises:
          WorkError: `run` would raise the same.
        """
        step = importlib.import_module(f"voxline.components.{self.name}.step")
        step.check(**inputs, settings=settings)

    def component(self, family: str) -> Any:
        """Its KFP component; that of a family if the family has the settings."""
        # Imported here: a component loads kfp, which takes a second.
        module = importlib.import_module(f"voxline.components.{self.name}.component")
        return getattr(module, self.name) if self.settings else getattr(module, f"{self.name}_component")(family)


_STEPS = (
    Step(
        name="dataset",
        description="the published version that a run is on",
        section="corpus",
        settings=VersionSettings,
        outputs=("manifest", "dataset"),
        replaces={"version": "dataset", "rows": "wavs"},
        pod={"memory": "2Gi"},
        off={"dataset": ""},
        replaces_steps=("ingest", "convert", "validate", "extract"),
    ),
    Step(
        name="ingest",
        description="the recordings",
        section="corpus",
        settings=CorporaSettings,
        outputs=("manifest",),
        pod={"memory": "2Gi"},
        paths=("uri", "corpora.*.uri", "pseudo.uri", "corrections", "corpora.*.corrections"),
        preparation="the corpus is not unpacked or downloaded yet ({step})",
    ),
    Step(
        name="convert",
        description="any audio to wav",
        settings=ConvertSettings,
        inputs=("manifest",),
        outputs=("manifest",),
        pod={"cpu": "4", "memory": "8Gi"},
    ),
    Step(
        name="validate",
        description="checks before training",
        settings=ValidateSettings,
        inputs=("manifest",),
        outputs=("validation",),
        image="validate",
        pod={"cpu": "2", "memory": "8Gi"},
        report="validation of the corpus",
        link="validation",
        page="validation.html",
    ),
    Step(
        name="extract",
        description="features, shards",
        settings=ExtractSettings,
        inputs=("manifest",),
        outputs=("dataset",),
        pod={"cpu": "4", "memory": "8Gi"},
        # Texts and sound must be treated alike in both steps, so a config states these once.
        copies={
            "alphabet": "convert.alphabet",
            "features.sample_rate": "convert.sample_rate",
            "frontend": "convert.frontend",
        },
        after="validate",  # features of a corpus that is refused would be computed for nothing
    ),
    Step(
        name="publish",
        description="the published dataset",
        settings=PublishSettings,
        inputs=("dataset",),
        outputs=("dataset", "manifest"),  # the version in place of extract's dataset: later steps say its number
        replaces={"version": "dataset", "rows": "wavs"},
        copies={"history": "notify.history"},
        off={"dataset": "", "then": ""},
        decides=True,
        writes="datasets",
        never_reused="compares with the latest version at that time",
    ),
    Step(
        name="forecast",
        description="whether a training is worth it",
        settings=ForecastSettings,
        inputs=("dataset", "validation"),
        pod={"memory": "2Gi"},
        copies={"history": "notify.history"},
        off={"skip_below": 0.0},
        decides=True,
        needed_on_cluster={
            "notify.history": "forecast.skip_below is set, and notify.history is not, so the step would know of no "
            "run; give a folder of a bucket, such as gs://speech/history"
        },
        never_reused="asks the history at that time whether a training is worth it",
        report="no training of {model}",
        link="report",
    ),
    Step(
        name="train",
        description="the model and its training",
        inputs=("dataset",),
        outputs=("model",),
        image="model",
        # A preempted training resumes from its checkpoint, so it may be tried again more often than other steps.
        pod={"cpu": "4", "memory": "16Gi", "shared_memory": "2Gi", "timeout_hours": 24.0 * 7, "retries": 5},
        copies={"name": "model", "probe": "evaluate.probe"},
        takes_hours=True,
        paths=("fastspeech.speaker_encoder",),
        models=("start.model", "start.fallback", "voice", "sharpen.recognizer"),
    ),
    Step(
        name="export",
        description="the exported model's form",
        section="train",
        inputs=("model",),
        outputs=("model",),  # train's in another form; later steps take it in place of train's
        image="model",
        pod={"cpu": "4", "memory": "16Gi"},
        replaces={"exported": "model"},
        off={"exports": False},
        models=("export.vocoder",),
    ),
    Step(
        name="language",
        description="the language model",
        settings=LanguageSettings,
        inputs=("model", "manifest"),
        outputs=("model",),  # train's with a language model; later steps take it in place of train's
        image="model",
        pod={"cpu": "2", "memory": "16Gi"},
        copies={"frontend": "convert.frontend", "alphabet": "convert.alphabet"},
        paths=("text", "arpa"),
        replaces={"model_with_language": "model"},
        off={"kind": "none"},
        checks=("manifest",),
        preparation="its text was not made into n-grams yet",
    ),
    Step(
        name="evaluate",
        description="what is measured",
        inputs=("model", "manifest"),
        outputs=("evaluation",),
        image="model",
        paths=("probe", "speaker_encoder", "voice_activity"),
        pod={"cpu": "4", "memory": "8Gi", "timeout_hours": 12.0},
        copies={"model_name": "model"},
        report="evaluation of {model}",
        judges=True,
    ),
    Step(
        name="push",
        description="the gate",
        inputs=("model", "evaluation"),
        image="model",
        pod={"cpu": "2", "timeout_hours": 2.0},
        copies={"model_name": "model"},
        writes="registry",
        never_reused="compares with the model in service at that time",
        report="evaluation of {model}",
        judges=True,
        link="report",
    ),
)

STEPS: dict[str, Step] = {step.name: step for step in _STEPS}
"""Step by name, in an order that every graph keeps."""

# A trial is a training, and what chooses among them is as small as push.
POD_OF = {"trial": "train", "choose": "push"}
"""Tasks of a search on a cluster → the step whose section of `cluster.steps` they have."""


def step_of(task: str) -> Step:
    """The step of a task of a graph; that of a trial is `train`."""
    return STEPS[POD_OF.get(task, task)]


def writer_of(location: str) -> str:
    """The one step that writes a shared location; empty if every step may."""
    return next((step.name for step in STEPS.values() if step.writes == location), "")
