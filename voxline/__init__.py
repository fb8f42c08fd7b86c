"""Voxline retrains speech models: recordings in, a model shown to be no worse out."""
