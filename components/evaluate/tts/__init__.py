"""How well a voice speaks."""
