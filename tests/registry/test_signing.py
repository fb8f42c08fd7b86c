"""Versions are signed when they are published, by OpenSSF's library, and refused where its key did not sign them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.registry.published import exported, publish
from voxline.errors import SettingsError, WorkError
from voxline.registry.models import find_model
from voxline.registry.registry import UNSIGNED, Registry
from voxline.registry.signing import PRIVATE_KEY_ENV, PUBLIC_KEY_ENV, SIGNATURE, check_signature


def write_keys(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / "key.pem", folder / "key.pub"
    folder.mkdir(exist_ok=True)
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
    return private, public


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    private, public = write_keys(tmp_path / "keys")
    monkeypatch.setenv(PRIVATE_KEY_ENV, str(private))
    monkeypatch.setenv(PUBLIC_KEY_ENV, str(public))
    return private, public


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry", "asr")


def test_without_keys_nothing_is_signed_and_nothing_is_checked(registry: Registry, tmp_path: Path) -> None:
    publish(registry, exported(tmp_path / "model", "first"))
    assert not (registry.path(1) / SIGNATURE).exists()
    assert registry.intact_path(1) == registry.path(1)


def test_a_missing_library_is_named_and_nothing_is_published(
    registry: Registry, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    with pytest.raises(SettingsError, match="pip install model-signing"):
        publish(registry, exported(tmp_path / "model", "first"))
    assert registry.versions() == []


@pytest.fixture
def library() -> None:
    pytest.importorskip("model_signing", reason="model-signing is not installed (the extra `signing`)")


@pytest.mark.usefixtures("library")
def test_a_signed_version_is_loaded_also_after_its_card_has_changed(
    registry: Registry, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    publish(registry, exported(tmp_path / "model", "first"))
    (registry.path(1) / "model_card.md").write_text("a purge rewrote it")
    assert registry.intact_path(1) == registry.path(1)
    assert find_model(registry.uri) == registry.path(1)
    command = ["verify", "key", registry.path(1), "--signature", registry.path(1) / SIGNATURE, "--public_key", keys[1]]
    unsigned = [
        word
        for name in ("version.json", "model_card.md", SIGNATURE)
        for word in ("--ignore-paths", registry.path(1) / name)
    ]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # where this process found the library
    command = [sys.executable, "-m", "model_signing", *command, *unsigned]
    done = subprocess.run(command, capture_output=True, text=True, env=path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Verification succeeded" in done.stdout + done.stderr


@pytest.mark.usefixtures("library")
def test_a_signature_holds_in_the_hub_s_cache_whose_files_are_links(
    registry: Registry, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    publish(registry, exported(tmp_path / "model", "first"))
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    for file in registry.path(1).rglob("*"):
        if file.is_file() and file.name not in UNSIGNED:
            link = snapshot / file.relative_to(registry.path(1))
            link.parent.mkdir(parents=True, exist_ok=True)
            blobs.mkdir(exist_ok=True)
            shutil.copyfile(file, blobs / file.name)
            link.symlink_to(blobs / file.name)
    (snapshot / "README.md").write_text("of the Hub")
    check_signature(snapshot, ("README.md",), links=True)
    with pytest.raises(WorkError, match="its signature is not valid"):
        check_signature(snapshot, (), links=True)
    (blobs / "saved_model.pb").write_text("another graph")
    with pytest.raises(WorkError, match="its signature is not valid"):
        check_signature(snapshot, ("README.md",), links=True)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("damage", ["changed", "added", "unsigned", "another's"])
def test_what_the_key_did_not_sign_is_refused_by_name(
    registry: Registry, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    if damage == "unsigned":
        monkeypatch.delenv(PRIVATE_KEY_ENV)
    publish(registry, exported(tmp_path / "model", "first"))
    folder = tmp_path / "copied"
    shutil.copytree(registry.path(1), folder)
    (folder / "version.json").unlink()  # else its digest would say it
    if damage == "changed":
        (folder / "saved_model.pb").write_text("another graph")
    if damage == "added":
        (folder / "assets").mkdir()
        (folder / "assets" / "words").write_text("more")
    if damage == "another's":
        monkeypatch.setenv(PUBLIC_KEY_ENV, str(write_keys(tmp_path / "others")[1]))
    said = "has no signature" if damage == "unsigned" else "its signature is not valid for"
    with pytest.raises(WorkError, match=f"copied: {said}.*not loaded"):
        find_model(folder)


@pytest.mark.usefixtures("library")
def test_a_rollback_keeps_the_signature_without_the_private_key(
    registry: Registry, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for content in ("first", "second"):
        publish(registry, exported(tmp_path / content, content))
    monkeypatch.delenv(PRIVATE_KEY_ENV)
    assert registry.rollback().version == 3
    assert registry.intact_path(3) == registry.path(3)


@pytest.mark.usefixtures("library")
def test_a_rollback_does_not_sign_or_serve_what_nobody_signed(
    registry: Registry, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.delenv(PRIVATE_KEY_ENV)
        publish(registry, exported(tmp_path / "first", "first"))
    publish(registry, exported(tmp_path / "second", "second"))
    with pytest.raises(WorkError, match="1: has no signature"):
        registry.rollback()
    assert registry.versions() == [1, 2]


@pytest.mark.usefixtures("library")
def test_a_key_that_is_none_is_named(
    registry: Registry, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys[0].write_text("no key")
    with pytest.raises(SettingsError, match=r"signing\.private_key: .*key\.pem cannot sign"):
        publish(registry, exported(tmp_path / "model", "first"))
    monkeypatch.setenv(PRIVATE_KEY_ENV, str(tmp_path / "gone.pem"))
    with pytest.raises(SettingsError, match=r"gone\.pem is not a file"):
        publish(registry, exported(tmp_path / "other", "second"))
    assert registry.versions() == []
