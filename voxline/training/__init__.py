"""The training engine: batches, steps, checkpoints, averages, exports. It knows no family."""
