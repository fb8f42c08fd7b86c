"""What holds for every test and doctest of the product."""

import hypothesis
import pytest
from _pytest.doctest import DoctestItem

# A busy machine is no reason to fail: an example may take any time.
hypothesis.settings.register_profile("voxline", deadline=None)
hypothesis.settings.load_profile("voxline")


@pytest.fixture(autouse=True)
def _run_doctests_in_an_empty_folder(request: pytest.FixtureRequest) -> None:
    """Lets examples write files under short names."""
    if isinstance(request.node, DoctestItem):
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))
