"""From written text to the symbols that a model reads."""
