"""Mean and deviation of each bin (CMVN), from the sums that each shard stores: no features are read again.

The sums of an utterance are float64. They are added as integers of a very small unit, so the total does not depend on
order or grouping: the same utterances have the same statistics to the last bit, no matter how the corpus was edited
or its shards were cut.
"""

import numpy as np

from voxline.components.extract.shard_index import DamagedShardError, PoolIndex
from voxline.data.record_locations import RecordLocations
from voxline.data.shard_writer import CmvnStats, read_cmvn_stats
from voxline.data.shards import localize_shards
from voxline.errors import WorkError

SMALLEST_DEVIATION = 1e-4
"""A bin that varies less (an empty mel band, digital silence) gets the deviation 1: models divide by it."""

_HIGH = 10
_LOW = 42
"""Bits: a sum is stored as integer 1024ths, and the rest as integer 2^-52ths. Each part fits an int64, up to a million
hours."""


_BLOCK_CLIPS = 256
"""Clips whose sums are added at a time. Of those of a whole shard, the memory would take longer than the sums."""


class ExactSums:
    """The exact sum of the sums of utterances, each `[2, bins]`."""

    def __init__(self, bins: int) -> None:
        self.frames = 0
        self._high = np.zeros((2, bins), np.int64)
        self._low = np.zeros((2, bins), np.int64)

    def add(self, sums: CmvnStats, frames: int) -> None:
        """Adds utterances, `[utterances, 2, bins]`, that have so many frames together."""
        # Multiplying by a power of two and subtracting a floor are exact in float64, so nothing is lost before the
        # integers are added.
        remainder = sums * 2.0**_HIGH
        high = np.floor(remainder)
        remainder -= high
        remainder *= 2.0**_LOW

        self._high += high.astype(np.int64).sum(axis=0)
        self._low += np.floor(remainder, out=remainder).astype(np.int64).sum(axis=0)
        self.frames += frames

    def mean_and_deviation(self) -> tuple[list[float], list[float]]:
        """Per bin. Without frames: zeros and ones, which leave features as they are.

        Rounded to eight digits; float32, in which they are used, has seven.

        >>> total = ExactSums(2)
        >>> total.add(np.array([[[4.0, 10.0], [10.0, 50.0]]]), frames=2)
        >>> total.mean_and_deviation()
        ([2.0, 5.0], [1.0, 1.0])
        """
        bins = self._high.shape[1]
        if not self.frames:
            return [0.0] * bins, [1.0] * bins

        # Python's integers have no limit, and dividing two of them rounds once.
        unit = self.frames << (_HIGH + _LOW)
        mean, squares = (
            np.array([((int(high) << _LOW) + int(low)) / unit for high, low in zip(*halves, strict=True)])
            for halves in zip(self._high, self._low, strict=True)
        )

        # [bins]: the mean of the squares minus the square of the mean, which rounding may make a little negative.
        deviation = np.sqrt(np.maximum(squares - mean**2, 0))
        deviation[deviation < SMALLEST_DEVIATION] = 1.0

        return [float(f"{value:.8g}") for value in mean], [float(f"{value:.8g}") for value in deviation]


def compute_normalization(pool: PoolIndex, locations: RecordLocations, bins: int) -> tuple[list[float], list[float]]:
    """Mean and deviation over some clips.

    Args:
      locations: their locations `[clips]`, as `PoolIndex.find` gives them.

    Raises:
      DamagedShardError: the sums of a shard are damaged.
    """
    total = ExactSums(bins)

    # Shard by shard, so that each file of sums is read once and no more than one is in memory.
    ordered = locations[np.argsort(locations["shard"], kind="stable")]
    starts = np.flatnonzero(np.diff(ordered["shard"], prepend=-1))  # np.unique would import numpy.ma
    numbers = ordered["shard"][starts]
    localize_shards(pool.shards[number].path.with_suffix(".npy") for number in numbers.tolist())

    for number, in_shard in zip(numbers.tolist(), np.split(ordered, starts[1:]), strict=False):
        shard = pool.shards[number]
        try:
            sums = read_cmvn_stats(shard.path, shard.examples, bins, shard.stats_crc32c)
        except WorkError as damage:
            raise DamagedShardError(number, str(damage)) from None
        for begin in range(0, len(in_shard), _BLOCK_CLIPS):
            block = in_shard[begin : begin + _BLOCK_CLIPS]
            total.add(sums[block["number"]], int(block["frames"].sum()))
    return total.mean_and_deviation()
