"""Exported models, loaded and run."""
