"""Regular expressions that are compiled when they are first used."""

import re
from typing import Any, cast


class _LazyPattern:
    """Stands for a compiled pattern, and has what that has."""

    def __init__(self, source: str, flags: int) -> None:
        self.pattern = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # Called for an attribute that is not there yet; from then on it is found without a call.
        value = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, value)
        return value


def lazy_pattern(source: str, flags: int = 0) -> re.Pattern[str]:
    r"""A pattern as `re.compile` gives it, for a module that compiles dozens of which a process uses a few.

    To compile one takes a tenth of a millisecond and more; a step of a refresh takes some hundred. The functions of
    `re`, such as `re.sub`, do not accept it in place of a pattern: call its methods.

    >>> digits = lazy_pattern(r"\d+")
    >>> digits.pattern, digits.sub("#", "1 and 22")
    ('\\d+', '# and #')
    """
    return cast("re.Pattern[str]", _LazyPattern(source, flags))
