"""The step ingest."""
