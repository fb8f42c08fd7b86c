"""From written text to the symbols a model reads."""
