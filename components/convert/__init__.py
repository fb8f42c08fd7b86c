"""The step convert."""
