"""The steps: a folder each."""
