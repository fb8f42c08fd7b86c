"""What a server keeps of recordings: only with consent, within its bounds, and never in the way of a request."""

import io
import json
import os
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from tests.buckets.storages import AnyStorage
from tests.serving.test_server import Served, push, wav
from tests.tone_asr_model import RATE, export_onnx_tones, render_words
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.errors import SettingsError, WorkError
from voxline.feedback.captures import CaptureStore, erase_recordings, expire_recordings, expiry_day, find_recordings
from voxline.inference.transcript import Transcript
from voxline.serving.capture import Capture, CaptureSettings, joined
from voxline.store.local import LocalStore
from voxline.store.storage import ObjectInfo

HEARD = Transcript("one", [], 0.9, 0.1)
AGREED = {"x-voxline-consent": "yes:terms-2026"}


class SlowStore(LocalStore):
    """A storage that answers when it is allowed to."""

    free = threading.Event()

    def write(self, name: str, data: bytes, *, if_version: str | None = None) -> ObjectInfo:
        self.free.wait(PATIENCE_SECONDS)
        return super().write(name, data, if_version=if_version)


class FullDisk(LocalStore):
    def write(self, name: str, data: bytes, *, if_version: str | None = None) -> ObjectInfo:
        if name.endswith(".json") and "/" in name:
            raise OSError(28, "No space left on device", name)
        return super().write(name, data, if_version=if_version)


def capture_in(store: LocalStore, **settings: float) -> Capture:
    captures = CaptureStore(store.folder)
    captures.store = store
    return Capture(CaptureSettings(store.uri, **{"share": 1.0, **settings}), captures)  # type: ignore[arg-type]


def offer(capture: Capture, consent: str = "yes", speaker: str = "", seconds: float = 0.1) -> str:
    waveform = np.zeros(round(seconds * RATE), np.float32)
    return capture.offer("asr", 1, "d", HEARD, waveform, RATE, consent=consent, speaker=speaker)


def test_a_request_with_consent_is_kept_and_another_is_not(tmp_path: Path) -> None:
    push(tmp_path / "registry", export_onnx_tones(tmp_path / "model", {}))
    capture = Capture(CaptureSettings(str(tmp_path / "kept"), 1.0, 7))
    served = Served(tmp_path / "registry", capture=capture)
    try:
        assert "x-voxline-capture" not in served.send(wav()).headers
        assert "x-voxline-capture" not in served.send(wav(), consent="no").headers
        two = {"data": {"model": "asr", "consent": "no"}, "files": {"file": ("a.wav", wav())}, "headers": AGREED}
        assert "x-voxline-capture" not in httpx.post(f"{served.url}/v1/audio/transcriptions", **two).headers
        by_field = served.send(wav("two"), consent="yes")
        by_header = httpx.post(
            f"{served.url}/v1/audio/transcriptions",
            data={"model": "asr"},
            files={"file": ("mara.wav", wav("one two"))},
            headers={**AGREED, "x-voxline-speaker": "p-7"},
        )
        ids = {by_field.headers["x-voxline-capture"], by_header.headers["x-voxline-capture"]}
        store = CaptureStore(tmp_path / "kept")
        wait_until(lambda: capture.counts.total() == 2, "two clips")
        assert capture.fault == ""
        assert 'voxline_serve_captures{outcome="kept"} 2.0' in httpx.get(f"{served.url}/metrics").text
    finally:
        served.stop()
    clips = {clip.id: clip for clip in store.clips("asr", 1)}
    assert clips.keys() == ids
    clip = clips[by_header.headers["x-voxline-capture"]]
    assert (clip.text, clip.consent, clip.speaker, clip.version) == ("one two", "yes:terms-2026", "p-7", 1)
    assert (clip.expires, clip.digest) == (expiry_day(time.time(), 7), by_header.headers["x-voxline-digest"])
    assert [word for word, _ in clip.words] == ["one", "two"]
    samples, rate = soundfile.read(io.BytesIO(store.audio(clip)), dtype="float32")
    assert rate == RATE
    np.testing.assert_allclose(samples, render_words(["one", "two"]), atol=2**-14)
    names = [info.name for info in store.store.list()]
    assert not any("mara" in name or b"mara" in store.store.read(name) for name in names), "no name of a caller"
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0


def test_nothing_is_kept_by_default() -> None:
    assert CaptureSettings().share == 0.0
    with pytest.raises(SettingsError, match="--capture-share needs --capture"):
        CaptureSettings(share=0.5)
    with pytest.raises(SettingsError, match=r"--capture-share 1.5: a share from 0 to 1"):
        CaptureSettings("here", share=1.5)
    with pytest.raises(SettingsError, match="--capture-gb: more than 0"):
        CaptureSettings("here", max_bytes=float("nan"))


@pytest.mark.parametrize(
    "consent",
    [
        "",
        "no",
        "nein",
        "undefined",
        "0",
        "terms-2026",
        "yes:/etc",
        f"yes:{'a' * 60}1",
        "yes\nno",
        "yes,no",
        "yes:",
        "yes:no",
        "yes:No-2",
        "yes:terms",
        "yes:not.v2",
        "yes:opt-out-2026",
        "yes:-1",
        "yes:1",
        "true",
        "yes ",
    ],
)
def test_what_is_no_consent_is_none(tmp_path: Path, consent: str) -> None:
    capture = capture_in(LocalStore(tmp_path))
    assert offer(capture, consent) == ""
    assert offer(capture, speaker="../mara") == "", "nobody could erase it by that name"
    capture.stop()
    assert capture.counts == {}


def test_a_slow_storage_delays_nobody_and_drops_are_counted(tmp_path: Path) -> None:
    SlowStore.free = threading.Event()
    capture = capture_in(SlowStore(tmp_path))
    start = time.monotonic()
    taken = [offer(capture) for _ in range(100)]
    assert time.monotonic() - start < PATIENCE_SECONDS / 10
    kept = sum(map(bool, taken))
    assert 64 <= kept <= 66
    assert capture.counts["dropped"] == 100 - kept
    SlowStore.free.set()
    wait_until(lambda: capture.counts["kept"] == kept, "the clips")
    capture.stop()


@pytest.mark.slow
def test_the_queue_is_bounded_in_bytes(tmp_path: Path) -> None:
    SlowStore.free = threading.Event()
    capture = capture_in(SlowStore(tmp_path))
    assert [bool(offer(capture, seconds=500)) for _ in range(3)] == [True, True, False]
    SlowStore.free.set()
    capture.stop()


def test_a_request_that_says_two_things_is_not_kept(tmp_path: Path) -> None:
    assert joined(["terms-1", "terms-1"]) == "terms-1"
    capture = capture_in(LocalStore(tmp_path))
    assert offer(capture, joined(["yes", "no"])) == offer(capture, joined(["", "yes"])) == ""
    assert offer(capture, speaker=joined(["p-7", "p-8"])) == "", "a purge of either would miss it"
    capture.stop()


def test_a_server_that_keeps_no_more_lets_expire_what_it_kept(tmp_path: Path) -> None:
    old = tmp_path / "asr" / "1" / "2020-01-01"
    old.mkdir(parents=True)
    (old / "capture-1.flac").write_bytes(b"fLaC")
    capture = capture_in(LocalStore(tmp_path), share=0.0)
    assert offer(capture) == ""
    wait_until(lambda: not (old / "capture-1.flac").exists(), "the expiry")
    capture.stop()
    assert not (tmp_path / "captures.json").exists(), "nothing is started"


def test_what_a_killed_writer_left_goes_as_well(tmp_path: Path) -> None:
    folder = tmp_path / "asr" / "1" / "2999-01-01"
    folder.mkdir(parents=True)
    for name in (".capture-1.flac.ab.part", ".capture-2.flac.ab.part", "capture-3.flac", "notes.txt"):
        (folder / name).write_bytes(b"fLaC")
    os.utime(folder / ".capture-1.flac.ab.part", (0, 0))
    store = CaptureStore(tmp_path)
    assert store.expire() == 0
    assert sorted(path.name for path in folder.iterdir()) == [".capture-2.flac.ab.part", "capture-3.flac", "notes.txt"]
    erase_recordings(tmp_path, "capture-3")
    assert not (folder / "capture-3.flac").exists()
    (folder / "capture-4.flac").write_bytes(b"fLaC")
    store.expire("2999-01-01")
    assert sorted(path.name for path in folder.iterdir()) == [".capture-2.flac.ab.part", "notes.txt"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    capture = capture_in(FullDisk(tmp_path))
    assert offer(capture)
    wait_until(lambda: capture.counts["failed"] == 1, "the failure")
    assert capture.fault == "No space left on device", "one line of the log, however many clips"
    capture.stop()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["captures.json"]


def test_the_total_size_is_limited(tmp_path: Path) -> None:
    capture = capture_in(LocalStore(tmp_path), max_bytes=1)
    offer(capture)
    wait_until(lambda: capture.counts["kept"] == 1, "the first")
    offer(capture)
    wait_until(lambda: capture.counts["full"] == 1, "the second")
    capture.stop()


def test_about_the_share_is_kept(tmp_path: Path) -> None:
    capture = capture_in(LocalStore(tmp_path), share=0.25)
    assert 20 < sum(bool(offer(capture)) or capture.counts["dropped"] > 0 for _ in range(200)) < 90
    capture.stop()


def test_an_expired_clip_is_not_read_and_is_deleted(tmp_path: Path) -> None:
    capture = capture_in(LocalStore(tmp_path), days=3)
    offer(capture)
    wait_until(lambda: capture.counts["kept"] == 1, "the clip")
    capture.stop()
    store = CaptureStore(tmp_path)
    (clip,) = store.clips()
    (tmp_path / "notes.txt").write_text("not ours")
    assert store.expire() == 0
    (tmp_path / clip.folder).rename(tmp_path / "asr" / "1" / expiry_day(time.time(), 0))
    assert list(store.clips()) == []
    assert store.expire() == 1
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"captures.json", "notes.txt"}


def test_a_person_is_erased_by_pseudonym_and_one_clip_by_its_id(tmp_path: Path) -> None:
    capture = capture_in(LocalStore(tmp_path))
    theirs, other = [offer(capture, speaker="p-7") for _ in range(2)], offer(capture)
    wait_until(lambda: capture.counts["kept"] == 3, "the clips")
    capture.stop()
    assert len(find_recordings(tmp_path, "p-7")) == 4
    erase_recordings(tmp_path, "p-7")
    assert find_recordings(tmp_path, theirs[0]) == []
    store = CaptureStore(tmp_path)
    assert [clip.id for clip in store.clips()] == [other]
    erase_recordings(tmp_path, other)
    assert store.size() == 0


def test_a_damaged_record_is_named_and_passed_over_and_a_purge_still_erases_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = capture_in(LocalStore(tmp_path))
    theirs, other = offer(capture, speaker="p-7"), offer(capture)
    wait_until(lambda: capture.counts["kept"] == 2, "the clips")
    capture.stop()
    store, records = CaptureStore(tmp_path), {path.stem: path for path in tmp_path.rglob("capture-*.json")}
    values = json.loads(records[theirs].read_text())
    for wrong in ({"id": "../../x"}, {"id": "capture-2"}, {"at": 3}, {"confidence": "high"}, {"bands_db": ["loud"]}):
        records[theirs].write_text(json.dumps(values | wrong))
        assert [clip.id for clip in store.clips()] == [other]
        told = capsys.readouterr().err
        assert "1 damaged of 2 records left out, such as" in told
        assert f"{theirs}.json: not the record of a captured clip" in told
    records[theirs].write_bytes(b'{"speaker":"p-7", "id')
    assert len(find_recordings(tmp_path, "p-7")) == 2
    records[other].write_text("")
    assert len(find_recordings(tmp_path, other)) == 2, "its id is its name"
    erase_recordings(tmp_path, "p-7")
    assert f"{other}.json: damaged: nobody knows whose it is" in capsys.readouterr().err
    assert not records[theirs].exists()
    assert records[other].exists()
    with pytest.raises(WorkError, match="no captures here"):
        list(CaptureStore(tmp_path / "absent").clips())


def test_a_clip_that_waited_while_its_speaker_was_erased_is_not_kept(tmp_path: Path) -> None:
    SlowStore.free = threading.Event()
    capture = capture_in(SlowStore(tmp_path))
    CaptureStore(tmp_path).prepare()
    offer(capture, speaker="p-7"), offer(capture, speaker="p-8"), offer(capture, speaker="p-7")
    erase_recordings(tmp_path, "p-7")
    SlowStore.free.set()
    wait_until(lambda: capture.counts.total() == 3, "the clips")
    capture.stop()
    assert (capture.counts["kept"], capture.counts["dropped"]) == (1, 2)
    store = CaptureStore(tmp_path)
    assert [clip.speaker for clip in store.clips()] == ["p-8"]
    assert find_recordings(tmp_path, "p-7") == []
    (mark,) = (tmp_path / "erased").iterdir()
    assert "p-7" not in mark.name + mark.read_text()
    store.expire()
    assert mark.exists(), "another server may still have a clip"
    os.utime(mark, (0, 0))
    store.expire()
    assert not mark.exists()


def test_several_servers_keep_to_the_limit_together(tmp_path: Path) -> None:
    servers = [capture_in(LocalStore(tmp_path), max_bytes=8e6) for _ in range(3)]
    for server in servers:
        wait_until(
            lambda server=server: server._counted or CaptureStore(tmp_path).store.stat("captures.json"), "a start"
        )
    noise = np.random.default_rng(0).normal(0, 0.1, 12 * RATE).astype(np.float32)
    for number in range(60):
        server = servers[number % 3]
        before = server.counts.total()
        server.offer("asr", 1, "d", HEARD, noise, RATE, consent="yes")
        wait_until(lambda server=server, before=before: server.counts.total() > before, "the clip")
    for server in servers:
        server.stop()
    assert sum(server.counts["full"] for server in servers) > 0
    assert CaptureStore(tmp_path).size() < 8e6 + 3 * 1.5e6, "not three times as much"


def test_captures_in_a_bucket_expire_and_are_erased_there(storage: AnyStorage) -> None:
    location = f"{storage.uri}/captures"
    capture = Capture(CaptureSettings(location, 1.0))
    theirs, other = offer(capture, speaker="p-7"), offer(capture)
    wait_until(lambda: capture.counts.total() == 2, "the clips")
    capture.stop()
    assert capture.fault == ""
    store = CaptureStore(location)
    assert {clip.id for clip in store.clips("asr", 1)} == {theirs, other}
    samples, _ = soundfile.read(io.BytesIO(store.audio(next(iter(store.clips())))))
    assert len(samples) == RATE // 10
    erase_recordings(location, "p-7")
    assert [clip.id for clip in store.clips()] == [other]
    assert expire_recordings(location, "2999-01-01") == 1
    assert store.size() == 0
