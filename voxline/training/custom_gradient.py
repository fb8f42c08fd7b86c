"""Functions with a gradient of their own, whose graphs are freed."""

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import ops

# What `tf.custom_gradient` is made of.
from tensorflow.python.eager.record import VariableWatcher, record_operation, stop_recording

_numbers = itertools.count()


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.custom_gradient`, with graphs that are freed.

    That one registers a function for each graph, which stays as long as the process, and so does all that the graph
    refers to, weights too. Here the graph itself keeps the function.

    Args:
      function: of tensors; variables are read before it. It returns a tensor, and a function that maps its gradient
        to those of the inputs, a tuple if there are several; None where an input has none.

    Raises:
      TypeError: by the result, where the function reads a variable, which would get no gradient.
    """

    @functools.wraps(function)
    def apply(*inputs: Any) -> Any:
        tensors = [tf.convert_to_tensor(value) for value in inputs]
        if tf.executing_eagerly():
            return ops.custom_gradient(function)(*tensors)

        graph = tf.compat.v1.get_default_graph()
        graph_reference = weakref.ref(graph)
        name = f"VoxlineGradient{next(_numbers)}"

        # TensorFlow registers a function under a name for good, so this one refers to no tensor.
        @tf.RegisterGradient(name)  # type: ignore[untyped-decorator]
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def run_gradient(_: Any, upstream: Any, *__: Any) -> tuple[Any, ...]:
            """Gradients of `[result, inputs…]`."""
            gradients = getattr(graph_reference(), name)(upstream)
            return None, *(gradients if isinstance(gradients, tuple) else [gradients])

        with stop_recording():
            with VariableWatcher() as watcher:
                result, gradient = function(*tensors)
            if variables := watcher.watched_variables():
                raise TypeError(f"{function.__name__} reads {variables[0].name}: variables must be among its inputs")
            with graph.gradient_override_map({"IdentityN": name}):
                outputs = tf.identity_n([result, *tensors])

        # A tape knows an operation by its kind, whatever the graph says of it.
        setattr(graph, name, gradient)  # a collection would be copied to the graphs of inner functions
        record_operation(name, outputs, [result, *tensors], functools.partial(run_gradient, None))
        return outputs[0]

    return apply
