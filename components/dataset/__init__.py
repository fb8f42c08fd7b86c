"""The step dataset."""
