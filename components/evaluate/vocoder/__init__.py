"""Evaluation of vocoders."""
