"""The model registry."""
