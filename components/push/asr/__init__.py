"""What push does for recognisers alone."""
