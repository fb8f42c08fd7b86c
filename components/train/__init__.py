"""The step train."""
