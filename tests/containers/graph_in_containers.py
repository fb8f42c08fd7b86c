"""Walks a graph with kfp.local.DockerRunner; a process of its own, as `voxline run` has one.

    python -m tests.containers.graph_in_containers REQUEST.json

The request holds the config, the pipeline root and the folders that are mounted; the images are those that the
environment names (VOXLINE_IMAGE_REGISTRY, VOXLINE_IMAGE_TAG), and the user is the one that they name themselves.
"""

import os
import sys
from pathlib import Path

from voxline.pipelines.kfp_graph import load_pipeline, pipeline_arguments
from voxline.store.files import read_json


def main(request_file: str) -> None:
    """Runs {"config": {...}, "optional": [steps], "pipeline_root": "...", "read": [folders], "written": [folders]}."""
    from kfp import local

    import docker

    os.umask(0)  # kfp makes folders here that the numbered user writes to there
    request = read_json(Path(request_file))
    mounts = [
        docker.types.Mount(target=folder, source=folder, type="bind", read_only=kind == "read")
        for kind in ("read", "written")
        for folder in request[kind]
    ]
    runner = local.DockerRunner(
        read_only=True,
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        tmpfs={"/tmp": "mode=1777"},
        mounts=mounts,
        environment={"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"},  # as the run in processes has them
    )
    local.init(runner, pipeline_root=request["pipeline_root"])
    pipeline = load_pipeline(request["config"]["pipeline"], optional=request["optional"])
    pipeline(**pipeline_arguments(request["config"], list(pipeline.component_spec.inputs)))


if __name__ == "__main__":
    main(sys.argv[1])
