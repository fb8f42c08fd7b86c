"""The step publish."""
