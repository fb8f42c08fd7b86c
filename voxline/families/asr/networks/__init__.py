"""The networks of this family, in pure Keras, and their sizes."""
