"""Reading, shaping and measuring audio."""
