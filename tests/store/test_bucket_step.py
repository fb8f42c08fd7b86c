"""Work in a bucket: found by every machine, never mixed of two, and gone on with after a kill."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.buckets.emulator import Storage
from voxline.errors import TransientError, WorkError
from voxline.settings import Settings
from voxline.store.artifacts import artifact_uri, publish_artifact
from voxline.store.files import write_text
from voxline.store.localize import localize
from voxline.store.step_cache import StepOutput, cached_step, local_inputs

Pod = Callable[[], Path]


class Preempted(BaseException):
    """The machine is taken away."""


def make(
    gcs: Storage, text: str = "1 2 3", *, meanwhile: Callable[[StepOutput], None] = lambda work: None
) -> StepOutput:
    """Counts; `meanwhile` is called when all is written but the marker."""
    with cached_step(f"{gcs.uri}/store", "count", Settings(), {"corpus": "ab"}) as work:
        if not work.reused:
            (work.folder / "numbers").mkdir(exist_ok=True)
            for name in ("one", "two"):
                (work.folder / "numbers" / f"{name}.txt").write_text(text, encoding="utf-8")
            work.outputs["numbers"] = "numbers"
            work.counts["numbers"] = 2
            meanwhile(work)
    return work


def texts(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())]


def marker(gcs: Storage, work: StepOutput) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gcs.bucket("store").read(f"count/{work.key}/done.json"))
    return found


def save(work: StepOutput) -> None:
    """Uploads what there is, unless it is too soon."""
    upload = work.begin_save()
    if upload is not None:
        upload()


def preempt(work: StepOutput) -> None:
    raise Preempted


def test_another_machine_reuses_finished_work_and_brings_only_the_marker(gcs: Storage, fresh_pod: Pod) -> None:
    fresh_pod()
    made = make(gcs)
    disk = fresh_pod()
    again = make(gcs)
    assert (made.reused, again.reused) == (False, True)
    assert (again.counts, again.uri) == (made.counts, made.uri)
    assert not [path for path in disk.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert texts(again.path("numbers")) == ["1 2 3", "1 2 3"]


def test_the_work_is_found_by_its_own_address_and_by_that_of_its_key(gcs: Storage, fresh_pod: Pod) -> None:
    fresh_pod()
    made = make(gcs)
    for address in (made.uri, f"{gcs.uri}/store/count/{made.key}"):
        fresh_pod()
        assert texts(localize(address) / "numbers") == ["1 2 3", "1 2 3"]


def test_the_first_of_two_writers_counts_and_nothing_of_the_second_is_left(gcs: Storage, fresh_pod: Pod) -> None:
    def be_overtaken(work: StepOutput) -> None:
        fresh_pod()
        make(gcs, "fast")

    fresh_pod()
    slow = make(gcs, "slow", meanwhile=be_overtaken)
    assert texts(slow.path("numbers")) == ["fast", "fast"]
    assert marker(gcs, slow)["attempt"] == slow.folder.name
    assert sorted(gcs.names()) == sorted(
        [f"store/count/{slow.key}/done.json"]
        + [f"store/count/{slow.key}/{slow.folder.name}/numbers/{name}.txt" for name in ("one", "two")]
    )


def test_a_killed_machine_leaves_nothing_that_looks_finished(gcs: Storage, fresh_pod: Pod) -> None:
    fresh_pod()
    with pytest.raises(Preempted):
        make(gcs, meanwhile=preempt)
    fresh_pod()
    assert not make(gcs, "4 5 6").reused
    fresh_pod()
    assert texts(make(gcs).path("numbers")) == ["4 5 6", "4 5 6"]


@pytest.mark.parametrize("written", range(3))
def test_a_write_that_fails_at_the_end_leaves_all_or_nothing(gcs: Storage, fresh_pod: Pod, written: int) -> None:
    def deny_later_writes(work: StepOutput) -> None:
        gcs.fails("status", "POST", after=written, times=100, code=403)

    fresh_pod()
    with pytest.raises(WorkError, match="permission denied"):
        make(gcs, meanwhile=deny_later_writes)
    gcs.proxy.faults.clear()
    fresh_pod()
    assert not make(gcs, "again").reused
    fresh_pod()
    assert texts(make(gcs).path("numbers")) == ["again", "again"]


@pytest.mark.parametrize("written", range(3))
def test_a_lost_answer_to_a_write_harms_nothing(gcs: Storage, fresh_pod: Pod, written: int) -> None:
    fresh_pod()
    make(gcs, meanwhile=lambda work: gcs.fails("lost answer", "POST", after=written) and None)
    fresh_pod()
    assert texts(make(gcs).path("numbers")) == ["1 2 3", "1 2 3"]


def test_another_machine_goes_on_from_what_was_saved(gcs: Storage, fresh_pod: Pod) -> None:
    def save_and_die(work: StepOutput) -> None:
        save(work)
        (work.folder / "numbers" / "one.txt").write_text("never sent", encoding="utf-8")
        raise Preempted

    fresh_pod()
    with pytest.raises(Preempted):
        make(gcs, "saved", meanwhile=save_and_die)
    fresh_pod()
    with cached_step(f"{gcs.uri}/store", "count", Settings(), {"corpus": "ab"}) as work:
        assert texts(work.folder / "numbers") == ["saved", "saved"]
        work.outputs["numbers"] = "numbers"
    assert sorted(name.split("/")[3] for name in gcs.names()) == sorted([work.folder.name] * 2 + ["done.json"])


def test_an_upload_in_a_thread_is_of_the_files_as_they_were_when_it_began(gcs: Storage, fresh_pod: Pod) -> None:
    def change_and_die(work: StepOutput) -> None:
        events = work.folder / "logs" / "events.out.tfevents.1"
        events.parent.mkdir()
        events.write_text("begun", encoding="utf-8")
        upload = work.begin_save()
        assert upload is not None
        with events.open("a", encoding="utf-8") as appended:
            appended.write(" and continued")
        (work.folder / "numbers" / "one.txt").unlink()
        write_text(work.folder / "numbers" / "two.txt", "replaced")
        write_text(work.folder / "numbers" / "three.txt", "new")
        upload()
        assert not list(work.folder.glob(".*"))
        raise Preempted

    fresh_pod()
    with pytest.raises(Preempted):
        make(gcs, "saved", meanwhile=change_and_die)
    fresh_pod()
    with cached_step(f"{gcs.uri}/store", "count", Settings(), {"corpus": "ab"}) as work:
        assert texts(work.folder / "numbers") == ["saved", "saved"]
        assert texts(work.folder / "logs") == ["begun"]
        work.outputs["numbers"] = "numbers"


def test_what_a_killed_upload_left_on_the_disk_is_no_part_of_the_work(gcs: Storage, fresh_pod: Pod) -> None:
    def die_in_the_upload(work: StepOutput) -> None:
        assert work.begin_save() is not None
        assert list(work.folder.glob(".*"))
        raise Preempted

    fresh_pod()
    with pytest.raises(Preempted):
        make(gcs, "on disk", meanwhile=die_in_the_upload)
    work = make(gcs, "on disk")
    assert not list(work.folder.glob(".*"))
    assert len(gcs.names()) == 3


def test_what_was_saved_right_before_a_signal_is_uploaded(gcs: Storage, fresh_pod: Pod) -> None:
    def save_twice(work: StepOutput) -> None:
        save(work)
        (work.folder / "numbers" / "one.txt").write_text("at the signal", encoding="utf-8")
        save(work)  # within seconds of the first, so it uploads nothing
        raise KeyboardInterrupt

    fresh_pod()
    with pytest.raises(KeyboardInterrupt):
        make(gcs, "saved", meanwhile=save_twice)
    fresh_pod()
    with cached_step(f"{gcs.uri}/store", "count", Settings(), {"corpus": "ab"}) as work:
        assert texts(work.folder / "numbers") == ["at the signal", "saved"]
        work.outputs["numbers"] = "numbers"


def test_a_save_that_the_storage_does_not_take_stops_nothing(
    gcs: Storage, fresh_pod: Pod, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def save_in_vain(work: StepOutput) -> None:
        fault = gcs.fails("status", "POST", times=10_000, code=503)
        with monkeypatch.context() as impatient:
            impatient.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.3")
            save(work)
        fault.times = 0

    fresh_pod()
    make(gcs, meanwhile=save_in_vain)
    assert "not uploaded for other machines, the work continues" in capsys.readouterr().out
    fresh_pod()
    assert make(gcs).reused


def test_the_same_machine_goes_on_from_its_own_disk(gcs: Storage, fresh_pod: Pod) -> None:
    fresh_pod()
    with pytest.raises(Preempted):
        make(gcs, "on disk", meanwhile=preempt)
    with cached_step(f"{gcs.uri}/store", "count", Settings(), {"corpus": "ab"}) as work:
        assert texts(work.folder / "numbers") == ["on disk", "on disk"]


def test_work_is_made_again_where_an_output_is_gone_from_the_bucket(gcs: Storage, fresh_pod: Pod) -> None:
    fresh_pod()
    made = make(gcs)
    for name in ("one", "two"):
        gcs.bucket("store").delete(f"count/{made.key}/{made.folder.name}/numbers/{name}.txt")
    fresh_pod()
    again = make(gcs, "again")
    assert not again.reused
    assert marker(gcs, again)["attempt"] == again.folder.name != made.folder.name
    fresh_pod()
    assert texts(make(gcs).path("numbers")) == ["again", "again"]


@pytest.mark.parametrize(
    "damage",
    [b"\0" * 40, b"[]", b'{"attempt": "../../.."}', b'{"attempt": "0123456789ab", "outputs": {"numbers": "../../x"}}'],
)
def test_a_marker_that_leads_astray_is_none(gcs: Storage, fresh_pod: Pod, damage: bytes) -> None:
    fresh_pod()
    made = make(gcs)
    gcs.bucket("store").write(f"count/{made.key}/done.json", damage)
    fresh_pod()
    assert not make(gcs).reused
    fresh_pod()
    assert make(gcs).reused


def test_a_storage_that_does_not_answer_is_no_reason_to_make_work_again(
    gcs: Storage, fresh_pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_pod()
    made = make(gcs)
    before = marker(gcs, made)
    gcs.fails("status", "GET", times=10_000, code=503)
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "0.3")
    fresh_pod()
    with pytest.raises(TransientError):
        make(gcs)
    gcs.proxy.faults.clear()
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "30")
    assert marker(gcs, made) == before


def test_what_failed_work_wrote_can_be_looked_at(
    gcs: Storage, fresh_pod: Pod, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(work: StepOutput) -> None:
        raise WorkError("too many rejects")

    fresh_pod()
    with pytest.raises(WorkError, match="too many rejects"):
        make(gcs, "rejects", meanwhile=fail)
    place = capsys.readouterr().out.partition("what it wrote so far is at ")[2].strip()
    assert texts(localize(place) / "numbers") == ["rejects", "rejects"]


def test_an_artifact_on_a_cluster_keeps_its_uri_and_tells_the_place(
    gcs: Storage, fresh_pod: Pod, tmp_path: Path
) -> None:
    from kfp import dsl

    fresh_pod()
    made = make(gcs)
    theirs, ours = dsl.Dataset(uri="minio://mlpipeline/v2/artifacts/x"), dsl.Dataset(uri=str(tmp_path / "x"))
    theirs.custom_path = str(tmp_path / "minio" / "x")
    publish_artifact(made, theirs)
    publish_artifact(made, ours)
    assert theirs.uri == "minio://mlpipeline/v2/artifacts/x"
    assert artifact_uri(theirs) == artifact_uri(ours) == ours.uri == made.uri
    assert json.loads((tmp_path / "minio" / "x").read_text(encoding="utf-8"))["uri"] == made.uri
    assert artifact_uri(dsl.Dataset(uri="/by/hand")) == "/by/hand"


@pytest.mark.parametrize("address", ["attempt", "key"])
def test_an_object_that_was_replaced_is_refused_and_made_again(gcs: Storage, fresh_pod: Pod, address: str) -> None:
    """Its checksum in the bucket fits its new bytes; the marker has the hash of those that the step wrote."""

    @local_inputs("count")
    def read(count: Path | str) -> list[str]:
        return texts(Path(count) / "numbers")

    def uri(work: StepOutput) -> str:
        return work.uri if address == "attempt" else work.uri.rpartition("/")[0]

    fresh_pod()
    work = make(gcs)
    assert read(uri(work)) == ["1 2 3", "1 2 3"]
    name = next(name for name in gcs.names() if name.endswith("one.txt"))
    gcs.bucket("").write(name, b"9 2 3")
    fresh_pod()
    with pytest.raises(WorkError, match=r"numbers/one.txt \(its hash is .* has changed since count wrote it"):
        read(uri(work))
    again = make(gcs)
    assert not again.reused
    assert read(uri(again)) == ["1 2 3", "1 2 3"]
