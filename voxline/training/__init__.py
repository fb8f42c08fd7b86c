"""The training engine: batches, steps, checkpoints, averages, exports; and of n-grams. It knows no family."""
