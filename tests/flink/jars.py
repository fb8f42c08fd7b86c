"""The jars of a Flink session cluster, of Spark, and of Beam's job servers, from Maven once and kept in the checkout.

python -m tests.flink.jars
"""

import os
import shutil
import subprocess
import tempfile
import zipfile
import zlib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FLINK = Path(__file__).parent / "pom.xml"
SPARK = Path(__file__).parent / "spark.xml"
DRIVERS = {
    FLINK: "org.apache.beam.runners.flink.FlinkJobServerDriver",
    SPARK: "org.apache.beam.runners.spark.SparkJobServerDriver",
}
JOB_SERVER = "job-server.jar"

OPENS = (
    *("java.lang", "java.net", "java.io", "java.nio", "sun.nio.ch", "java.lang.reflect", "java.text", "java.time"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks"),
    "java.lang.invoke",
)
"""Packages of Java that Flink and Spark access; Java 17 requires that they are opened."""


class NoFlinkError(Exception):
    """Flink or Spark is not installed and cannot be downloaded; the message says why."""


def jars(pom: Path = FLINK) -> Path:
    """The folder of jars; downloads them if they are absent (Flink's are 156 MB, Spark's 260).

    Raises:
      NoFlinkError: no Java, no Maven, or Maven could not get them.
    """
    if shutil.which("java") is None:
        raise NoFlinkError("no `java` on the PATH; Flink 1.19 and Spark 3.5 need Java 11 or 17")
    there = ROOT / ".flink" / f"{zlib.crc32(pom.read_bytes()):08x}"  # of the versions in it
    if (there / JOB_SERVER).is_file():
        return there
    if shutil.which("mvn") is None:
        raise NoFlinkError("no `mvn` on the PATH to get the jars with")
    there.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=there.parent) as name:
        fetched = Path(name) / "jars"
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1_200, check=False)
        if done.returncode:
            raise NoFlinkError(f"Maven could not get the jars: {done.stdout.strip()[-600:]}")
        _write_job_server(fetched, DRIVERS[pom])
        os.replace(fetched, there)
    return there


def _write_job_server(folder: Path, driver: str) -> None:
    """A jar that only names the others on its class path, so that Beam can start it like a released one."""
    lines = [
        "Manifest-Version: 1.0",
        f"Main-Class: {driver}",
        "Add-Opens: " + " ".join(f"java.base/{package}" for package in OPENS),
        "Class-Path: " + " ".join(sorted(path.name for path in folder.glob("*.jar"))),
    ]
    with zipfile.ZipFile(folder / JOB_SERVER, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "".join(_folded(line) for line in lines))


def _folded(line: str) -> str:
    """A line of a jar's manifest: at most 72 bytes, continued on lines that begin with a space."""
    parts = [line[:70], *(line[at : at + 69] for at in range(70, len(line), 69))]
    return "\r\n ".join(parts) + "\r\n"


if __name__ == "__main__":
    try:
        print(f"test-flink: jars in {jars(FLINK).relative_to(ROOT)} and {jars(SPARK).relative_to(ROOT)}")
    except NoFlinkError as error:
        print(f"test-flink: {error}")
