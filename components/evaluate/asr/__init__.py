"""How well a model recognises."""
