"""The step evaluate."""
