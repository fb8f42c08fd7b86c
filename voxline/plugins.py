"""Objects that installed packages offer by entry points.

This module is below all others, so that a room may read what a family declares without importing families.
"""

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

FAMILIES = "voxline.families"
"""The group of model families: name → a subclass of `families.family.Family`."""


@functools.cache
def load_plugins(group: str) -> Mapping[str, Any]:
    """The objects of a group, by the names of their entry points, in alphabetical order.

    All installed packages are searched and those in the group imported, once in a process.
    """
    from importlib.metadata import entry_points  # not at the top: slow to import

    points = sorted(entry_points(group=group), key=lambda point: point.name)
    return MappingProxyType({point.name: point.load() for point in points})
