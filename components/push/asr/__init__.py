"""Push for ASR models."""
