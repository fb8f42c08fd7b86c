"""The step generate."""
