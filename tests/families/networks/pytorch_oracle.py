"""Outputs of the authors' networks in PyTorch, stored beside this file, so that every clone can compare with them.

`make oracles` computes them again, where PyTorch can be installed. Weights and inputs are drawn from fixed seeds, and
only sums of them are stored, which show that they have changed since.
"""

import functools
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.conftest import ROOT

Array = npt.NDArray[Any]
PEER = ROOT / "benchmarks" / "peers" / "vocoders_torch.py"
HUB = Path(__file__).with_name("hub")
"""Small public models with random weights, and what transformers computes of them."""
PEERS = Path(os.environ.get("VOXLINE_PEERS", ROOT / ".bench-venv")) / "bin" / "python"
WRITE = "VOXLINE_WRITE_ORACLES"
"""Environment variable of `make oracles`: compute and store, instead of reading what is stored."""


def pytorch_outputs(oracle: str, networks: dict[str, Any], folder: Path, **inputs: Array) -> dict[str, Array]:
    """The outputs of PyTorch in float32, as "network/number".

    Args:
      oracle: names the stored file.
      networks: network → its sizes, as the functions of `PEER` take them.
      folder: an empty folder for the exchange with PyTorch.
      inputs: arrays and the weights of our networks, which `numbered_weights` names.
    """
    stored = Path(__file__).with_name(f"pytorch_{oracle}.npz")
    if os.environ.get(WRITE):
        np.savez(folder / "given.npz", how=json.dumps(networks), **inputs)
        subprocess.run([str(PEERS), str(PEER), str(folder)], check=True)
        with np.load(folder / "torch.npz", allow_pickle=False) as outputs:
            arrays = {name: outputs[name] for name in outputs.files}
        sums = {f"sums of {name}": _sums(array) for name, array in inputs.items()}
        np.savez_compressed(stored, **arrays, **sums)

    with np.load(stored, allow_pickle=False) as outputs:
        arrays = {name: outputs[name] for name in outputs.files}
    sums = {name.removeprefix("sums of "): arrays.pop(name) for name in list(arrays) if name.startswith("sums of ")}
    same = sums.keys() == inputs.keys() and all(
        np.allclose(_sums(array), sums[name], rtol=1e-4, atol=1e-4) for name, array in inputs.items()
    )
    assert same, f"{stored.name} was computed from other weights or inputs; `make oracles` computes it again"
    return arrays


@functools.cache
def write_hub_models(program: str) -> None:
    """With `WRITE`, lets a program of benchmarks/peers write its folders of `HUB`."""
    if os.environ.get(WRITE):
        subprocess.run([str(PEERS), str(PEER.with_name(program)), str(HUB)], check=True)


def numbered_weights(network: str, weights: Sequence[Any]) -> dict[str, Array]:
    """Weights as the peer reads them."""
    arrays = {f"{network}/{index}": np.asarray(weight) for index, weight in enumerate(weights)}
    return {**arrays, f"{network}/count": np.array(len(weights))}


def _sums(array: Array) -> Array:
    """Size, sum, and a sum that another order would change. [3]"""
    values = np.ravel(array).astype(np.float64)
    return np.array([values.size, values.sum(), values @ np.cos(np.arange(values.size))])
