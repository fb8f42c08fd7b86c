"""Recognizers of a registry behind HTTP."""
