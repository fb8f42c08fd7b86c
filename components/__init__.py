"""How each step works: a folder a step, and `speech`, the domain that they share."""
