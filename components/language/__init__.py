"""Trains an n-gram language model, and puts it beside a speech recognizer."""
