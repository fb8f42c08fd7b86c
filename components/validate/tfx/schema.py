"""Where a schema lies: by name among the curated ones in configs/validation/, or anywhere by its path."""

from pathlib import Path

from components.speech.errors import SettingsError

FOLDER = Path(__file__).parents[3] / "configs" / "validation"
ENDING = ".pbtxt"


def schema_text(schema: str) -> str:
    """The text of a schema.

    Args:
      schema: the name of a curated one (`recognition`), or a path that ends in .pbtxt.

    Raises:
      SettingsError: there is none of that name, or no such file.
    """
    file = Path(schema) if schema.endswith(ENDING) else FOLDER / f"{schema}{ENDING}"
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(path.stem for path in FOLDER.glob(f"*{ENDING}"))) or f"none, as {FOLDER} is empty"
        raise SettingsError(
            f"validate: 'schema' is {schema!r}: {getattr(error, 'strerror', None) or 'not UTF-8'} ({file}); accepted: "
            f"a name ({known}), or the path of a schema that ends in {ENDING}"
        ) from None
