"""Objects that installed packages offer by entry points.

This module is below all others, so that a room may read what a family declares without importing families.
"""

import functools
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from voxline.errors import SettingsError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FAMILIES = "voxline.families"
"""The group of model families: name → a subclass of `families.family.Family`."""


def entry_points_of(group: str) -> "list[EntryPoint]":
    """The entry points of a group; nothing is imported. Several packages may offer the same name.

    All installed packages are searched once in a process and its forks, unless `sys.path` changes.
    """
    return list(_all_entry_points(tuple(sys.path)).select(group=group))


@functools.cache
def find_plugins(group: str) -> "Mapping[str, EntryPoint]":
    """The entry points of a group, by name, in alphabetical order; nothing is imported."""
    points = sorted(entry_points_of(group), key=lambda point: point.name)
    return MappingProxyType({point.name: point for point in points})


@functools.lru_cache(maxsize=1)
def _all_entry_points(path: tuple[str, ...]) -> Any:
    """The entry points of all packages on `sys.path`, which is the argument."""
    from importlib.metadata import entry_points  # not at the top: slow to import

    return entry_points()


def load_plugin(point: "EntryPoint") -> Any:
    """The object of an entry point.

    Raises:
      SettingsError: its module cannot be imported; naming the package.
    """
    try:
        return point.load()
    except Exception as error:
        # The module is another package's: its import may fail in any way.
        package = point.dist.name if point.dist else point.module
        version = f" {point.dist.version}" if point.dist else ""
        raise SettingsError(
            f"package {package}{version}: its {point.group} {point.name!r} ({point.value}) cannot be imported "
            f"({type(error).__name__}: {error}); install what it needs, or uninstall {package}"
        ) from error


def load_plugins(group: str) -> Mapping[str, Any]:
    """The objects of a group, by the names of their entry points, in alphabetical order.

    Raises:
      SettingsError: one of them cannot be imported; naming its package.
    """
    return {name: load_plugin(point) for name, point in find_plugins(group).items()}
