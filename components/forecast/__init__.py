"""forecast: whether a training is worth it, by the history of runs."""
