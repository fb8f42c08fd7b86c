"""The train step as a pod of a pipeline runs it, in its own process: launch_process.py DATASET STORE SETTINGS."""

import sys

from voxline.components.train.step import run
from voxline.errors import VoxlineError
from voxline.families.asr.settings import AsrTrainSettings


def main() -> int:
    dataset, store, settings = sys.argv[1:]
    try:
        work = run(dataset, store, AsrTrainSettings.of(settings, "train"))
    except VoxlineError as error:
        print(f"error: {error}", flush=True)
        return error.exit_status
    print(f"ended: reused {work.reused}, TensorFlow imported: {'tensorflow' in sys.modules}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
