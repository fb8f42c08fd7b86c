"""Voices: text to speech."""
