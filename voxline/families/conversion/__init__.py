"""Voice conversion: the same words by a voice with other attributes."""
