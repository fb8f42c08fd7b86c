"""Training on several machines of a cluster: a job of workers, created, followed and cleaned up by the train step."""
