"""The container images that steps run in on a cluster; here, where they run as processes, they are only names.

The registry and the tag come from the environment of whoever compiles a pipeline. The tag is a
version, never `latest`: a compiled pipeline must run the same code next year.
"""

import os

# A CI's variable that is not set comes as an empty one.
IMAGE_REGISTRY = os.environ.get("VOXLINE_IMAGE_REGISTRY", "").rstrip("/") or "voxline"
IMAGE_TAG = os.environ.get("VOXLINE_IMAGE_TAG") or "0.1.0"

DATA_IMAGE = f"{IMAGE_REGISTRY}/data:{IMAGE_TAG}"
"""Audio and Beam: ingest, convert, extract, publish."""

MODEL_IMAGE = f"{IMAGE_REGISTRY}/model:{IMAGE_TAG}"
"""TensorFlow and Keras: train, evaluate, push."""

VALIDATE_IMAGE = f"{IMAGE_REGISTRY}/validate:{IMAGE_TAG}"
"""TensorFlow Data Validation, and what reads audio: validate."""
