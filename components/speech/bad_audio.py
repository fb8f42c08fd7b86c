"""The one way in which a recording turns out to be unusable."""

from components.speech.utterances import Reason


class BadAudio(Exception):  # noqa: N818 -- it is about a recording, not about a program
    """A recording that must not go on, and why.

    Attributes:
      reason: the code under which it is counted.
      detail: what was there and what was expected, in words.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail

    def __reduce__(self) -> tuple[type["BadAudio"], tuple[Reason, str]]:
        return type(self), (self.reason, self.detail)
