"""Where a schema lies: by name among the curated ones in configs/validation/, or anywhere by its path."""

import errno
from pathlib import Path

from components.speech.buckets import Bucket, is_remote
from components.speech.errors import SettingsError

FOLDER = Path(__file__).parents[3] / "configs" / "validation"
ENDING = ".pbtxt"


def schema_text(schema: str) -> str:
    """The text of a schema.

    Args:
      schema: the name of a curated one (`recognition`), or a path or gs://… that ends in .pbtxt.

    Raises:
      SettingsError: there is none of that name, or no such file.
      WorkError: the bucket cannot be asked, or may not be read.
    """
    file = schema if schema.endswith(ENDING) else str(FOLDER / f"{schema}{ENDING}")
    try:
        return _bytes(file).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(path.stem for path in FOLDER.glob(f"*{ENDING}"))) or f"none, as {FOLDER} is empty"
        raise SettingsError(
            f"validate: 'schema' is {schema!r}: {getattr(error, 'strerror', None) or 'not UTF-8'} ({file}); accepted: "
            f"a name ({known}), or a path or gs://… that ends in {ENDING}"
        ) from None


def _bytes(file: str) -> bytes:
    if not is_remote(file):
        return Path(file).read_bytes()
    folder, _, name = file.rpartition("/")
    try:
        return Bucket(folder).read(name)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "No such object") from None
