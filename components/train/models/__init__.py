"""Models in pure Keras 3: no TensorFlow in here, so that JAX stays possible."""
