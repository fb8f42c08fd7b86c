"""Speech recognizers."""
