"""extract on Beam in one process, disturbed at every change that it makes on a disk: the end is as if it was not."""

from typing import Any

import pytest

from tests.faults.every_change import disturbed, judge
from tests.faults.inject import KINDS

STEP = "beam"


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    return disturbed(STEP, tmp_path_factory.mktemp(STEP))


@pytest.mark.parametrize("how", KINDS[STEP])
def test_a_fault_at_any_change_leaves_the_end_state_as_it_is(how: str, trials: dict[str, list[dict[str, Any]]]) -> None:
    judge(trials[how], how)
