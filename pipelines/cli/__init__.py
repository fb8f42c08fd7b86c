"""The `voxline` command."""
