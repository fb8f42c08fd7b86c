"""Published weights as a parent: a checkpoint of Mozilla's DeepSpeech 0.7 to 0.9, as a safetensors file.

  convert_checkpoint("best_dev-1466475", "alphabet.txt", "deepspeech-0.9.3.safetensors")
  parent = find_published("deepspeech-0.9.3.safetensors")

Neither format holds code: a checkpoint of TensorFlow is a table of tensors, safetensors a JSON header before them. A
pickle is not read. The file has Mozilla's names, layouts and values (training/deepspeech_training/train.py of 0.9.3),
and this module turns them into those of `networks.deepspeech`:
  layer_1/weights      [19 · 26, units], 19 frames of 26 coefficients, oldest first: a convolution over 19 frames
  …/kernel, …/bias     of the LSTM, the input's rows above the state's, gates in the order of LSTMBlockCell: input,
                       cell, forget, output; Keras has input, forget, cell, output
  layer_6/…            an entry for each symbol of the alphabet, the blank last
"""

import functools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError, WorkError
from voxline.inference.model_info import DatasetInfo, ModelInfo, Normalization, Provenance
from voxline.progress import print_status
from voxline.registry.parents import Ancestor, Parent
from voxline.store.files import atomic_write
from voxline.store.hashing import hash_file, hash_value
from voxline.store.localize import localize
from voxline.store.uris import absolute_uri

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]

DTYPES = ("F16", "F32", "F64")
"""Accepted types of the weights of a file, as safetensors names them."""
SUFFIX = ".safetensors"
ALPHABET_FILE = "alphabet.txt"
COEFFICIENTS = 26
LSTM = "cudnn_lstm/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell"
DENSE = {
    "layer_1": "before/0",
    "layer_2": "before/1",
    "layer_3": "before/2",
    "layer_5": "after",
    "layer_6": "classifier",
}
"""Mozilla's dense layers, and the parts of our network."""
VARIABLES = [*(f"{layer}/{part}" for layer in DENSE for part in ("weights", "bias")), f"{LSTM}/kernel", f"{LSTM}/bias"]
OF_OPTIMIZER = re.compile(r".*/Adam(_1)?|beta[12]_power|global_step|learning_rate")
"""Variables of a checkpoint that are no weights."""
FEATURES = FeatureSettings(
    kind="mfcc",
    cepstra="tensorflow",
    window_seconds=0.032,
    hop_seconds=0.02,
    mels=40,
    lowest_hz=20,
    log_floor=1e-12,
    coefficients=COEFFICIENTS,
)
"""Features of Mozilla's models (util/feeding.py, util/flags.py), by the defaults of TensorFlow's op Mfcc."""
HOW = "docs/warm-start.md says how to write such a file"


def find_published(model: str) -> Parent:
    """Opens a file of published weights as a parent; its weights are not read yet.

    Args:
      model: path or URI of the file. `alphabet.txt` in its folder is read if the file's metadata has no alphabet.

    Raises:
      SettingsError: the file or its alphabet is absent.
      WorkError: the file is damaged, or of another network.
    """
    try:
        model = absolute_uri(model)
        path = localize(model)
    except WorkError as error:
        raise SettingsError(f"train.start.model is {model!r}: {error}") from None

    if not path.is_file():
        raise SettingsError(f"train.start.model is {model!r}: the file is absent; {HOW}")

    # Header alone: names, shapes and types, before any weight is read.
    with _opened(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        shapes = {name: tuple(tensor.get_shape()) for name, tensor in slices.items()}
        kinds = {name: tensor.get_dtype() for name, tensor in slices.items()}
        metadata = file.metadata() or {}

    _check_variables(path, shapes)
    if unknown_types := sorted(name for name, kind in kinds.items() if kind not in DTYPES):
        raise WorkError(
            f"{path}: {unknown_types[0]} is {kinds[unknown_types[0]]}; {', '.join(DTYPES)} are accepted; "
            f"convert it, or {HOW}"
        )

    # The alphabet must be that of the output layer, or the model would speak another language.
    own_alphabet = metadata.get("alphabet")
    alphabet = _parse_symbols(path, own_alphabet) if own_alphabet is not None else _alphabet_beside(model, path)
    classes = shapes["layer_6/bias"][0]
    if len(alphabet) + 1 != classes:
        raise WorkError(
            f"{path}: layer_6 has {classes} classes, and the alphabet {len(alphabet)} symbols, to which the blank "
            "comes; give the alphabet that these weights were trained with"
        )

    # The shapes tell the network's settings.
    inputs, units = shapes["layer_1/weights"]
    network = {"kind": "deepspeech", "context": (inputs // COEFFICIENTS - 1) // 2, "units": units}
    _parse_forget_bias(path, metadata.get("forget_bias", "0"))  # before anything is read of so many megabytes
    info = ModelInfo(
        name=path.name,
        family="asr",
        kind="ctc",
        alphabet=alphabet,
        sample_rate=FEATURES.sample_rate,
        features=FEATURES.plain(),
        settings={"model": network},
        dataset=DatasetInfo(),
        provenance=Provenance(),
        normalization=Normalization(mean=[0.0] * COEFFICIENTS, deviation=[1.0] * COEFFICIENTS),
    )

    # The digest covers the alphabet, which may be in a file of its own.
    digest = hash_file(path)
    digest = digest if own_alphabet is not None else hash_value([digest, alphabet])
    read = functools.partial(read_published, path)
    parent = Parent(Ancestor(path.name, None, digest, ""), info, None, model, path, read)
    print_status(
        f"train: {parent.label} is a file of published weights: whose recordings it was trained on is not known, so a "
        "purge of a speaker does not find it by them"
    )
    return parent


def read_published(path: Path) -> "dict[str, Array]":
    """The weights of a file, under our network's names and in its layouts.

    Raises:
      WorkError: the file is damaged, or has weights that are no finite numbers.
    """
    import numpy as np

    with _opened(path) as file:
        mozilla = {name: np.asarray(file.get_tensor(name), np.float32) for name in VARIABLES}
        forget_bias = _parse_forget_bias(path, (file.metadata() or {}).get("forget_bias", "0"))
    if not_finite := [name for name, values in mozilla.items() if not np.isfinite(values).all()]:
        raise WorkError(f"{path}: {', '.join(not_finite)}: not all are finite numbers; get the file again")
    return to_our_layouts(mozilla, forget_bias)


def to_our_layouts(mozilla: "dict[str, Array]", forget_bias: float = 0.0) -> "dict[str, Array]":
    """Mozilla's variables by their names, as those of `networks.deepspeech.DeepSpeech` by its names.

    Args:
      mozilla: `VARIABLES`, float32.
      forget_bias: added to the forget gate by Mozilla's LSTM, besides the bias; 0 since release 0.6.
    """
    import numpy as np

    weights = {}
    for layer, part in DENSE.items():
        matrix = mozilla[f"{layer}/weights"]
        weights[f"{part}/kernel"] = matrix.reshape(-1, COEFFICIENTS, matrix.shape[1]) if layer == "layer_1" else matrix
        weights[f"{part}/bias"] = mozilla[f"{layer}/bias"]

    # The LSTM's rows: those of the input, then those of the state.
    kernel, bias = (_reorder_gates(mozilla[f"{LSTM}/{part}"]) for part in ("kernel", "bias"))
    units = len(bias) // 4
    bias[units : 2 * units] += np.float32(forget_bias)
    weights["recurrent/cell/kernel"] = kernel[:-units]
    weights["recurrent/cell/recurrent_kernel"] = kernel[-units:]
    weights["recurrent/cell/bias"] = bias

    return weights


def convert_checkpoint(
    checkpoint: Path | str, alphabet: Path | str, target: Path | str, forget_bias: float = 0.0
) -> Path:
    """Writes a checkpoint of TensorFlow 1 as a safetensors file, by `tf.train.load_checkpoint`.

    Args:
      checkpoint: its prefix, such as best_dev-1466475 for the file best_dev-1466475.index; or its folder.
      alphabet: Mozilla's alphabet.txt; it goes into the file's metadata.
      target: the file to write; ends in .safetensors.
      forget_bias: see `to_our_layouts`.

    Raises:
      SettingsError: a file does not exist, or the target has another suffix.
      WorkError: the checkpoint is damaged, or of another network.
    """
    import tensorflow as tf
    from safetensors.numpy import save

    path = Path(target)
    if path.suffix != SUFFIX:
        raise SettingsError(f"{target}: the file to write ends in {SUFFIX}")

    # Weights alone: moments of the optimizer stay behind.
    symbols = _read_alphabet(Path(alphabet))
    try:
        reader = tf.train.load_checkpoint(str(checkpoint))
        shapes = reader.get_variable_to_shape_map()
        names = [name for name in shapes if not OF_OPTIMIZER.fullmatch(name)]
        _check_variables(Path(checkpoint), {name: tuple(shapes[name]) for name in names})
        tensors = {name: reader.get_tensor(name) for name in VARIABLES}
    except (tf.errors.OpError, ValueError) as error:
        raise WorkError(f"{checkpoint}: not a checkpoint of TensorFlow, or damaged ({error})") from None

    metadata = {"alphabet": json.dumps(symbols, ensure_ascii=False), "forget_bias": f"{forget_bias:g}"}
    with atomic_write(path) as file:
        file.write(save(tensors, metadata))

    return path


def parse_alphabet(text: str) -> list[str]:
    r"""The symbols of Mozilla's alphabet.txt: one a line; a line that begins with # is a comment, \# is the symbol #.

    >>> parse_alphabet("# English\n \na\n\\#\n")
    [' ', 'a', '#']
    """
    lines = re.split(r"\r\n|\r|\n", text)
    return [line if line != r"\#" else "#" for line in lines if line and not line.startswith("#")]


def _reorder_gates(values: "Array") -> "Array":
    """Reorders gates from input, cell, forget, output to input, forget, cell, output, along the last axis."""
    import numpy as np

    input_gate, cell, forget, output = np.split(values, 4, axis=-1)
    return np.concatenate([input_gate, forget, cell, output], axis=-1)


def _check_variables(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuses variables that are not those of the network, or whose shapes have no meaning in it."""
    missing = sorted(set(VARIABLES) - shapes.keys())
    unknown = sorted(shapes.keys() - set(VARIABLES))
    if missing or unknown:
        problems = [f"without {', '.join(missing[:3])}"] if missing else []
        problems += [f"with {', '.join(unknown[:3])}"] if unknown else []
        raise WorkError(
            f"{path}: {' and '.join(problems)}; the {len(VARIABLES)} variables of Mozilla's DeepSpeech 0.7 to 0.9 are "
            f"accepted, without layer normalization; {HOW}"
        )

    # Ranks, then sizes that must agree with each other.
    ranks = {name: 1 if name.endswith("/bias") else 2 for name in VARIABLES}
    wrong = [name for name in VARIABLES if len(shapes[name]) != ranks[name] or 0 in shapes[name]]
    wrong += [f"{layer}/bias" for layer in DENSE if shapes[f"{layer}/bias"] != shapes[f"{layer}/weights"][1:]]

    # The first layer sees an odd number of frames, of 26 coefficients each.
    frames, left = divmod(shapes["layer_1/weights"][0], COEFFICIENTS) if not wrong else (1, 0)
    if left or frames % 2 == 0:
        wrong.append("layer_1/weights")

    if not wrong:
        gates = shapes[f"{LSTM}/bias"][0]
        rows, columns = shapes[f"{LSTM}/kernel"]
        if gates % 4 or columns != gates or rows != shapes["layer_3/bias"][0] + gates // 4:
            wrong.append(f"{LSTM}/kernel")

    if wrong:
        named = ", ".join(f"{name} {list(shapes[name])}" for name in dict.fromkeys(wrong))
        raise WorkError(f"{path}: shapes that are not those of Mozilla's DeepSpeech: {named}; {HOW}")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A safetensors file, whose header, offsets and sizes the library checks."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            yield file
    except (SafetensorError, TypeError, OSError) as error:
        raise WorkError(f"{path}: not a safetensors file, or damaged ({error}); get it again, or {HOW}") from None


def _alphabet_beside(model: str, path: Path) -> list[str]:
    root, slash, _ = model.rpartition("/")
    try:
        return _read_alphabet(localize(f"{root}{slash}{ALPHABET_FILE}"))
    except WorkError as error:  # nothing in the bucket
        raise SettingsError(
            f"{path} names no alphabet in its metadata, and its folder has no alphabet.txt: {error}"
        ) from None


def _read_alphabet(path: Path) -> list[str]:
    try:
        symbols = parse_alphabet(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be read ({error.strerror}), and published weights need their alphabet; "
            "put Mozilla's alphabet.txt there"
        ) from None
    except UnicodeDecodeError as error:
        raise WorkError(f"{path}: not UTF-8 ({error}); save it as UTF-8") from None
    return _check_symbols(path, symbols)


def _parse_symbols(path: Path, text: str) -> list[str]:
    try:
        symbols = json.loads(text)
    except (ValueError, RecursionError):
        symbols = None
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) and len(symbol) == 1 for symbol in symbols):
        raise WorkError(f"{path}: metadata 'alphabet' is {text[:60]!r}; a JSON list of characters is accepted")
    return _check_symbols(path, symbols)


def _check_symbols(path: Path, symbols: list[str]) -> list[str]:
    if len(set(symbols)) != len(symbols) or not symbols:
        raise WorkError(f"{path}: an alphabet of {len(symbols)} symbols; at least one, and each once, is accepted")
    return symbols


def _parse_forget_bias(path: Path, text: str) -> float:
    try:
        bias = float(text)
    except ValueError:
        bias = float("nan")
    if not -100 <= bias <= 100:
        raise WorkError(f"{path}: metadata 'forget_bias' is {text[:60]!r}; a number from -100 to 100 is accepted")
    return bias
