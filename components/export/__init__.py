"""The step export."""
