"""What all training has in common, as settings: how long, how fast, when it looks, and when it stops."""

from typing import ClassVar, Literal, Self

import pydantic

from voxline.settings import Settings


class WorkersSettings(Settings):
    """Machines that train one model together; what their pods look like, k8s/ says."""

    count: int = pydantic.Field(
        1, ge=1, le=256, description="machines; more than 1 on a cluster alone, elsewhere this machine trains by itself"
    )
    kind: Literal["train_job", "tf_job"] = pydantic.Field(
        "train_job", description="what the cluster has: Kubeflow Trainer v2 (TrainJob), or the operator before (TFJob)"
    )
    template: str = pydantic.Field(
        "voxline-train",
        pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
        description="the namespace's TrainingRuntime (train_job) or PodTemplate (tf_job) that a worker is made by",
    )
    start_minutes: float = pydantic.Field(
        60.0, gt=0, le=10_080, description="for nodes, images and each other; after that the step gives up for now"
    )


class _KeyedSettings(Settings):
    """Settings as they name work: whatever keys they have."""

    model_config = pydantic.ConfigDict(extra="allow")


class TrainSettings(Settings):
    """How a model of whatever family is trained."""

    family: ClassVar[str]

    name: str = pydantic.Field(..., pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the model's name")

    epochs: int = pydantic.Field(15, ge=1, le=10_000, description="times through the training split, at most")
    batch_size: int = pydantic.Field(16, ge=1, le=65_536, description="utterances in a step, over all devices")
    learning_rate: float = pydantic.Field(3e-3, gt=0, le=1, description="highest rate, reached after warm-up")
    warm_up_steps: int = pydantic.Field(100, ge=0, description="steps over which the rate rises from zero")
    schedule: Literal["cosine", "inverse_square_root"] = pydantic.Field(
        "cosine",
        description="how the rate falls after warm-up: half a cosine to the last step, or with the root of the step",
    )
    final_rate_share: float = pydantic.Field(
        0.01, ge=0, le=1, description="share of learning_rate at which the cosine ends with the last step"
    )
    weight_decay: float = pydantic.Field(1e-3, ge=0, le=1, description="decoupled decay of kernels (AdamW)")
    beta_1: float = pydantic.Field(0.9, ge=0, lt=1, description="AdamW: decay of the gradient's mean")
    beta_2: float = pydantic.Field(0.98, ge=0, lt=1, description="AdamW: decay of the gradient's square")
    clip_norm: float = pydantic.Field(5.0, gt=0, description="the gradient's global norm is clipped here")
    length_noise: float = pydantic.Field(
        0.5,
        ge=0,
        le=10,
        description="batches hold utterances of like length, as far as this share of noise on each "
        "length lets them: 0 wastes least on padding, more mixes batches better",
    )
    shortest_first: bool = pydantic.Field(
        False, description="first epoch in order of length (the paper's SortaGrad), not shuffled"
    )

    evaluate_epochs: int = pydantic.Field(1, ge=1, description="epochs from one look at the dev split to the next")
    evaluate_steps: int = pydantic.Field(
        0, ge=0, description="steps from one look at the dev split to the next, in place of epochs (0: by epochs)"
    )
    patience: int = pydantic.Field(
        0, ge=0, description="stop after so many looks at dev without a better score (0: never stop early)"
    )
    min_improvement: float = pydantic.Field(
        0.0005, ge=0, le=1, description="a dev score lower by less than this does not count as better for patience"
    )
    earliest_stop_epoch: int = pydantic.Field(5, ge=1, description="never stop early before this epoch has ended")

    max_bad_steps: int = pydantic.Field(
        10, ge=0, description="steps with a non-finite loss or gradient that are skipped; one more stops the run"
    )
    max_infeasible_share: float = pydantic.Field(
        0.02, ge=0, le=1, description="share of utterances too short for their labels that may be left out"
    )
    checkpoint_steps: int = pydantic.Field(
        500, ge=1, description="steps from one checkpoint to the next; there is one after each look at dev too"
    )
    checkpoints_kept: int = pydantic.Field(3, ge=1, le=100, description="newest checkpoints that are kept")
    summary_steps: int = pydantic.Field(20, ge=1, description="steps from one point of the curves to the next")

    precision: Literal["float32", "mixed_bfloat16"] = pydantic.Field(
        "float32", description="numbers of the network's arithmetic; weights and loss stay float32"
    )
    strategy: Literal["auto", "one", "mirrored", "multi_worker"] = pydantic.Field(
        "auto", description="devices: one; all of this machine; all workers in TF_CONFIG; auto: as many as there are"
    )
    seed: int = pydantic.Field(1, ge=0, lt=2**31, description="of initial weights, order, augmentation and dropout")
    workers: WorkersSettings = pydantic.Field(
        WorkersSettings(), description="several machines; they name no work, the model is of one batch size and seed"
    )

    @pydantic.model_validator(mode="after")
    def _workers_find_each_other(self) -> Self:
        if self.workers.count > 1 and self.strategy in ("one", "mirrored"):
            raise ValueError(
                f"strategy is {self.strategy!r} and workers.count is {self.workers.count}: each would train a model of "
                "its own; with several workers 'auto' and 'multi_worker' are accepted"
            )
        return self

    def key_settings(self) -> Settings:
        """The same settings without what names no work: how many machines share it, and what makes them."""
        values = self.plain()
        del values["workers"]
        return _KeyedSettings.of(values)
