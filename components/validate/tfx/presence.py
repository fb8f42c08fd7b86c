"""Whether TensorFlow Data Validation runs on this machine, asked without the seconds of importing it."""

import importlib.metadata
import importlib.util
import platform
import sys

PACKAGE = "tensorflow-data-validation"
MODULE = "tensorflow_data_validation"
LOWEST_GLIBC = (2, 39)
"""Of its wheels (manylinux_2_39): Debian 13, Ubuntu 24.04."""
PYTHONS = ((3, 10), (3, 12))


def reason_against() -> str:
    """Why it does not run here, as half a sentence; empty where it does."""
    return _against(platform.libc_ver(), sys.version_info[:2], importlib.util.find_spec(MODULE) is not None)


def version() -> str:
    """The version that is installed; empty where none is."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _against(libc: tuple[str, str], python: tuple[int, ...], installed: bool) -> str:
    """
    >>> _against(("glibc", "2.36"), (3, 11), False)
    'it needs glibc 2.39 or newer, here is glibc 2.36'
    >>> _against(("glibc", "2.41"), (3, 13), False)
    'it needs Python 3.10 to 3.12, here is 3.13'
    >>> _against(("glibc", "2.41"), (3, 11), False)
    'tensorflow-data-validation is not installed'
    """
    name, number = libc
    if name != "glibc" or tuple(int(part) for part in number.split(".")[:2]) < LOWEST_GLIBC:
        here = f"{name} {number}".strip() or f"another C library ({sys.platform})"
        return f"it needs glibc {LOWEST_GLIBC[0]}.{LOWEST_GLIBC[1]} or newer, here is {here}"
    if not PYTHONS[0] <= python[:2] <= PYTHONS[1]:
        return f"it needs Python 3.10 to 3.12, here is {python[0]}.{python[1]}"
    return "" if installed else f"{PACKAGE} is not installed"
