"""What push needs to know about a model family; docs/extend/family.md shows one being added."""

from pathlib import Path
from typing import Any, Protocol

from voxline.components.push.gate import GateCheck
from voxline.metrics.evaluation import Evaluation


class PushFamily(Protocol):
    """A family of models, as push sees it."""

    def smoke_test(self, model: Path, evaluation: Evaluation, seconds: float) -> GateCheck:
        """Loads the model in a fresh process, and repeats one output that evaluate recorded.

        Args:
          seconds: longest time for that process.
        """

    def repeat(self, *arguments: str) -> dict[str, Any]:
        """Runs in that process: loads the model, and returns its output as JSON values."""

    def describe(self, about: dict[str, Any]) -> str:
        """One sentence for the model card.

        Args:
          about: the contents of `model.json`.
        """

    def errors(self, metrics: dict[str, Any]) -> str:
        """Further results for the model card, below the table of metrics; may be empty."""

    def limitations(self, about: dict[str, Any], metrics: dict[str, Any]) -> list[str]:
        """For the model card: what the model cannot do."""

    def usage(self, about: dict[str, Any], name: str, version: int) -> str:
        """For the model card: commands and signatures, in Markdown."""
