"""`model.json`: what an exported model says about itself.

Every family has the same required keys. The further ones belong to a family; they are here, since inference reads them
without the family's own code. Those that only the family's code reads are under `extra`, and have a type there. Any
other key is refused: it is misspelt, or of a version of Voxline that means something by it which this one would ignore.
"""

from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from voxline.errors import SettingsError, WorkError
from voxline.store.hashing import hash_bytes
from voxline.store.size_limits import read_bounded
from voxline.store.versioned_json import FilePart, VersionedFile
from voxline.text.alphabet import Alphabet
from voxline.text.consent import names_terms
from voxline.text.public_tokenizer import PublicTokenizer, TokenizerForm
from voxline.text.whisper_tokenizer import WhisperTokenizer

FilePartT = TypeVar("FilePartT", bound=FilePart)

MAX_TOKENIZER_BYTES = 1 << 26
AS_PUBLISHED = "as_published"
"""Key of `Provenance.trained` in a public model that was exported as it comes: nothing was trained."""
SPEAKER_ENCODER = "speaker_encoder"
"""Key of `Provenance.trained` in a voice whose rows of speakers are heard by an encoder: its digest, and how many rows
the training had."""
ATTENTION = "attention"
"""The kind of a recognizer whose decoder writes tokens."""


class DatasetInfo(FilePart):
    """The dataset of the training.

    Attributes:
      key: of extract's output; empty of a file of published weights.
      fingerprint: of its utterances.
      counts, seconds: of each split.
      drafts: of train, by the model that wrote the transcripts; those that were replayed too.
      licences: utterances of train and dev under each licence, replayed ones too; {} if none is stated.
    """

    key: str = ""
    fingerprint: str = ""
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    drafts: dict[str, int] = msgspec.field(default_factory=dict)
    licences: dict[str, int] = msgspec.field(default_factory=dict)


class Provenance(FilePart):
    """The origin of a model.

    Attributes:
      versions: of packages.
      trained: steps, the best step, the metrics of its validation.
    """

    git_revision: str = ""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    trained: dict[str, Any] = msgspec.field(default_factory=dict)


class Normalization(FilePart):
    """Mean and standard deviation of each feature, as the weights expect them."""

    mean: list[float]
    deviation: list[float]


class StartInfo(FilePart):
    """The models that the training started from.

    Attributes:
      generation: how many models in a row started from another one, this one included.
      ancestors: the parent first; `registry.parents.Ancestor` reads them.
      training_data: "known" if the parent has a list of what it was trained on.
    """

    generation: int
    ancestors: list[dict[str, Any]]
    training_data: str


class OutputFrames(FilePart):
    """Seconds from one output frame of a recognizer to the next, and at which the first one begins."""

    seconds: float
    start: float


class ShippedVocoder(FilePart):
    """The vocoder within a voice's folder; no version if it was in no registry.

    Attributes:
      licences: of its data and of its ancestors; [] if none is stated.
    """

    name: str
    version: int | None
    digest: str
    licences: list[str] = msgspec.field(default_factory=list)


class TokenizerFile(FilePart):
    """The file of a public model's tokenizer, within the model's folder.

    Attributes:
      blank: the number of the CTC blank among the tokenizer's pieces, which `PublicTokenizer.of` takes; of a model with
        a decoder, that of the token which ends a text.
    """

    file: TokenizerForm
    hash: str
    blank: int

    @classmethod
    def of(cls, tokenizer: PublicTokenizer) -> "TokenizerFile":
        return cls(file=tokenizer.file, hash=hash_bytes(tokenizer.content), blank=tokenizer.columns[-1])


class EnrolledSpeaker(FilePart):
    """A person whose row a voice got from a recording, without training, and their consent.

    Attributes:
      speaker: the row's name, a pseudonym.
      consent: `yes:` and the name of the terms that the person agreed to.
      at: when that was recorded here, in UTC.
      recording: hash of the file.
      seconds: of speech in it.
    """

    speaker: str
    consent: str
    at: str
    recording: str
    seconds: float


class ModelInfo(VersionedFile):
    """The contents of `model.json`.

    Attributes:
      kind: of network: "ctc", "attention", "tacotron2", "vocos".
      alphabet: the symbols: characters, or characters and subwords; see `read_alphabet`. Empty of a recognizer whose
        decoder writes the tokens of its tokenizer.
      sample_rate: samples a second.
      features: of `FeatureSettings`.
      settings: of the training.
      weights: their names, in the order of the export.
      normalization: None of a model without one.
      start: None of a model trained from random weights.
      graph: of a recognizer; equal of two exports whose graphs are.
      output_frames: of a recognizer whose frames have a fixed rate.
      frontend: of a voice or a classifier; see `FrontendSettings`.
      max_steps, reduction: of a voice: most decoder steps, and frames of each.
      vocoder: that a voice ships with.
      speakers: of a voice: names of the rows of its speaker table, in their order; [] of a voice of one speaker.
      enrolled: those of them who were added without training; the last rows.
      context_frames: of a vocoder: frames on each side on which a sample depends; None: all.
      attributes: of a converter of voices: the values of each.
      tokenizer: of a recognizer that spells as a public model does; None: as its alphabet does.
      extra: further keys of a family, which its own code alone reads; see `family_part`.
    """

    REMEDY: ClassVar[str] = "run train again"

    name: str
    family: str
    kind: str
    alphabet: str | list[str]
    sample_rate: int
    features: dict[str, Any]
    settings: dict[str, Any]
    dataset: DatasetInfo
    provenance: Provenance
    weights: list[str] = msgspec.field(default_factory=list)
    normalization: Normalization | None = None
    start: StartInfo | None = None
    graph: str = ""
    output_frames: OutputFrames | None = None
    frontend: dict[str, Any] = msgspec.field(default_factory=dict)
    max_steps: int = 0
    reduction: int = 0
    vocoder: ShippedVocoder | None = None
    speakers: list[str] = msgspec.field(default_factory=list)
    enrolled: list[EnrolledSpeaker] = msgspec.field(default_factory=list)
    context_frames: int | None = None
    attributes: dict[str, list[str]] = msgspec.field(default_factory=dict)
    tokenizer: TokenizerFile | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def added_speakers(self) -> list[str]:
        """The speakers whose row was added after the training, by `voxline models enrol`; the last rows."""
        # Of a voice whose rows are heard by an encoder, anyone's may be added; a learned row comes from a corpus.
        encoder = self.provenance.trained.get(SPEAKER_ENCODER)
        return self.speakers[int(encoder["speakers"]) :] if encoder else []

    def check_consents(self, where: object) -> None:
        """Refuses a voice with a row of somebody who was not among the speakers it was trained on, and whose consent
        it does not have.

        Args:
          where: the model, for the message.

        Raises:
          SettingsError: naming the row.
        """
        consents = {person.speaker: person.consent for person in self.enrolled}
        for speaker in self.added_speakers:
            if not names_terms(consents.get(speaker, "")):
                raise SettingsError(
                    f"{where}: model.json has no consent of {speaker!r} ('enrolled'), whose row was added after the "
                    "training; voxline models enrol records it"
                )

    def family_part(self, kind: type[FilePartT], where: object) -> FilePartT:
        """The further keys of the family, which `extra` has.

        Args:
          kind: their type.
          where: the model, for messages.

        Raises:
          WorkError: a key is missing, unknown, or has a value of another type.
        """
        try:
            return msgspec.convert(self.extra, kind)
        except msgspec.ValidationError as error:
            raise WorkError(f"{where}: model.json, 'extra': {error}; {self.REMEDY}") from None

    def read_alphabet(self, folder: Path) -> Alphabet:
        """The alphabet; it spells by the tokenizer if there is one.

        Args:
          folder: of the model.

        Raises:
          WorkError: as `read_tokenizer`.
        """
        return self.read_tokenizer(folder) or Alphabet(self.alphabet)

    def read_tokenizer(self, folder: Path) -> PublicTokenizer | None:
        """The tokenizer of a public model; None of a model that spells by its alphabet.

        Raises:
          WorkError: the file is absent, or another one than when the model was exported.
        """
        named = self.tokenizer
        if named is None:
            return None

        path = folder / named.file
        content = read_tokenizer_file(path)
        if hash_bytes(content) != named.hash:
            raise WorkError(f"{path}: not the tokenizer that the model was exported with; {self.REMEDY}")
        if self.kind == ATTENTION:
            prompt = self.model_settings.get("prompt", {})
            return WhisperTokenizer.read(content, prompt.get("language", ""), prompt.get("task", ""))
        return PublicTokenizer.of(named.file, content, named.blank)

    @property
    def is_as_published(self) -> bool:
        """Returns whether it is a public model as it comes, which is no better or worse than itself."""
        return bool(self.provenance.trained.get(AS_PUBLISHED))

    @property
    def model_settings(self) -> dict[str, Any]:
        """The settings of the network."""
        settings: dict[str, Any] = self.settings.get("model", {})
        return settings

    @property
    def language(self) -> str:
        """The language of speech that the network is asked for, such as "en"; "" if it is asked for none."""
        return str(self.model_settings.get("prompt", {}).get("language") or "")

    @property
    def precision(self) -> str:
        """The arithmetic of the SavedModel's network, as Keras names it: "float32", "mixed_bfloat16"."""
        return str(self.settings.get("export", {}).get("precision", "float32"))

    def arithmetic(self, engine: str) -> str:
        """The arithmetic of the network where an engine runs it: "onnx" or "tensorflow"."""
        return self.onnx_precision if engine == "onnx" else self.precision

    @property
    def onnx_precision(self) -> str:
        """The precision of the ONNX graph: "float32", "int8"; "none" without a graph."""
        return str(self.settings.get("export", {}).get("onnx", "float32"))


def read_tokenizer_file(path: Path) -> bytes:
    """The bytes of a tokenizer's file, for `PublicTokenizer.of`.

    Raises:
      WorkError: it is absent or too large.
    """
    try:
        return read_bounded(path, MAX_TOKENIZER_BYTES)
    except (OSError, ValueError) as error:
        raise WorkError(
            f"{path}: the model's tokenizer cannot be read ({error}); get or export the model again"
        ) from None
