"""Classifiers of texts by their intent."""
