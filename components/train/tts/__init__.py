"""Training and export of TTS models."""
