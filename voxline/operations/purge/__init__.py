"""Purging: what is left of a speaker is removed from a store, from dataset versions and from a registry."""
