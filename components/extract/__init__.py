"""The step extract."""
