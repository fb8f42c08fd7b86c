"""The container images that steps run in on a cluster. On this machine steps run as processes, without them.

The registry and the tag come from the environment in which a pipeline is compiled. The tag is a version, never
`latest`: a compiled pipeline must always run the same code.
"""

import os

# CI systems pass unset variables as empty ones.
IMAGE_REGISTRY = os.environ.get("VOXLINE_IMAGE_REGISTRY", "").rstrip("/") or "voxline"
IMAGE_TAG = os.environ.get("VOXLINE_IMAGE_TAG") or "0.1.0"

DATA_IMAGE = f"{IMAGE_REGISTRY}/data:{IMAGE_TAG}"
"""Audio and Beam: ingest, convert, extract, publish."""

MODEL_IMAGE = f"{IMAGE_REGISTRY}/model:{IMAGE_TAG}"
"""TensorFlow and Keras: train, evaluate, push."""

VALIDATE_IMAGE = f"{IMAGE_REGISTRY}/validate:{IMAGE_TAG}"
"""TensorFlow Data Validation and audio decoding: validate."""
