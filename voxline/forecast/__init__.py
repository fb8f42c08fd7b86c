"""Forecasts of the figures of runs and of other series, and of whether a run will be promoted."""

LONGEST = 366
"""Steps of the longest season: days of a leap year."""
