"""Whether a model is the one that was published: by its digest, and by a signature if keys are configured.

Signatures are OpenSSF Model Signing's: made when a version is published, checked before it is loaded.

Keys are files, named by variables that the section `signing` of a config sets. The digest in `version.json` tells a
damaged model from a whole one; a signature tells one that a push wrote from one that anyone with write access did.
Format: https://github.com/ossf/model-signing-spec, elliptic curve keys. `pip install model-signing pyopenssl` adds the
library, which imports pyopenssl without requiring it.
"""

import importlib
import os
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError, WorkError

PRIVATE_KEY_ENV = "VOXLINE_SIGNING_KEY"
PUBLIC_KEY_ENV = "VOXLINE_VERIFICATION_KEY"
"""Of the files that hold the keys, in PEM."""
SIGNATURE = "model.sig"


ROLL_BACK = "push it again, or roll back (voxline models rollback)"
"""What mends a damaged version of a registry."""


def check_digest(
    folder: Path, published: str, unsigned: tuple[str, ...], *, links: bool = False, remedy: str = ROLL_BACK
) -> Path:
    """The folder of an exported model, if its files are the ones that were published, by the configured key if any.

    Args:
      unsigned: as for `sign_version`.
      links: whether files may be links, as in the Hub's cache; what they lead to is checked.
      remedy: what a person can do about other files, for the message.

    Raises:
      WorkError: they are not.
    """
    from voxline.inference.saved_model import model_digest  # not at the top: each config imports this module

    digest = model_digest(folder)
    if digest != published:
        raise WorkError(
            f"{folder}: these files are not the ones that were published (digest {digest[:12]}, published "
            f"{published[:12]}), so the model was not loaded; {remedy}"
        )
    check_signature(folder, unsigned, links=links)
    return folder


def digest_or_empty(folder: Path) -> str:
    """The digest of an exported model; empty if the folder holds none."""
    from voxline.inference.saved_model import model_digest

    try:
        return model_digest(folder)
    except WorkError:
        return ""


def sign_version(folder: Path, unsigned: tuple[str, ...]) -> None:
    """Signs a version that is about to be published, if a private key is configured.

    Args:
      unsigned: files and folders beside the model's, which may change later.

    Raises:
      SettingsError: the key cannot be used, or the library is not installed.
    """
    key = os.environ.get(PRIVATE_KEY_ENV, "")
    if not key:
        return

    library = _library(PRIVATE_KEY_ENV)
    try:
        config = library.signing.Config().use_elliptic_key_signer(private_key=_key_file(PRIVATE_KEY_ENV, key))
        config.set_hashing_config(_hashing(library, unsigned)).sign(folder, folder / SIGNATURE)
    except (ValueError, TypeError, OSError) as error:
        raise SettingsError(
            f"signing.private_key: {key} cannot sign: {error}; an elliptic curve key in PEM is accepted"
        ) from None


def check_signature(folder: Path, unsigned: tuple[str, ...], *, links: bool = False) -> None:
    """Refuses a model that is not signed by the configured key; does nothing if none is configured.

    Args:
      unsigned, links: as for `check_digest`.

    Raises:
      WorkError: there is no signature, it is by another key, or the model's files are not those that were signed.
      SettingsError: the key cannot be used, or the library is not installed.
    """
    key = os.environ.get(PUBLIC_KEY_ENV, "")
    if not key:
        return
    library = _library(PUBLIC_KEY_ENV)
    if not (folder / SIGNATURE).is_file():
        raise WorkError(
            f"{folder}: has no signature ({SIGNATURE}), so the model was not loaded; push it with signing.private_key, "
            f"or leave signing.public_key ({PUBLIC_KEY_ENV}) empty"
        )
    try:
        verifier = library.verifying.Config().use_elliptic_key_verifier(public_key=_key_file(PUBLIC_KEY_ENV, key))
    except (ValueError, TypeError, OSError) as error:
        raise SettingsError(f"signing.public_key: {key} is not a public key in PEM: {error}") from None
    try:
        hashing = _hashing(library, unsigned).set_allow_symlinks(links)
        # The signature's own file is opened by its real name.
        verifier.set_hashing_config(hashing).verify(folder, (folder / SIGNATURE).resolve())
    except Exception as error:  # of the library, of the cryptography below it: whatever it is, the model is not loaded
        why = " ".join(str(error).split()) or type(error).__name__
        raise WorkError(
            f"{folder}: its signature is not valid for {key} ({why[:300]}), so the model was not loaded; push it "
            "again, or roll back to a signed version"
        ) from None


def _hashing(library: Any, unsigned: tuple[str, ...]) -> Any:
    # Paths of git are no exception: a folder `.git` in a version would be unsigned.
    return library.hashing.Config().set_ignored_paths(paths=[*unsigned, SIGNATURE], ignore_git_paths=False)


def _key_file(variable: str, key: str) -> Path:
    if not Path(key).is_file():
        raise SettingsError(f"{variable}: {key} is not a file; name the file of the key, or mount the Secret there")
    return Path(key)


def _library(variable: str) -> Any:
    try:
        return importlib.import_module("model_signing")
    except ImportError as error:
        raise SettingsError(
            f"{variable} is set, and model-signing cannot be imported ({error}): `pip install model-signing pyopenssl` "
            "adds it; nothing was loaded or published"
        ) from None
