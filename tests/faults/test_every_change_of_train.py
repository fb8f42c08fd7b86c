"""Train gives the same result after a fault at any change that it makes on a disk."""

from typing import Any

import pytest

from tests.faults.every_change import judge
from tests.faults.inject import KINDS

STEP = "train"


@pytest.mark.slow
@pytest.mark.parametrize("how", KINDS[STEP])
def test_a_fault_at_any_change_does_not_change_the_result(how: str, trials: dict[str, list[dict[str, Any]]]) -> None:
    judge(trials[how], how)
