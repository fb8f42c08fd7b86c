"""The step push."""
