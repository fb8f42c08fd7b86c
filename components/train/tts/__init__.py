"""Voices: how one is taught and exported."""
