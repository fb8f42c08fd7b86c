"""Archives that somebody else made: attacks, damage, limits, and a kill in the middle."""

import gzip
import io
import os
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from voxline.components.ingest.archives import unpack_archive
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run
from voxline.errors import WorkError

ROOT = Path(__file__).parents[2]
Member = tuple[tarfile.TarInfo, bytes]


def opened(archive: Path, store: Path, max_bytes: float = 1e9, max_files: int = 1000) -> Path:
    return unpack_archive(archive, store, max_bytes=max_bytes, max_files=max_files)[0]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info, content


@pytest.fixture
def tar(tmp_path: Path) -> Callable[..., Path]:
    def write(*members: Member, name: str = "corpus.tar.gz") -> Path:
        with tarfile.open(tmp_path / name, "w:gz" if name.endswith("gz") else "w") as file:
            for info, content in members:
                file.addfile(info, io.BytesIO(content))
        return tmp_path / name

    return write


GOOD = {"a/b.txt": b"b" * 5000, "a/ü ñ/c.txt": b"c", "empty.txt": b""}


@pytest.mark.parametrize("name", ["corpus.tar", "corpus.tar.gz", "Corpus.TGZ", "corpus.zip"])
def test_an_archive_of_any_kind_unpacks_to_its_files(tar: Callable[..., Path], tmp_path: Path, name: str) -> None:
    if name.endswith("zip"):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as file:
            for path, content in GOOD.items():
                file.writestr(path, content)
    else:
        tar(*(member(path, content) for path, content in GOOD.items()), name=name)
    assert files_of(opened(tmp_path / name, tmp_path / "store")) == GOOD


ATTACKS = {
    "up": member("../evil.txt", b"x"),
    "up, hidden": member("a/../../evil.txt", b"x"),
    "absolute": member("/evil.txt", b"x"),
    "backslash": member("..\\evil.txt", b"x"),
    "symlink": member("link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
    "symlink inside": member("link", kind=tarfile.SYMTYPE, link="a.txt"),
    "hardlink": member("link", kind=tarfile.LNKTYPE, link="../../evil.txt"),
    "device": member("null", kind=tarfile.CHRTYPE),
    "block device": member("disk", kind=tarfile.BLKTYPE),
    "pipe": member("pipe", kind=tarfile.FIFOTYPE),
    "twice": member("a.txt", b"other"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_by_its_name_and_nothing_is_left(
    tar: Callable[..., Path], tmp_path: Path, attack: str
) -> None:
    archive = tar(member("a.txt", b"fine"), ATTACKS[attack])
    with pytest.raises(WorkError) as refused:
        opened(archive, tmp_path / "store")
    assert repr(ATTACKS[attack][0].name) in str(refused.value)
    assert_nothing_unpacked(tmp_path)


def test_a_file_through_a_linked_folder_is_refused(tar: Callable[..., Path], tmp_path: Path) -> None:
    archive = tar(member("out", kind=tarfile.SYMTYPE, link=str(tmp_path)), member("out/evil.txt", b"x"))
    with pytest.raises(WorkError, match="'out' is a link"):
        opened(archive, tmp_path / "store")
    assert_nothing_unpacked(tmp_path)


@pytest.mark.parametrize("name", ["../evil.txt", "a/../../evil.txt", "/evil.txt", "link", "twice.txt"])
def test_an_attack_by_zip_is_refused(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "corpus.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("twice.txt", b"fine")
        info = zipfile.ZipInfo(name)
        info.external_attr = (stat.S_IFLNK | 0o777) << 16 if name == "link" else 0o644 << 16
        if name == "twice.txt":
            with pytest.warns(UserWarning, match="Duplicate"):
                file.writestr(info, b"/etc/passwd")
        else:
            file.writestr(info, b"/etc/passwd")
    with pytest.raises(WorkError, match="nothing of it was kept"):
        opened(archive, tmp_path / "store")
    assert_nothing_unpacked(tmp_path)


@pytest.mark.parametrize("name", ["bomb.zip", "bomb.tar.gz"])
def test_a_bomb_is_stopped_at_the_limit_by_what_it_unpacks_to(tmp_path: Path, name: str) -> None:
    bomb = tmp_path / name
    if name.endswith("zip"):
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("zeros.wav", bytes(50_000_000))
    else:
        with tarfile.open(bomb, "w:gz") as file:
            file.addfile(member("zeros.wav", bytes(50_000_000))[0], io.BytesIO(bytes(50_000_000)))
    assert bomb.stat().st_size < 100_000
    with pytest.raises(WorkError, match=r"zeros.wav.*0\.01 GB \(corpus\.max_unpacked_gigabytes\)"):
        opened(bomb, tmp_path / "store", max_bytes=10_000_000)
    assert_nothing_unpacked(tmp_path)


def test_a_zip_that_lies_about_its_sizes_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "corpus.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros.wav", bytes(5_000_000))
    lie = archive.read_bytes().replace((5_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    archive.write_bytes(lie)
    with pytest.raises(WorkError):
        opened(archive, tmp_path / "store", max_bytes=1000)
    assert_nothing_unpacked(tmp_path)


def test_zeros_after_the_end_of_a_tar_count_too(tar: Callable[..., Path], tmp_path: Path) -> None:
    archive = tar(member("a.txt", b"fine"), name="corpus.tar")
    bomb = tmp_path / "bomb.tar.gz"
    bomb.write_bytes(gzip.compress(archive.read_bytes() + bytes(20_000_000)))
    with pytest.raises(WorkError, match="max_unpacked_gigabytes"):
        opened(bomb, tmp_path / "store", max_bytes=10_000_000)


@pytest.mark.slow
def test_a_giant_header_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("name")
    info.type, info.size = tarfile.XHDTYPE, 100_000_000
    (tmp_path / "bomb.tar.gz").write_bytes(gzip.compress(info.tobuf() + bytes(100_000_000)))
    with pytest.raises(WorkError, match="header of 100,000,000 bytes"):
        opened(tmp_path / "bomb.tar.gz", tmp_path / "store")


def test_too_many_files_are_refused(tar: Callable[..., Path], tmp_path: Path) -> None:
    archive = tar(*(member(f"{number}.txt") for number in range(11)))
    with pytest.raises(WorkError, match=r"exceeds the limit of 10 files \(corpus\.max_unpacked_files\)"):
        opened(archive, tmp_path / "store", max_files=10)
    assert_nothing_unpacked(tmp_path)
    assert len(files_of(opened(archive, tmp_path / "store", max_files=11))) == 11


@pytest.mark.parametrize("name", ["corpus.tar", "corpus.tar.gz"])
def test_a_tar_cut_short_anywhere_is_refused(tar: Callable[..., Path], tmp_path: Path, name: str) -> None:
    whole = tar(*(member(f"{number}.txt", os.urandom(700)) for number in range(4)), name=name).read_bytes()
    end = len(whole) if name.endswith("gz") else len(whole.rstrip(b"\0"))
    cut = tmp_path / f"cut {name}"
    for length in [*range(0, end, 256), end - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(WorkError, match="damaged"):
            opened(cut, tmp_path / "store")
    assert_nothing_unpacked(tmp_path)


def test_a_tar_with_a_damaged_header_in_its_middle_is_refused(tar: Callable[..., Path], tmp_path: Path) -> None:
    archive = tar(*(member(f"{number}.txt", b"x") for number in range(4)), name="corpus.tar")
    damaged = bytearray(archive.read_bytes())
    damaged[2 * 1024 + 150] ^= 0xFF  # in the third member's checksum; tarfile alone would end here without a word
    archive.write_bytes(damaged)
    with pytest.raises(WorkError, match="damaged after 2 members"):
        opened(archive, tmp_path / "store")


@pytest.mark.parametrize("name", ["corpus.tar.gz", "corpus.zip"])
def test_bytes_that_do_not_match_their_checksum_are_refused(
    tar: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    archive = tmp_path / name
    if name.endswith("zip"):
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("a.txt", b"needle in it")
        archive.write_bytes(archive.read_bytes().replace(b"needle", b"noodle"))
    else:
        tar(member("a.txt", b"x"), name=name)
        archive.write_bytes(archive.read_bytes()[:-8] + b"oops" + archive.read_bytes()[-4:])
    with pytest.raises(WorkError, match="damaged"):
        opened(archive, tmp_path / "store")
    assert_nothing_unpacked(tmp_path)


def test_an_encrypted_zip_says_what_to_do(tmp_path: Path) -> None:
    archive = tmp_path / "corpus.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.txt", b"x")
    flagged = bytearray(archive.read_bytes())
    flagged[flagged.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(flagged)
    with pytest.raises(WorkError, match="encrypted; unpack the archive yourself"):
        opened(archive, tmp_path / "store")


def test_the_same_archive_by_another_name_is_not_unpacked_again(tar: Callable[..., Path], tmp_path: Path) -> None:
    archive = tar(member("a.txt", b"x"))
    first = opened(archive, tmp_path / "store")
    before = (first / "a.txt").stat()
    (tmp_path / "other").mkdir()
    second = opened(archive.rename(tmp_path / "other" / "renamed.tgz"), tmp_path / "store")
    assert second == first
    assert (second / "a.txt").stat() == before
    assert opened(tar(member("a.txt", b"y")), tmp_path / "store") != first


@pytest.mark.slow
def test_killed_while_unpacking_and_started_again_all_of_it_is_there(tar: Callable[..., Path], tmp_path: Path) -> None:
    archive = tar(*(member(f"{number}.txt", b"%d" % number) for number in range(5_000)))
    code = (
        "import sys; from pathlib import Path; from voxline.components.ingest.archives import unpack_archive; "
        "unpack_archive(Path(sys.argv[1]), Path(sys.argv[2]), max_bytes=1e9, max_files=10**6)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(archive), str(tmp_path / "store")], cwd=ROOT)
    while not any((tmp_path / "store").glob("unpacked/*/unfinished/100.txt")):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not any((tmp_path / "store").glob("unpacked/*/files"))
    folder = opened(archive, tmp_path / "store", max_files=10**6)
    assert files_of(folder) == {f"{number}.txt": b"%d" % number for number in range(5_000)}
    assert not (folder.parent / "unfinished").exists()


def test_a_corpus_ingested_from_an_archive_is_reused_after_the_unpacked_files_were_made_anew(
    tar: Callable[..., Path], tmp_path: Path, record: Callable[..., Path]
) -> None:
    archive = tar(member("recordings/7_ann_0.wav", record("7_ann_0.wav").read_bytes()))
    settings = CorpusSettings.of({"uri": str(archive), "format": "fsdd", "split": {"dev": 0}})
    first = run(tmp_path / "store", settings)
    subprocess.run(["rm", "-r", str(tmp_path / "store/unpacked")], check=True)
    again = run(tmp_path / "store", settings)
    assert (again.key, again.reused) == (first.key, True)
    assert any((tmp_path / "store/unpacked").glob("*/files/recordings/7_ann_0.wav"))


def assert_nothing_unpacked(tmp_path: Path) -> None:
    assert not any(tmp_path.rglob("evil.txt"))
    assert not Path("/evil.txt").exists()
    left = [path for path in (tmp_path / "store/unpacked").glob("*/*") if path.parent.name != "hashes"]
    assert left == []
