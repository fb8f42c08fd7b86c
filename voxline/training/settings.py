"""Settings that all model families share: length, optimizer, validation, early stopping, devices."""

from typing import Annotated, ClassVar, Literal, Self

import pydantic

from voxline.settings import Settings

Part = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9_*-]+(/[A-Za-z0-9_*-]+)*$")]
"""The name of a part of a network (`parts`)."""
Arithmetic = Literal["float32", "mixed_bfloat16", "mixed_float16"]
"""Of a network, as Keras names its policies; weights, losses and what it puts out stay float32."""
ACCELERATOR_ENV = "VOXLINE_ACCELERATOR"
"""A cluster sets it to the kind and the number of devices that the pod requests, such as `gpu:4`. The
step fails if TensorFlow does not see them (`devices`)."""


class WorkersSettings(Settings):
    """Machines that train one model together on a cluster; k8s/ holds the templates of their pods."""

    count: int = pydantic.Field(
        1,
        ge=1,
        le=256,
        description="machines; more than 1 takes effect on a cluster only, elsewhere this machine trains alone",
    )
    template: str = pydantic.Field(
        "voxline-train",
        pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
        description="name of the TrainingRuntime in the namespace",
    )
    queue: str = pydantic.Field(
        "",
        pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$",
        description="Kueue's LocalQueue that admits the job; its waiting counts as start_minutes; empty: no queue",
    )
    start_minutes: float = pydantic.Field(
        60.0,
        gt=0,
        le=10_080,
        description="minutes that all workers have to start; then the step fails and can be retried",
    )


class StopSettings(Settings):
    """The rule by which training stops early."""

    rule: Literal["patience", "dev_loss"] = pydantic.Field(
        "patience",
        description="patience: as train.patience says, by the dev score; dev_loss: when the newest of the last dev "
        "losses is above the others, or close to their mean while they hardly differ (Mozilla DeepSpeech)",
    )
    validations: int = pydantic.Field(
        4, ge=3, le=1_000, description="dev_loss: dev losses compared, the newest included"
    )
    mean: float = pydantic.Field(
        0.5, ge=0, description="dev_loss: distance of the newest from the mean of the others that counts as close"
    )
    deviation: float = pydantic.Field(
        0.5, ge=0, description="dev_loss: standard deviation of the others under which they hardly differ"
    )


class StartSettings(Settings):
    """Initial weights of a training; docs/warm-start.md."""

    # A digest takes the place of the model, and `TrainSettings.started_from` applies the rate and the epochs.
    NOT_IN_KEY = frozenset({"model", "fallback", "rate_share", "epochs", "generations"})

    model: str = pydantic.Field(
        "",
        description="model to start from: NAME@production (the version in service when the step runs), NAME@VERSION, "
        "or the path or URI of an exported model, of a version or of published weights (.safetensors); empty: random "
        "weights",
    )
    fallback: str = pydantic.Field(
        "",
        description="model to start from in place of random weights, where model names one of which no version is in "
        "service yet, or that may not be started from: such as hf://openai/whisper-tiny.en@<commit> for the first "
        "night; it trains for train.epochs, and only it has head_epochs if keep is all; empty: random weights",
    )
    keep: Literal["all", "encoder"] | list[str] = pydantic.Field(
        "all",
        description="weights to take over: all; encoder: all but the output layer of a recognizer, or the text encoder "
        "of a voice; or a list of parts of the network, such as convolutions or recurrent/0",
    )
    new_symbols: Literal["mean", "zero", "random"] = pydantic.Field(
        "mean", description="weights of a symbol that the model did not know: the mean of the others, zero, or random"
    )
    rate_share: float = pydantic.Field(0.1, gt=0, le=1, description="peak rate, as a share of learning_rate")
    epochs: int = pydantic.Field(
        0, ge=0, le=10_000, description="passes over the training split after such a start (0: as train.epochs)"
    )
    head_epochs: int = pydantic.Field(
        0,
        ge=0,
        le=10_000,
        description="epochs at the beginning, of all epochs, in which only what was left random is trained, such as a "
        "new output layer; the rate then warms up and decays a second time, and the optimizer starts afresh",
    )
    replay: float = pydantic.Field(
        0.5,
        ge=0,
        le=1,
        description="share of each epoch that the model was trained on before, from today's dataset or its own; the "
        "rest is all that is new (1: today's training split as it is)",
    )
    shrink: float = pydantic.Field(
        1.0,
        gt=0,
        le=1,
        description="share of the model's weights; the rest is random: shrink and perturb (Ash and Adams 2020)",
    )
    generations: int = pydantic.Field(
        5,
        ge=1,
        le=1_000,
        description="models in a row that start from another one; then one starts from random weights",
    )


class LoraSettings(Settings):
    """Low-rank updates of kernels (LoRA; Hu et al. 2021, arXiv 2106.09685), merged into them in the exported model."""

    rank: int = pydantic.Field(0, ge=0, le=4_096, description="rank of the update of a kernel, such as 8; 0: no LoRA")
    alpha: float = pydantic.Field(
        16.0, gt=0, le=65_536, description="weight of an update: it counts alpha / rank times"
    )
    parts: list[Part] = pydantic.Field(
        [],
        description="parts of the network whose kernels are updated so, such as [blocks/*/attention/query, "
        "blocks/*/attention/value]; all other weights are frozen, their biases too",
    )
    also: list[Part] = pydantic.Field(
        [], description="parts that are trained as without LoRA, such as [classifier]; a new output layer must be here"
    )

    @pydantic.model_validator(mode="after")
    def _check_rank(self) -> Self:
        if self.rank and not self.parts:
            raise ValueError(f"lora.rank is {self.rank}, and lora.parts is empty: name the kernels to update")
        if not self.rank and (self.parts or self.also):
            raise ValueError(
                "lora.parts and lora.also have no effect while lora.rank is 0; set it to 8, or remove them"
            )
        return self


class DiscriminatorSettings(Settings):
    """HiFi-GAN's discriminators by period and by scale, trained against the generator (least squares)."""

    start_step: int = pydantic.Field(
        -1, ge=-1, description="training step from which they train and judge (-1: never, 0: from the beginning)"
    )
    periods: tuple[Annotated[int, pydantic.Field(ge=2, le=101)], ...] = pydantic.Field(
        (2, 3, 5, 7, 11), description="periods in samples, a discriminator each"
    )
    scales: int = pydantic.Field(
        3, ge=0, le=8, description="discriminators of the waveform at its rate, half of it, a quarter, …"
    )
    width: float = pydantic.Field(
        1.0, gt=0, le=4, description="channels as a share of the paper's (1: 70.7 million weights in all)"
    )

    feature_matching: ClassVar[float] = 2.0
    """Weight of the distance of their activations between recorded and generated speech."""
    adversarial: ClassVar[float] = 1.0
    """Weight of their judgment in the generator's loss."""

    @pydantic.model_validator(mode="after")
    def _some(self) -> Self:
        if self.start_step >= 0 and not self.periods and not self.scales:
            raise ValueError("start_step turns discriminators on, and periods and scales name none; give some")
        return self


class FormSettings(Settings):
    """The form of an exported model, in every family whose models have ONNX graphs."""

    precision: Arithmetic = pydantic.Field(
        "float32",
        description="arithmetic of the network in the SavedModel, which evaluate, time and servers run on a GPU: "
        "mixed_bfloat16 from Ampere on, mixed_float16 before (T4, V100); weights, features and outputs stay float32, "
        "and the gate judges the model as it computes. onnx must be none: its graphs are for processors",
    )

    @pydantic.model_validator(mode="after")
    def _precision_is_not_of_onnx(self) -> Self:
        onnx = getattr(self, "onnx", "none")
        if self.precision != "float32" and onnx != "none":
            raise ValueError(
                f"precision is {self.precision} and onnx is {onnx}: ONNX graphs compute on processors and in float32; "
                "set onnx to none, or precision to float32"
            )
        return self


class AverageSettings(Settings):
    """Averages of weights, exported where the dev split says that they are better."""

    ema_decay: float = pydantic.Field(
        0.0,
        ge=0,
        lt=1,
        description="decay of an exponential moving average of the weights (EMA) over all steps, such as 0.999, which "
        "each validation scores too; 0: none",
    )
    best_checkpoints: int = pydantic.Field(
        1,
        ge=1,
        le=50,
        description="validations with the best scores whose weights are averaged at the end; 1: none",
    )


class TrainSettings(Settings):
    """Settings of a training in every family."""

    family: ClassVar[str] = ""
    """The key in `families.FAMILIES`."""
    ALWAYS_IN_KEY = ("family",)
    NOT_IN_KEY: ClassVar[frozenset[str]] = frozenset(
        {"workers", "xla", "buckets", "recompute", "fit_memory", "probe", "readers", "log_steps"}
    )

    name: str = pydantic.Field(..., pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the model's name")

    epochs: int = pydantic.Field(15, ge=1, le=10_000, description="passes over the training split, at most")
    batch_size: int = pydantic.Field(16, ge=1, le=65_536, description="utterances per step, over all devices")
    batch_seconds: float = pydantic.Field(
        0.0,
        ge=0,
        le=360_000,
        description="seconds of audio per step, padding included, over all devices: short utterances in larger "
        "batches, long ones in smaller; each step counts the mean over its utterances, at the same rate; "
        "0: batch_size utterances",
    )
    accumulate: int = pydantic.Field(
        1,
        ge=1,
        le=1_024,
        description="parts of batch_size utterances (or of batch_seconds) whose gradients make one step: that of a "
        "batch so many times as large, in the memory of one part; statistics of batch normalization and dropout are "
        "of each part",
    )
    fit_memory: bool = pydantic.Field(
        True,
        description="on an accelerator, the largest step is tried before the first one; where it does not fit the "
        "memory, batches are computed in 2, 4 or more parts, as with accumulate; a network with batch normalization is "
        "refused then, since each part would have its own statistics. Not part of the step's key: but for dropout the "
        "result is the same",
    )
    learning_rate: float = pydantic.Field(3e-3, gt=0, le=1, description="peak rate, reached after warm-up")
    warm_up_steps: int = pydantic.Field(100, ge=0, description="steps over which the rate rises from zero")
    schedule: Literal["cosine", "inverse_square_root"] = pydantic.Field(
        "cosine",
        description="decay after warm-up: half a cosine until the last step, or the inverse square root of the step",
    )
    final_rate_share: float = pydantic.Field(
        0.01, ge=0, le=1, description="rate at the last step of the cosine, as a share of learning_rate"
    )
    weight_decay: float = pydantic.Field(1e-3, ge=0, le=1, description="decoupled weight decay of kernels (AdamW)")
    beta_1: float = pydantic.Field(0.9, ge=0, lt=1, description="AdamW: decay rate of the first moment")
    beta_2: float = pydantic.Field(0.98, ge=0, lt=1, description="AdamW: decay rate of the second moment")
    epsilon: float = pydantic.Field(
        1e-7,
        gt=0,
        le=1,
        description="AdamW: added to the root of the second moment; Tacotron 2 has 1e-6, PyTorch 1e-8",
    )
    clip_norm: float = pydantic.Field(5.0, gt=0, description="global norm at which gradients are clipped")
    freeze: list[Part] = pydantic.Field(
        [],
        description="parts of the network that stay as the model to start from has them, by the names of their "
        "weights, such as [convolutions, blocks/0-2]: no gradients, no moments, no decay; their normalizations use "
        "and keep their moving statistics",
    )
    lora: LoraSettings = pydantic.Field(LoraSettings(), description="low-rank updates of kernels, all else frozen")
    rates: dict[Part, Annotated[float, pydantic.Field(gt=0, le=100)]] = pydantic.Field(
        {},
        description="part of the network → factor of its learning rate, such as {blocks/3: 0.3, blocks: 0.1}; the "
        "longest name counts; a weight in none of them: 1",
    )
    length_noise: float = pydantic.Field(
        0.5,
        ge=0,
        le=10,
        description="share of random noise on lengths when utterances are sorted into batches of similar length: "
        "0 pads least, more mixes batches better",
    )
    shortest_first: bool = pydantic.Field(
        False, description="first epoch in order of length instead of shuffled (SortaGrad, Amodei et al. 2015)"
    )

    corpus_weights: dict[str, Annotated[float, pydantic.Field(ge=0, le=1_000)]] = pydantic.Field(
        {},
        description="corpus → how often an epoch draws each of its utterances, on average (follows from "
        "corpus.corpora); one that is not named: once",
    )

    evaluate_epochs: int = pydantic.Field(1, ge=1, description="epochs between validations on the dev split")
    evaluate_steps: int = pydantic.Field(
        0, ge=0, description="steps between validations on the dev split (0: validate by epochs)"
    )
    patience: int = pydantic.Field(
        0, ge=0, description="stop after this many validations without improvement (0: never stop early)"
    )
    min_improvement: float = pydantic.Field(
        0.0005, ge=0, le=1, description="smallest decrease of the dev score that counts as an improvement"
    )
    stop: StopSettings = pydantic.Field(
        StopSettings(), description="early stopping by the dev loss in place of `patience`; losses are in nats for CTC"
    )
    earliest_stop_epoch: int = pydantic.Field(5, ge=1, description="first epoch after which training may stop early")

    average: AverageSettings = pydantic.Field(
        AverageSettings(), description="averages of weights, each exported only if its dev score is better"
    )

    readers: int = pydantic.Field(
        0,
        ge=0,
        le=256,
        description="threads that read, decode and augment batches ahead of the steps; 0: as many as there are cores, "
        "2 to 16. Not part of the step's key: any number gives the same batches",
    )

    max_bad_steps: int = pydantic.Field(
        10, ge=0, description="steps skipped for a non-finite loss or gradient; one more stops the run"
    )
    max_infeasible_share: float = pydantic.Field(
        0.02,
        ge=0,
        le=1,
        description="share of utterances that may be left out because they are too short for their labels",
    )
    checkpoint_steps: int = pydantic.Field(
        500,
        ge=1,
        description="steps between checkpoints, which a thread writes while training continues; each validation and "
        "each epoch writes one too",
    )

    checkpoints_kept: ClassVar[int] = 3
    """Number of newest checkpoints to keep."""

    summary_steps: int = pydantic.Field(20, ge=1, description="steps between points of the training curves")
    log_steps: int = pydantic.Field(
        10,
        ge=0,
        le=1_000,
        description="steps by which the loss is read late from a GPU or TPU, which so waits for no step's result; a "
        "skipped step is reported as much later. Not part of the step's key: the weights are the same",
    )

    precision: Arithmetic = pydantic.Field(
        "float32",
        description="arithmetic of the network; weights and loss stay float32. mixed_float16 is for GPUs without "
        "bfloat16 (T4, V100); the loss is scaled then, so that small gradients are not lost",
    )
    strategy: Literal["auto", "one", "mirrored", "multi_worker"] = pydantic.Field(
        "auto", description="devices: one; all of this machine; all workers in TF_CONFIG; auto: all there are"
    )
    xla: bool = pydantic.Field(
        False,
        description="compile each training step as a whole with XLA, for the static shapes of `buckets`; on one "
        "device, and on TPUs, where it is always so. Not part of the step's key: the result is the same up to rounding",
    )
    buckets: int = pydantic.Field(
        4,
        ge=1,
        le=64,
        description="static shapes to which batches are padded where steps are compiled; each is compiled once",
    )
    recompute: bool = pydantic.Field(
        False,
        description="keep no activations within the network's blocks, and compute them again for the gradients: less "
        "memory for about a third more time. Not part of the step's key: the result is the same",
    )
    start: StartSettings = pydantic.Field(StartSettings(), description="warm start: weights of an earlier model")
    seed: int = pydantic.Field(
        1, ge=0, lt=2**31, description="seed of initial weights, order, augmentation and dropout"
    )
    probe: str = pydantic.Field(
        "",
        description="corpus that evaluate measures (follows from evaluate.probe); it is checked before training",
    )
    workers: WorkersSettings = pydantic.Field(
        WorkersSettings(),
        description="several machines; not part of the step's key, since the result does not depend on them",
    )

    @pydantic.model_validator(mode="after")
    def _check_workers(self) -> Self:
        if self.workers.count > 1 and self.strategy in ("one", "mirrored"):
            raise ValueError(
                f"strategy is {self.strategy!r} and workers.count is {self.workers.count}: each worker would train its "
                "own model; with several workers 'auto' and 'multi_worker' are accepted"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _check_start(self) -> Self:
        if self.start.fallback and not self.start.model:
            raise ValueError(
                f"start.fallback is {self.start.fallback!r}, and start.model is empty: name the model that is started "
                "from once it is in service, such as asr@production, or give the fallback as start.model"
            )
        if self.freeze and not self.start.model:
            raise ValueError(
                f"freeze names {', '.join(self.freeze)}, and start.model is empty: random weights would stay random; "
                "name the model to start from, or freeze nothing"
            )

        if self.lora.rank and (self.freeze or not self.start.model):
            problem = "freeze is set" if self.freeze else "start.model is empty"
            raise ValueError(
                f"lora.rank is {self.lora.rank}, and {problem}: LoRA freezes all but lora.parts and lora.also, as the "
                "model to start from has it; set start.model, and remove freeze"
            )

        only_fallback = self.start.fallback and self.start.keep == "all"  # has head_epochs, and train.epochs in all
        epochs = self.epochs if only_fallback else self.start.epochs or self.epochs
        if self.start.head_epochs >= epochs:
            raise ValueError(
                f"start.head_epochs is {self.start.head_epochs}, and the training has {epochs} epochs in all: none is "
                "left for the rest of the network; set fewer, or freeze the rest"
            )
        return self

    @property
    def step_size(self) -> int:
        """Utterances of one step, in all of its parts."""
        return self.batch_size * self.accumulate

    def started_from(self, model: str, *, by_fallback: bool = False) -> Self:
        """The settings of a training that starts from a model, or from random weights if `model` is empty.

        The shares in `start` are applied to the settings that they are shares of, and have no effect a second time.
        From random weights nothing is frozen.

        Args:
          by_fallback: whether it is the model of `start.fallback`.
        """
        if not model:
            return self.model_copy(update={"start": StartSettings(), "freeze": [], "lora": LoraSettings()})
        start = self.start.model_copy(update={"model": model, "fallback": "", "rate_share": 1.0, "epochs": 0})
        rate = float(f"{self.learning_rate * self.start.rate_share:.12g}")

        # All of the corpus is new to a fallback. What comes after it has its output layer, and no head to train first.
        epochs = self.epochs if by_fallback else self.start.epochs or self.epochs
        if self.start.fallback and not by_fallback and start.keep == "all":
            start = start.model_copy(update={"head_epochs": 0})
        return self.model_copy(update={"start": start, "learning_rate": rate, "epochs": epochs})

    @property
    def output_kind(self) -> str:
        """The kind of the exported model; a parent of the same kind gives its tokenizer."""
        return "ctc"

    def export_form(self) -> Settings:
        """The settings of the exported model's form, in the sections that they have here; the step export's key.

        They decide no weight, so `NOT_IN_KEY` has them: another form trains nothing.
        """
        return Settings()

    def weights_alone(self) -> Self:
        """The settings of the training, with each of `export_form` at its default: train writes that form."""
        return self

    @property
    def exports(self) -> bool:
        """Whether the model's form is another than train writes, so that a run has the step export."""
        return bool(self.export_form().key_values())

    def not_compiled(self) -> str:
        """Reason why XLA cannot compile a step of this training, so that no TPU can run it; empty: it can."""
        return ""

    def not_on_tpus(self) -> str:
        """Reason for which no TPU can run this training; empty: one can."""
        if self.precision == "mixed_float16":
            return "TPUs multiply in bfloat16 and not in float16 (train.precision: mixed_bfloat16)"
        return self.not_compiled()
