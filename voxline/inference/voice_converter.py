"""An exported converter of voices: mels of a recording in, mels of the same words by another voice out.

  converter = VoiceConverter("runs/digits-conversion/model")
  other = converter.convert(mels, {"sex": "F"})     # what is not named stays as the classifier reads it
  converter.read(other)                             # {"sex": {"F": 0.98, "M": 0.02}}

TensorFlow is imported when a `VoiceConverter` is made.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError, WorkError
from voxline.inference.saved_model import (
    SignatureSpec,
    call_signature,
    exported_folder,
    load_saved_model,
    read_model_info,
    require_family,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]

FAMILY = "conversion"
CONVERT = "convert"
CLASSIFY = "classify"
CONVERT_SPEC = SignatureSpec(("mels", "attributes"), ("mels",))
CLASSIFY_SPEC = SignatureSpec(("mels",), ("probabilities",))
TRAINING_STRENGTH = 0.5
STRENGTH = 0.75
"""Of an attribute vector's entries, in training, and for what is changed in use. With 1, which the paper's code uses, a
recognizer loses words: docs/decisions/0086.
"""


class VoiceConverter:
    """An exported converter, loaded.

    Args:
      model: an exported model's folder, or the output of train.

    Attributes:
      info: the contents of `model.json`.
      attributes: that it can change, and the values of each. Of them a voice has one at a time.
      features: of the mels that it reads and returns.

    Raises:
      WorkError: the model is damaged, or of another family.
    """

    def __init__(self, model: Path | str) -> None:
        import numpy as np

        from voxline.audio.features import compute_features

        self.folder = exported_folder(model)
        self.info = read_model_info(self.folder)
        require_family(self.info, FAMILY, self.folder)
        self.attributes: dict[str, list[str]] = self.info.attributes
        self.features = FeatureSettings.of(self.info.features)
        self._segment = int(self.info.settings["segment_frames"])
        # The features of digital silence, [bins], with which short recordings are filled up.
        self._silence = compute_features(np.zeros(1, np.float32), self.features)[0].astype(np.float32)
        self._model, signatures = load_saved_model(self.folder, {CONVERT: CONVERT_SPEC, CLASSIFY: CLASSIFY_SPEC})
        self._convert = signatures[CONVERT]
        self._classify = signatures[CLASSIFY]

    def check_features(self, features: FeatureSettings, setting: str) -> None:
        """
        Args:
          setting: that names the converter, for the message.

        Raises:
          SettingsError: mels of these settings are not what it reads.
        """
        settings = features.plain()
        own = self.features.plain()
        other = [f"{name} {settings[name]} (its own: {own[name]})" for name in own if own[name] != settings[name]]
        if other:
            raise SettingsError(
                f"{setting} reads features of other settings than {', '.join(other)}; train it on a dataset of the "
                "same extract.features and convert.sample_rate"
            )

    def convert(self, mels: "Array", targets: Mapping[str, str], strength: float = STRENGTH) -> "Array":
        """The same words by a voice with the wanted attributes, float32 [frames, bins].

        Args:
          mels: float32 [frames, bins], as extract computes them.
          targets: a value for each attribute that is to change. The others keep what the classifier reads.
          strength: of the wanted ones; 0.5 is that of training.

        Raises:
          SettingsError: it has no such attribute or value.
          WorkError: the result is not finite.
        """
        import numpy as np

        for name, value in targets.items():
            if value not in self.attributes.get(name, ()):
                accepted = "; ".join(
                    f"{attribute}: {', '.join(values)}" for attribute, values in self.attributes.items()
                )
                raise SettingsError(f"{name}={value}: the converter {self.folder} knows {accepted}")

        # The classifier is only asked where an attribute stays open.
        probabilities = self.read(mels) if targets.keys() != self.attributes.keys() else {}
        vector = []
        # One entry for each value of each attribute, in the order of the training: + for the target, - for the others.
        for name, values in self.attributes.items():
            target = targets.get(name) or max(values, key=probabilities[name].__getitem__)
            size = strength if name in targets else TRAINING_STRENGTH
            vector += [size if value == target else -size for value in values]
        inputs = {"mels": mels[None], "attributes": np.array([vector], np.float32)}
        mels_out: Array = call_signature(self._convert, self.folder, **inputs)["mels"][0]
        if not np.isfinite(mels_out).all():
            raise WorkError(f"{self.folder}: it returns mels that are not finite; train the converter again")
        return mels_out

    def read(self, mels: "Array") -> dict[str, dict[str, float]]:
        """The probability of each value of each attribute, by the classifier that learned from recordings.

        Of a recording longer than a training segment, the mean over segments that cover it.

        Args:
          mels: float32 [frames, bins], as extract computes them.
        """
        import numpy as np

        count = max(-(-len(mels) // self._segment), 1)
        padded = np.tile(self._silence, (max(self._segment, len(mels)), 1))
        padded[: len(mels)] = mels

        # [segments, frames of a segment, bins], at equal distances, so that all frames are covered
        starts = np.linspace(0, len(padded) - self._segment, count).round().astype(int)
        segments = np.stack([padded[start : start + self._segment] for start in starts])
        shares = call_signature(self._classify, self.folder, mels=segments)["probabilities"].mean(axis=0)

        # The classifier's output has the values of all attributes in a row.
        names = [(name, value) for name, values in self.attributes.items() for value in values]
        read: dict[str, dict[str, float]] = {name: {} for name in self.attributes}
        for (name, value), probability in zip(names, shares.tolist(), strict=True):
            read[name][value] = probability
        return read
