"""Hyper-parameter search over the settings of training and decoding."""
