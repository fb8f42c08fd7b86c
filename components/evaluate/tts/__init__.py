"""Evaluate for TTS models."""
