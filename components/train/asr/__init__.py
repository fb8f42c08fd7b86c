"""Training and export of ASR models."""
