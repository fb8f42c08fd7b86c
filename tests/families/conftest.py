"""Fixtures that these tests share with those of training."""

from tests.training.conftest import few as few
from tests.training.conftest import tones as tones
