"""Trainings of a search on a cluster, in parallel."""
