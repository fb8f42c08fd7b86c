"""Training of voice conversion: the same words by a voice with other attributes."""
