"""Forecasts of the columns of any CSV file: what is read of it, and the line that is named where it is none."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from voxline.errors import WorkError
from voxline.forecast.table import read_columns
from voxline.pipelines.cli.main import app


def write(folder: Path, text: str | bytes) -> Path:
    file = folder / "série.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_columns_of_numbers_are_read_with_their_gaps_and_the_names_of_rows(tmp_path: Path) -> None:
    file = write(
        tmp_path, '\ufeffday;visitors;note;"share\nof all"\r\n2026-01-01;120;busy;.5\r\n2026-01-02;;;1e-2\r\n\n'
    )
    table = read_columns(file)
    np.testing.assert_array_equal(table.columns["visitors"], [120, np.nan])
    np.testing.assert_array_equal(table.columns["share\nof all"], [0.5, 0.01])
    assert (table.columns.keys(), table.rows, table.total) == (
        {"visitors", "share\nof all"},
        ["2026-01-01", "2026-01-02"],
        2,
    )
    latest = read_columns(file, ["visitors"], latest=1)
    assert (list(latest.columns), latest.rows, latest.total) == (["visitors"], ["2026-01-02"], 2)
    assert read_columns(write(tmp_path, "a\tb\n1\t2\n")).rows == ["line 2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("day,units\na,1\nb,12;5\n", "line 3: column 'units' has '12;5'; a number such as 12.5"),
        ("units\n1\n\ninf\n", "line 4: column 'units' has 'inf'"),
        ("units\n1\n1e300\n", "line 3: column 'units' has '1e300'"),
        ("day,units\na,1\nb,2,3\n", "line 3: 3 cells, and the first line names 2 columns"),
        ('day,units\na,"1\n', "line 2: no row of a CSV file"),
        ("1,2\n3,4\n", "line 1: 1, 2 are values; the first line names the columns"),
        ("a,a\n3,4\n", "line 1: 'a' names several columns"),
        ("day,units\n2026-01-02,1\n2026-01-01,2\n", "line 3: 2026-01-01 follows 2026-01-02; rows are .* oldest first"),
        (b"day,units\na,1\nb\xff,2\n", "line 3: no text in UTF-8"),
        ("day,units\na,b\n", "no column of numbers in its 1 rows; it has: day, units"),
        ("", "it is empty"),
        (b"day\n" + b"a" * 70_000, ":2: a line of more than 65,536 bytes"),
    ],
)
def test_a_bad_file_is_refused_by_its_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(WorkError, match=rf"série\.csv.*{message}"):
        read_columns(write(tmp_path, content))
    with pytest.raises(WorkError, match=r"absent\.csv: cannot be read"):
        read_columns(tmp_path / "absent.csv")


def test_runs_forecast_takes_a_csv_file(tmp_path: Path) -> None:
    at = np.arange(240)
    units = 100 + 10 * np.sin(2 * np.pi * at / 24) + np.random.default_rng(1).normal(0, 0.5, 240)
    units[-1] += 20
    rows = "".join(f"{hour},{value:.2f},{hour % 3}\n" for hour, value in zip(at, units, strict=True))
    file = write(tmp_path, "hour,units,other\n" + rows)
    arguments = ["runs", "forecast", str(file), "--figure", "units", "--period", "24", "--ahead", "12"]
    done = CliRunner().invoke(app, [*arguments, "--check"])
    assert done.exit_code == 1
    first, *later = done.stdout.splitlines()
    assert first.startswith("units ")
    assert "season of 24 rows" in first
    assert len([line for line in later if line.startswith("  +")]) == 11
    assert later[-1].startswith("  239  ")
    assert later[-1].endswith("stands out")

    [document] = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert (document["rows"], document["period"], document["stands_out"]) == (240, 24, True)
    expected = 100 + 10 * np.sin(2 * np.pi * np.arange(240, 252) / 24)
    np.testing.assert_allclose([step["value"] for step in document["ahead"]], expected, atol=1.5)

    for options, message in (
        (["--figure", "unit"], "no column unit; it has: hour, units, other"),
        (["--name", "nightly"], "--name: of runs; a CSV file has columns"),
    ):
        refused = CliRunner().invoke(app, ["runs", "forecast", str(file), *options])
        assert message in str(refused.exception or refused.output)
    refused = CliRunner().invoke(app, ["runs", "forecast", str(tmp_path), "--ahead", "3"])
    assert "--ahead 3: of runs only the next one is forecast" in str(refused.exception or refused.output)
