"""Sessions on a WebSocket with a server that has a canary."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from websockets.sync.client import ClientConnection

from tests.causal_model import babble
from tests.serving.test_realtime import open_session, receive
from tests.serving.test_server import Served
from tests.tone_asr_model import RATE
from voxline.feedback.canary_state import CanarySettings, describe_canary
from voxline.inference.recognizer import Recognizer
from voxline.registry.journal import CANDIDATE, WITHDRAW
from voxline.registry.registry import Registry
from voxline.serving.canary_trial import Turn

HALF = CanarySettings(0.5, 0.05)
LOUD = (babble(2 * RATE) * 65535).astype("<i2")  # 0.8 of full scale
QUIET = (LOUD // 4).astype("<i2")
SPOKEN = np.concatenate([QUIET, LOUD])
"""On the second half of it the model that fails on loud streams fails."""
Serve = Callable[..., Served]


def heard_by(model: Path, samples: np.ndarray) -> str:
    """What a model hears in a whole recording: streams of a causal model hear the same."""
    text = Recognizer(model).transcribe(samples, RATE)
    assert text
    return text


def names_for(served: Served, arm: str, count: int = 1) -> list[str]:
    """Sessions that the present trial sends to an arm."""
    trial = served.canaries[0]._trial
    assert trial
    names = (f"caller-{number}" for number in range(10_000))
    chosen = (name for name in names if (trial.store.hash_of(name)[1] < HALF.share) == (arm == CANDIDATE))
    return [next(chosen) for _ in range(count)]


@contextlib.contextmanager
def session_of(served: Served, name: str, query: str = "") -> Iterator[tuple[ClientConnection, dict[str, Any]]]:
    """A session with a name, and its first message."""
    with open_session(served, f"model=asr&session={name}{query}") as client:
        yield client, receive(client)


def counted(served: Served) -> dict[str, Any]:
    """What is published, of the sessions that have ended."""
    served.canaries[0].look()
    served.canaries[0].look()
    root = Path(served.canaries[0]._root)
    return describe_canary(root, "asr")


def withdrawn(root: Path) -> list[str]:
    return [event.note for event in Registry(root, "asr").journal() if event.action == WITHDRAW]


def partial_text(model: Path, samples: np.ndarray) -> str:
    return Recognizer(model).stream().feed(samples).text


def turns_of(served: Served) -> list[Turn]:
    """Collects the turns that end from now on."""
    ended: list[Turn] = []
    served.canaries[0].on_end = lambda _, turn: ended.append(turn)
    return ended


def engine_of(served: Served, arm: str) -> Recognizer:
    trial = served.canaries[0]._trial
    assert trial
    engine = (trial.candidate if arm == CANDIDATE else trial.production).engine
    assert isinstance(engine, Recognizer)
    return engine
