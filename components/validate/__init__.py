"""The step validate."""
