"""Networks in pure Keras 3, without TensorFlow, so that they can run on JAX."""
