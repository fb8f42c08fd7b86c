"""extract on Spark, as docs/distributed.md says: the same records as in one process."""

import json
from pathlib import Path

import pytest

from tests.beam.test_documented_runners import documented
from tests.flink.cluster import write_worker
from tests.flink.conftest import make_corpus
from tests.flink.jars import JOB_SERVER, SPARK, NoFlinkError, jars
from tests.flink.test_extract_on_flink import ALONE, is_whole, records
from voxline.components.extract.step import run

pytestmark = pytest.mark.timeout(1_800)


def test_spark_writes_the_records_of_one_process(tmp_path: Path) -> None:
    try:
        job_server = jars(SPARK) / JOB_SERVER
    except NoFlinkError as error:
        pytest.skip(str(error))
    make_corpus(tmp_path / "corpus", 300)
    write_worker(tmp_path / "worker")

    # The page's options, with this machine's master, jar and worker.
    settings = documented("SparkRunner")
    here = {
        "--spark_master_url": "local[2]",
        "--environment_config": json.dumps({"command": str(tmp_path / "worker")}),
    }
    of_page = dict(option.split("=", 1) for option in settings.beam_options)
    options = [
        *(f"{name}={value}" for name, value in {**of_page, **here}.items()),
        f"--spark_job_server_jar={job_server}",
    ]
    update = settings.model_copy(update={"beam_options": options, "beam_from_megabytes": 0.0, "shard_megabytes": 0.5})
    work = run(tmp_path / "corpus", tmp_path / "store", update)
    is_whole(work, 300)
    assert records(work) == records(run(tmp_path / "corpus", tmp_path / "alone", ALONE))
