"""Recognisers: how one is taught and exported."""
