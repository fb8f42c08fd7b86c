"""Manifests, TFRecord shards and datasets."""
