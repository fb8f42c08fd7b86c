"""Checkpoints are whole or absent."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from voxline.errors import WorkError
from voxline.training.checkpoints import ARRAYS_FILE, BestWeights, Checkpoints, CheckpointWriter


def arrays(step: int) -> dict[str, np.ndarray]:
    return {"a": np.full((3, 2), step, np.float32), "count": np.array(step)}


def test_reads_what_was_written_and_keeps_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", limit=2)
    assert checkpoints.newest() is None
    for step in (5, 40, 100):
        checkpoints.write(step, arrays(step), {"step": step, "looks": [1.5, None]})
    assert checkpoints.steps() == [40, 100]
    found, state = checkpoints.newest() or ({}, {})
    assert state == {"step": 100, "looks": [1.5, None]}
    np.testing.assert_array_equal(found["a"], arrays(100)["a"])


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_skips_a_damaged_checkpoint(tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints = Checkpoints(tmp_path, limit=3)
    for step in (1, 2):
        checkpoints.write(step, arrays(step), {"step": step})
    file = tmp_path / "step-00000002" / ARRAYS_FILE
    data = bytearray(file.read_bytes())
    if damage == "remove":
        file.unlink()
    else:
        data[70] ^= 255
        file.write_bytes(data[:60] if damage == "truncate" else data)
    found = checkpoints.newest()
    assert found is not None
    assert found[1] == {"step": 1}
    assert "step 2 is damaged" in capsys.readouterr().out


def test_a_large_network_has_thousands_of_arrays(tmp_path: Path) -> None:
    weights = {f"model/{number}": np.full(1, number, np.float32) for number in range(3_000)}
    checkpoints = Checkpoints(tmp_path, limit=2)
    checkpoints.write(1, weights, {"step": 1})
    restored, _ = checkpoints.read(1)
    assert restored.keys() == weights.keys()


def test_a_checkpoint_can_be_overwritten(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, limit=3)
    for value in (1, 2):
        checkpoints.write(7, arrays(value), {"value": value})
    assert checkpoints.read(7)[1] == {"value": 2}


def test_a_thread_writes_one_after_the_other_and_its_error_comes_with_the_next(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    told = []
    best = Checkpoints(tmp_path / "best", limit=0)

    def tell() -> None:
        told.append("written")

    with CheckpointWriter(Checkpoints(tmp_path / "whole", limit=2), best, tell) as writer:
        writer.begin(1, arrays(1), {"step": 1})
        writer.finish()
        writer.finish()
        assert told == ["written"]
        assert writer.written == 1

        # Of two that nobody asked about between, one call tells.
        for step in (2, 3):
            writer.begin(step, arrays(step), {"step": step})
        assert told == ["written"]
    assert told == ["written", "written"]
    assert Checkpoints(tmp_path / "whole", 2).steps() == [2, 3]

    writer = CheckpointWriter(Checkpoints(tmp_path / "file", limit=2), best)
    writer.begin(1, arrays(1), {})
    with pytest.raises(NotADirectoryError):
        writer.begin(2, arrays(2), {})
    writer.begin(3, arrays(3), {})
    with pytest.raises(NotADirectoryError), writer:
        pass
    assert writer.written is None


def test_what_failed_beside_another_error_is_named_a_write_or_an_upload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def upload() -> None:
        uploads.append("begun")
        raise OSError("bucket gone")

    (tmp_path / "file").write_text("no folder")
    for folder, said, count in [
        ("whole", "train: the checkpoint of step 7 is saved here, and was not uploaded: bucket gone", 1),
        ("file", "train: the checkpoint of step 7 was not saved: [Errno 20]", 0),
    ]:
        uploads: list[str] = []
        writer = CheckpointWriter(Checkpoints(tmp_path / folder, limit=2), Checkpoints(tmp_path, limit=0), upload)
        writer.begin(7, arrays(7), {})
        with pytest.raises(KeyError), writer:
            raise KeyError("of the step")
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1
        assert said in lines[0]
        assert len(uploads) == count


def test_one_upload_at_a_time_in_a_thread_and_the_last_checkpoint_is_uploaded_behind_it(tmp_path: Path) -> None:
    released = threading.Event()
    begun: list[int] = []
    uploaded: list[int] = []
    checkpoints = Checkpoints(tmp_path / "whole", limit=0)

    def begin_upload() -> Callable[[], None]:
        newest = checkpoints.steps()[-1]
        begun.append(newest)

        def upload() -> None:
            assert released.wait(60)
            uploaded.append(newest)

        return upload

    with CheckpointWriter(checkpoints, Checkpoints(tmp_path / "best", limit=0), begin_upload) as writer:
        for step in (1, 2, 3):
            writer.begin(step, arrays(step), {"step": step})
            writer.finish()
            writer.poll()
        assert (begun, uploaded) == ([1], [])
        released.set()
    assert begun == uploaded == [1, 3]


def test_the_error_of_an_upload_comes_with_the_next_poll_and_the_next_one_is_tried_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts: list[int] = []

    def upload() -> None:
        attempts.append(len(attempts))
        raise WorkError(f"denied {len(attempts)}")

    writer = CheckpointWriter(Checkpoints(tmp_path / "whole", limit=0), Checkpoints(tmp_path, limit=0), lambda: upload)
    writer.begin(1, arrays(1), {})
    writer.finish()
    assert writer._uploading is not None
    concurrent.futures.wait([writer._uploading])
    with pytest.raises(WorkError, match="denied 1"):
        writer.poll()

    for step in (2, 3):
        writer.begin(step, arrays(step), {})
        writer.finish()
    with pytest.raises(KeyError), writer:
        raise KeyError("of the step")
    assert capsys.readouterr().out.splitlines() == [
        "▸ train: the checkpoint of step 2 is saved here, and was not uploaded: denied 2",
        "▸ train: the checkpoint of step 3 is saved here, and was not uploaded: denied 3",
    ]


def test_the_best_weights_are_on_disk_before_the_state_that_refers_to_them(tmp_path: Path) -> None:
    best = Checkpoints(tmp_path / "best", limit=0)
    checkpoints = Checkpoints(tmp_path / "whole", limit=2)
    (tmp_path / "best").write_text("no folder")
    with CheckpointWriter(checkpoints, best) as writer:
        writer.begin(1, arrays(1), {"step": 1}, BestWeights(1, arrays(1), {1}))
        with pytest.raises(NotADirectoryError):
            writer.wait()
        assert not checkpoints.steps()

        # The next state refers to them too.
        (tmp_path / "best").unlink()
        writer.begin(2, arrays(2), {"step": 2})
        writer.wait()
        assert (best.steps(), checkpoints.steps()) == ([1], [2])

        # What is not needed any more goes; without better ones, all stay.
        writer.begin(3, arrays(3), {"step": 3}, BestWeights(3, arrays(3), {3}))
        writer.begin(4, arrays(4), {"step": 4})
    assert best.steps() == [3]
    np.testing.assert_array_equal(best.read(3)[0]["a"], arrays(3)["a"])


WRITER = """
import sys
from pathlib import Path
import numpy as np
from voxline.training.checkpoints import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]), limit=2)
for step in range(1, 10_000):
    checkpoints.write(step, {"a": np.full(300_000, step, np.float32)}, {"step": step})
    print(step, flush=True)
"""


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    written = 0
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.uniform(0, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        written += len(process.communicate()[0].split())
        checkpoints = Checkpoints(tmp_path, limit=2)
        for step in checkpoints.steps():
            found, state = checkpoints.read(step)
            assert state == {"step": step}
            assert (found["a"] == step).all()
    assert written
    Checkpoints(tmp_path, limit=2).write(20_000, arrays(1), {})
    assert not list(tmp_path.glob(".*"))
