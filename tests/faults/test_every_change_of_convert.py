"""convert, disturbed at every change that it makes on a disk: the end is as if it was not."""

from typing import Any

import pytest

from tests.faults.every_change import judge
from tests.faults.inject import KINDS

STEP = "convert"


@pytest.mark.parametrize("how", KINDS[STEP])
def test_a_fault_at_any_change_leaves_the_end_state_as_it_is(how: str, trials: dict[str, list[dict[str, Any]]]) -> None:
    judge(trials[how], how)
