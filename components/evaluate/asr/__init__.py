"""Evaluate for ASR models."""
