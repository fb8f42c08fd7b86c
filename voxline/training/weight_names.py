"""Names of a model's weights that are the same in every process."""

from collections.abc import Iterator, Mapping
from typing import Any


def weight_names(model: Any) -> list[str]:
    """A name for each of a model's weights, in the order of `model.weights`: the path of attributes that leads to it.

    Keras' own names count the layers of a process, so they differ from one model to the next.

    >>> import keras
    >>> class Network(keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.hidden = [keras.layers.Dense(2), keras.layers.Dense(2)]
    >>> network = Network()
    >>> for layer in network.hidden:
    ...     layer.build((None, 3))
    >>> weight_names(network)
    ['hidden/0/kernel', 'hidden/0/bias', 'hidden/1/kernel', 'hidden/1/bias']
    """

    # A variable that two attributes share has the name of the first one.
    names: dict[int, str] = {}
    for name, variable in _walk(model, "", set()):
        names.setdefault(id(variable), name)

    return [names[id(variable)] for variable in model.weights]


def _walk(node: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    import keras

    if isinstance(node, keras.Variable):
        yield name, node
        return

    if id(node) in seen:
        return

    seen.add(id(node))

    # Lists, mappings and layers lead on to further variables.
    children: list[tuple[str, Any]] = []
    if isinstance(node, list | tuple):
        children = [(str(index), child) for index, child in enumerate(node)]
    elif isinstance(node, Mapping):
        children = [(str(key), child) for key, child in node.items()]
    elif isinstance(node, keras.layers.Layer) or hasattr(node, "weights"):
        attributes = vars(node).items()
        children = [(key, child) for key, child in attributes if not key.startswith("_")]
        # Keras keeps some weights and layers private: Dense._kernel, MultiHeadAttention._query_dense.
        single = (keras.Variable, keras.layers.Layer)
        private = [(key, child) for key, child in attributes if key.startswith("_") and isinstance(child, single)]
        children += [(key.lstrip("_"), child) for key, child in private]

    for key, child in children:
        yield from _walk(child, f"{name}/{key}".lstrip("/"), seen)
