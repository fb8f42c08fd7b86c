"""Kubeflow Pipelines on a cluster, from here: submit, follow, schedule, read logs, check before all is booked."""
