"""Push for TTS models."""
