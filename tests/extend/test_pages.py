"""The pages of docs/extend that end in a run work as they are printed; the others have tests beside their subject."""

from pathlib import Path

import pytest

from tests.extend.pages import carry_out, copy_tree

slow = pytest.mark.slow


@pytest.mark.slow
def test_a_family_in_a_package_of_its_own_is_trained_judged_and_pushed(tmp_path: Path) -> None:
    carry_out("family.md", tmp_path)


@pytest.mark.parametrize(
    "page",
    [
        "command.md",
        pytest.param("step.md", marks=slow),
        pytest.param("setting.md", marks=slow),
        pytest.param("tts-network.md", marks=slow),
    ],
)
def test_a_page_that_changes_the_tree_ends_in_a_run(page: str, tmp_path: Path) -> None:
    folder = copy_tree(tmp_path / "tree")
    carry_out(page, folder, folder)
