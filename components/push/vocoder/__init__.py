"""Push for vocoders."""
