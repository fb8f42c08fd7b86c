"""Does with a registry what the steps that read one do, after mounting it read-only. Prints what they found as JSON.

unshare --map-root-user --mount python -m tests.registry.read_only REGISTRY MODEL CORPUS FOLDER
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.serving.test_server import push
from voxline.components.evaluate.step import run
from voxline.components.forecast.step import _reason_of_registry
from voxline.components.validate.tfdv.baseline import Baseline
from voxline.errors import WorkError
from voxline.families.asr.settings import AsrEvaluateSettings
from voxline.registry.anchor import current_anchor
from voxline.registry.models import find_model, model_names
from voxline.registry.models_config import models_config
from voxline.registry.parents import find_parent
from voxline.registry.registry import Registry
from voxline.registry.verified_copy import VerifiedCopy
from voxline.serving.followed_model import FollowedModel


def main(root: Path, model: Path, corpus: Path, folder: Path) -> dict[str, Any]:
    subprocess.run(["mount", "--bind", root, root], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", root], check=True)
    os.chdir(folder)
    registry = Registry(root, "asr")

    work = run(model, corpus, root, folder / "store", AsrEvaluateSettings(bootstrap_samples=200))
    parent = find_parent("asr@production", root, family="asr", own_name="asr", generations=5)
    baseline = Baseline.in_service(root, "asr", folder / "store")
    served = FollowedModel(root, "asr")
    served.verify()
    try:
        push(root, model)
        pushed = "pushed"
    except WorkError as error:
        pushed = str(error)
    return {
        "evaluate": json.loads((work.folder / "metrics.json").read_text())["champion"]["version"],
        "train": parent.label if parent else "",
        "validate": baseline.absent,
        "forecast": _reason_of_registry(registry),
        "anchor": current_anchor(registry),
        "model": find_model(root / "asr").name,
        "names": model_names(root),
        "config": "versions: 1" in models_config(root),
        "serve": [served.fault, served.damage],
        "copy": VerifiedCopy(root, folder / "models").update(),
        "push": pushed,
    }


if __name__ == "__main__":
    print(json.dumps(main(*map(Path, sys.argv[1:]))))
