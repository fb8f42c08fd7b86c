"""A sentence of a generated corpus, in its two spellings."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """What a voice says.

    Attributes:
      written: as a book has it: "4 8 3", "我们 喜欢 喝 茶".
      normalised: as it is said, which the synthesiser reads: "four eight three", "wo3 men5 xi3 huan5 he1 cha2".
    """

    written: str
    normalised: str
