"""Vocoders: mels to samples."""
