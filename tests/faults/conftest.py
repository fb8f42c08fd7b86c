"""The trials of the step that a test file is about."""

from typing import Any

import pytest

from tests.faults.every_change import disturbed


@pytest.fixture(scope="module")
def trials(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    step: str = request.module.STEP
    without_slow_tests = request.config.option.markexpr == "not slow"
    return disturbed(step, tmp_path_factory.mktemp(step), few=without_slow_tests)
