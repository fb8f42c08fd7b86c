"""Fixtures that these tests share with those of training."""

from tests.training.conftest import tones as tones
