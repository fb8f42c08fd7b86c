"""What push does for voices alone."""
