"""Whether TFX's data validation runs, on what schema and against what; and how it is carried out.

What carries it out is imported where it runs: to know that it does not must cost a refresh nothing.
"""

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.speech.errors import WorkError
from components.speech.storage import hash_bytes
from components.validate.settings import ValidateSettings
from components.validate.tfx import presence
from components.validate.tfx.baseline import Baseline
from components.validate.tfx.examination import Examination
from components.validate.tfx.schema import schema_text

if TYPE_CHECKING:
    from components.validate.corpus import Corpus


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is known before anything is computed.

    Attributes:
      skipped: why it does not run; empty where it does.
    """

    skipped: str = ""
    version: str = ""
    schema: str = ""
    schema_text: str = ""
    baseline: Baseline = dataclasses.field(default_factory=Baseline)

    @classmethod
    def of(cls, settings: ValidateSettings, store: Path | str, registry: Path | str, model_name: str) -> "Plan":
        """Settles it.

        Raises:
          SettingsError: there is no such schema.
          WorkError: `validate.tfdv` is "required", and it does not run here.
        """
        if settings.tfdv == "off":
            return cls(skipped="validate.tfdv is off")
        text = schema_text(settings.schema_)
        reason = presence.reason_against()
        if reason and settings.tfdv == "required":
            raise WorkError(
                f"validate: 'tfdv' is 'required', and TFX's data validation does not run here: {reason}; run validate "
                "in its image (docker/validate), or set validate.tfdv to auto"
            )
        if reason:
            return cls(skipped=reason)
        baseline = Baseline.in_service(registry, model_name, store)
        return cls("", presence.version(), settings.schema_, text, baseline)

    def named_by(self) -> dict[str, Any]:
        """What takes part in the key of the work: the same corpus judged with TFDV and without is not the same work."""
        if self.skipped:
            return {"tfdv": "skipped"}
        return {
            "tfdv": self.version,
            "schema": hash_bytes(self.schema_text.encode()),
            "baseline": self.baseline.utterances or self.baseline.absent,
        }

    def carry_out(
        self, corpus: "Corpus", utterances: str, store: Path | str, settings: ValidateSettings, statistics: Path
    ) -> Examination:
        """Examines a corpus, and leaves its statistics in a file as well.

        Args:
          utterances: the corpus's fingerprint.
          statistics: where to put them.

        Raises:
          SettingsError: the schema is none, or compares no feature that has a threshold in the config.
          WorkError: TFDV is there and damaged, or statistics are.
        """
        if self.skipped or not len(corpus):
            return Examination(skipped=self.skipped or "there are no utterances")
        from components.validate.tfx import protos
        from components.validate.tfx.examples import Examples
        from components.validate.tfx.statistics import statistics_of

        try:
            from components.validate.tfx import engine
        except ImportError as error:
            raise WorkError(
                f"validate: {presence.PACKAGE} {self.version} is installed and cannot be imported ({error}); mend its "
                "installation, or set validate.tfdv to off"
            ) from error

        schema = engine.read_schema(self.schema_text, self.schema, settings.drift.thresholds)
        made = statistics_of(Examples.of(corpus), utterances, store).path("statistics")
        shutil.copyfile(made, statistics)
        now = engine.read_statistics(made)
        before = engine.read_statistics(self.baseline.statistics) if self.baseline.statistics else None
        anomalies, drifts = engine.look(now, schema, before)
        return Examination(
            version=self.version,
            schema=self.schema,
            against=self.baseline.name,
            not_compared=self.baseline.absent,
            anomalies=tuple(anomalies),
            drifts=tuple(drifts),
            limits=protos.limits(schema),
            spreads=protos.spreads(now),
            before=protos.spreads(before) if before is not None else {},
        )
