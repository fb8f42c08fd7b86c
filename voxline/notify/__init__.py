"""What a run announces when it ends, and where to: metrics, a webhook, lineage, model registries."""
