"""Apache Beam: settings, pipelines and their workers."""
