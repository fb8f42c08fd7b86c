"""How workers find each other: TF_CONFIG, which a TFJob gives and a TrainJob does not.

A TrainJob becomes a JobSet, the JobSet an indexed Job, and the Job's pods get names that are known beforehand:

    <job>-node-0-<index>.<job>        <job> names the JobSet and its headless service, `node` its only replicated job

Kubernetes tells a pod of an indexed Job its index as JOB_COMPLETION_INDEX and its own name as HOSTNAME.
"""

import json
from collections.abc import Mapping

from voxline.errors import SettingsError

REPLICATED_JOB = "node"
"""What Kubeflow Trainer calls the replicated job of its trainers, and the container in it."""
PORT = 2222
"""Of TensorFlow's server in each worker; NetworkPolicies let workers reach each other there."""


def make_tf_config(job: str, count: int, environment: Mapping[str, str], port: int = PORT) -> str:
    """TF_CONFIG of the worker that this environment is of.

    Args:
      job: name of the TrainJob.
      count: workers in it.
      environment: of the process, as Kubernetes made it.

    >>> made = make_tf_config("digits", 2, {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "digits-node-0-1"})
    >>> json.loads(made)["cluster"]
    {'worker': ['digits-node-0-0.digits:2222', 'digits-node-0-1.digits:2222']}
    >>> json.loads(made)["task"]
    {'type': 'worker', 'index': 1}

    Raises:
      SettingsError: the pod is not one of those workers; its template is of another shape.
    """
    told = environment.get("JOB_COMPLETION_INDEX", "")
    if not told.isdecimal() or int(told) >= count:
        raise SettingsError(
            f"JOB_COMPLETION_INDEX is {told!r}, and the {count} workers of {job} have 0 to {count - 1}; the "
            "TrainingRuntime's replicated job must be an indexed Job with as many pods as the TrainJob has nodes"
        )
    names = [f"{job}-{REPLICATED_JOB}-0-{index}" for index in range(count)]
    host = environment.get("HOSTNAME", "")
    if host != names[int(told)]:
        raise SettingsError(
            f"this pod is called {host!r}, and the others look for worker {told} at {names[int(told)]!r}; the "
            f"TrainingRuntime's only replicated job must be called {REPLICATED_JOB!r}, with hostnames on"
        )
    cluster = {"worker": [f"{name}.{job}:{port}" for name in names]}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": int(told)}})
