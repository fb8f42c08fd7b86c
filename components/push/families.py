"""The model families that push knows.

As a program it is the fresh process of the smoke test, which calls the `repeat` of one family.
"""

import json
import sys

from voxline.components.push.asr.family import AsrPushFamily
from voxline.components.push.family import PushFamily
from voxline.components.push.intents.family import IntentsPushFamily
from voxline.components.push.tts.family import TtsPushFamily
from voxline.components.push.vocoder.family import VocoderPushFamily
from voxline.errors import VoxlineError
from voxline.garbage import collect_rarely

FAMILIES: dict[str, PushFamily] = {
    "asr": AsrPushFamily(),
    "tts": TtsPushFamily(),
    "vocoder": VocoderPushFamily(),
    "intents": IntentsPushFamily(),
}


def main(family: str, *arguments: str) -> None:
    """Prints one line of JSON: what the family's `repeat` returns, or {"error": …}."""
    try:
        print(json.dumps(FAMILIES[family].repeat(*arguments)))
    except (VoxlineError, OSError, ValueError) as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    collect_rarely()
    main(*sys.argv[1:])
