"""Forecasts of the figures of runs, and of whether a run will be promoted."""
