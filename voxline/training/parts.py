"""Parts of a network, named by the paths of its weights: which are frozen, and how fast the others learn.

A part is the beginning of weights' names (`weight_names`), component by component:

  classifier                  the weights under classifier/
  blocks/0-2                  those of the first three blocks: a range of numbers, both ends included
  blocks/*/attention/query    those of the queries of every block: * is any one component
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from voxline.errors import SettingsError

RANGE = re.compile(r"(\d+)-(\d+)")
ANY = "*"


def is_part(name: str, parts: Iterable[str]) -> bool:
    """True if a weight belongs to one of the parts.

    >>> [is_part(f"blocks/{number}/kernel", ["blocks/0-2", "classifier"]) for number in (2, 3)]
    [True, False]
    >>> is_part("blocks/3/attention/query/kernel", ["blocks/*/attention"]), is_part("blocks_2/kernel", ["blocks"])
    (True, False)
    """
    components = name.split("/")
    return any(_begins_with(components, part.split("/")) for part in parts)


def check_parts(setting: str, parts: Iterable[str], names: Sequence[str]) -> None:
    """Refuses parts that a network does not have; of a range, both ends must be there.

    Args:
      setting: the key that names the parts.
      names: of the network's weights.

    Raises:
      SettingsError: naming the absent parts, and those that the network has.
    """
    absent = [part for part in parts if not all(_names_some(each, names) for each in [part, *_ends(part)])]
    if absent:
        raise SettingsError(
            f"{setting}: {', '.join(map(repr, absent))}: the network has no such part; it has "
            f"{', '.join(list_parts(names))}"
        )


def list_parts(names: Iterable[str]) -> list[str]:
    """The parts at the top of a network, those with numbers as ranges.

    >>> list_parts(["front/kernel", "blocks/0/kernel", "blocks/1/kernel", "norms/2/beta", "classifier/bias"])
    ['front', 'blocks/0-1', 'norms/2', 'classifier']
    """

    # Numbers of each part, in the order of the weights; [] of a part without any.
    numbers: dict[str, list[int]] = {}
    for name in names:
        first, *deeper = name.split("/")
        of_part = numbers.setdefault(first, [])
        if deeper and deeper[0].isdigit():
            of_part.append(int(deeper[0]))

    return [
        part + (f"/{min(own)}" if own else "") + (f"-{max(own)}" if own and max(own) > min(own) else "")
        for part, own in numbers.items()
    ]


def rate_of(name: str, rates: Mapping[str, float]) -> float:
    """The factor of a weight's learning rate: that of the longest part that it belongs to, 1 of none.

    The longest has the most components, and of these the most letters.

    >>> rates = {"classifier": 1.0, "blocks/3": 0.3, "blocks": 0.1}
    >>> [rate_of(name, rates) for name in ("blocks/2/kernel", "blocks/3/kernel", "front/kernel")]
    [0.1, 0.3, 1.0]
    """
    parts = [part for part in rates if is_part(name, [part])]
    return rates[max(parts, key=lambda part: (part.count("/"), len(part)))] if parts else 1.0


def _begins_with(components: Sequence[str], part: Sequence[str]) -> bool:
    return len(part) <= len(components) and all(map(_fits, part, components))


def _fits(pattern: str, component: str) -> bool:
    numbers = RANGE.fullmatch(pattern)
    if numbers and component.isdigit():
        return int(numbers[1]) <= int(component) <= int(numbers[2])
    return pattern in (ANY, component)


def _ends(part: str) -> list[str]:
    """The part with each range replaced by its first number, and by its last."""
    return [RANGE.sub(rf"\{group}", part) for group in (1, 2)]


def _names_some(part: str, names: Iterable[str]) -> bool:
    return any(is_part(name, [part]) for name in names)
