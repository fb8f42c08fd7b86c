"""Generates speech in a publisher's layout, for demos and tests without a corpus."""
