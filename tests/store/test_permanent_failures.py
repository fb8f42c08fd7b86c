"""Attempts of a step on a cluster: what failed for good is not done again, whatever else went wrong is."""

from pathlib import Path

import pytest

from tests.buckets.emulator import Storage
from voxline.errors import PreconditionError, SettingsError, TransientError, VoxlineError, WorkError
from voxline.store.permanent_failures import (
    ATTEMPT_ENV,
    RESTART_SECONDS_ENV,
    RESTARTS_ENV,
    fail_fast,
    restart_transient,
)
from voxline.store.store_locks import seconds_since_snapshot


class Step:
    """A step that is tried and counts how often it really worked."""

    def __init__(self, store: Path | str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self._environment = store, monkeypatch
        self.worked = 0

    def attempt(self, name: str, error: BaseException | None = None) -> str:
        """Tries it under the name that the cluster gives; returns what it says in the end."""
        self._environment.setenv(ATTEMPT_ENV, name)
        try:
            with fail_fast(self.store):
                self.worked += 1
                if error:
                    raise error
        except (VoxlineError, KeyboardInterrupt) as ended:
            return f"{type(ended).__name__}: {ended}"
        return "done"


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    return Step(tmp_path / "store", monkeypatch)


@pytest.mark.parametrize("error", [WorkError("3 of 4 recordings are damaged"), SettingsError("'train.epochs' is 0")])
def test_what_failed_for_good_ends_the_next_attempt_with_its_own_words(step: Step, error: VoxlineError) -> None:
    first = step.attempt("asr-1.root.convert.executor(0)", error)
    second = step.attempt("asr-1.root.convert.executor(1)")
    assert second.startswith(first)
    assert "earlier attempt" in second
    assert step.worked == 1


@pytest.mark.parametrize(
    "error",
    [
        TransientError("the bucket does not answer"),
        PreconditionError("the registry was pushed to meanwhile"),
        KeyboardInterrupt(),
    ],
)
def test_what_a_retry_may_mend_is_tried_again(step: Step, error: BaseException) -> None:
    step.attempt("asr-1.root.convert.executor(0)", error)
    assert step.attempt("asr-1.root.convert.executor(1)") == "done"
    assert step.worked == 2


def test_another_step_another_run_and_a_person_who_starts_it_again_are_not_concerned(step: Step) -> None:
    step.attempt("asr-1.root.convert.executor(0)", WorkError("the disk is full"))
    for name in ("asr-1.root.train.executor(1)", "asr-2.root.convert.executor(1)", "asr-1.root.convert.executor(0)"):
        assert step.attempt(name) == "done"


@pytest.mark.parametrize("name", ["", "asr-1.root.convert", "nonsense"])
def test_where_no_cluster_counts_attempts_nothing_is_noted(step: Step, name: str) -> None:
    step.attempt(name, WorkError("no"))
    assert step.attempt(name) == "done"
    assert not Path(step.store).exists()


@pytest.mark.parametrize("note", ["", "[]", '{"error": "__class__", "message": ""}'])
def test_a_damaged_note_costs_a_retry_and_no_more(step: Step, note: str) -> None:
    step.attempt("asr-1.root.convert.executor(0)", WorkError("no"))
    (file,) = Path(step.store).glob("failures/*")
    file.write_text(note, encoding="utf-8")
    assert step.attempt("asr-1.root.convert.executor(1)") == "done"


def test_a_name_that_is_no_file_name_stays_in_the_store(step: Step) -> None:
    step.attempt("../../out.convert(0)", WorkError("no"))
    assert step.attempt("../../out.convert(1)").startswith("WorkError: no")
    assert [file.parent for file in Path(step.store).rglob("*.json")] == [Path(step.store) / "failures"]


def test_machines_tell_each_other_through_a_bucket(gcs: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(f"{gcs.uri}/store", monkeypatch)
    step.attempt("asr-1.root.convert.executor(0)", WorkError("3 of 4 recordings are damaged"))
    assert step.attempt("asr-1.root.convert.executor(2)").startswith(
        "WorkError: 3 of 4 recordings are damaged (an earlier attempt"
    )


def test_a_bucket_that_takes_no_note_does_not_hide_what_went_wrong(
    gcs: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Step(f"gs://{gcs.name}-that-is-not-there/store", monkeypatch)
    assert step.attempt("asr-1.root.convert.executor(0)", WorkError("damaged")) == "WorkError: damaged"


def test_a_step_that_is_restarted_after_a_purge_counts_as_begun_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RESTARTS_ENV, "1")
    monkeypatch.setenv(RESTART_SECONDS_ENV, "0")
    ages: list[float] = []

    def work() -> None:
        ages.append(seconds_since_snapshot())
        if len(ages) == 1:
            raise PreconditionError("a purge has ended here since this process began")

    restart_transient(work)
    assert ages[1] < ages[0], "what was read before is read again"
