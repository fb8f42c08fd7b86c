"""Graphs of steps, and everything that configures, runs, submits and records them."""
