"""Metrics of recognition and synthesis, with their confidence intervals."""
