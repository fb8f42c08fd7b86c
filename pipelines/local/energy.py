"""The energy that the processors and the memory of this machine use while a run lasts, where the machine tells it.

Linux has the counters of RAPL (Running Average Power Limit) below /sys/class/powercap, in microjoules. Most kernels let
only root read them (CVE-2020-8694), and containers and many virtual machines have none: then nothing is measured.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
SECONDS = 10.0
"""Between two readings. A counter starts again after 2^32 microjoules or more: 20 seconds of 200 watts at least."""
JOULES_PER_KWH = 3.6e6


@contextlib.contextmanager
def metered_energy(root: Path = POWERCAP, seconds: float = SECONDS) -> Iterator[Callable[[], float | None]]:
    """Reads the counters until the block ends; yields a function that returns the energy so far, in kWh.

    It returns None where no counter can be read. The counters are the whole machine's: of other programs too.
    """
    # No thread where there is nothing to read.
    meter = _Meter(root)
    if not meter.is_there:
        yield lambda: None
        return
    # A counter that starts again twice between two readings would lose all of a round.
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(seconds):
            meter.read()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield meter.read
    finally:
        ended.set()
        reader.join()


class _Meter:
    """The sum of the counters of all processor packages, and of memory that has a counter of its own."""

    def __init__(self, root: Path) -> None:
        self._lock = threading.Lock()
        self._microjoules = 0
        self._last: dict[Path, int] = {}
        self._largest: dict[Path, int] = {}
        # AMD's counters have this name too. A zone within a package, such as core, is counted in it; dram is not.
        for zone in sorted(root.glob("intel-rapl:*")):
            with contextlib.suppress(OSError, ValueError):
                name = (zone / "name").read_text().strip()
                if name.startswith("package") or name == "dram":
                    self._last[zone] = _microjoules(zone)
                    self._largest[zone] = int((zone / "max_energy_range_uj").read_text())

    @property
    def is_there(self) -> bool:
        return bool(self._largest)

    def read(self) -> float | None:
        """Adds what was used since the last reading; returns kWh since the first, None if a counter is gone."""
        with self._lock:
            for zone, largest in self._largest.items():
                try:
                    counted = _microjoules(zone)
                except (OSError, ValueError):
                    return None
                # Below the last reading, it has started again from zero.
                used = counted - self._last[zone]
                self._microjoules += used if used >= 0 else used + largest
                self._last[zone] = counted
            return self._microjoules / 1e6 / JOULES_PER_KWH


def _microjoules(zone: Path) -> int:
    return int((zone / "energy_uj").read_text())
