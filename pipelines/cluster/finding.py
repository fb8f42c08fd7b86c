"""What an examination found: well, a problem and what mends it, or not checked and why."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from components.speech.errors import VoxlineError


@dataclass(frozen=True)
class Finding:
    """One line of `voxline doctor`."""

    state: Literal["ok", "problem", "not checked"]
    what: str
    detail: str
    mend: str = ""

    @classmethod
    def ok(cls, what: str, detail: str) -> "Finding":
        return cls("ok", what, detail)

    @classmethod
    def problem(cls, what: str, detail: str, mend: str = "") -> "Finding":
        return cls("problem", what, detail, mend)

    @classmethod
    def not_checked(cls, what: str, why: str) -> "Finding":
        return cls("not checked", what, why)

    @property
    def is_problem(self) -> bool:
        return self.state == "problem"

    @property
    def line(self) -> str:
        """
        >>> Finding.problem("image", "data:1 is not there", "make images").line
        'problem      image        data:1 is not there; mend: make images'
        """
        return f"{self.state:<12} {self.what:<12} {self.detail}" + (f"; mend: {self.mend}" if self.mend else "")


def guarded(what: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Its findings; a refusal in its midst is a problem too, and no end of the examination."""
    try:
        yield from look()
    except VoxlineError as error:
        yield Finding.problem(what, str(error))
