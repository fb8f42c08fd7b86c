"""Whisper's decoder by ONNX Runtime: greedy and beam search over two graphs, without TensorFlow.

`families/asr/onnx_attention.py` writes the graphs: one encodes a recording, the other reads tokens, with the keys and
values of those before. The search has the rules of `families/asr/token_search.py`, which the SavedModel's graph runs.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.cancellation import WorkCancelledError
from voxline.errors import WorkError
from voxline.inference.onnx_model import ONNX_FILE, load_session, run_session

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.text.whisper_tokenizer import SearchRules

DECODER_FILE = "decoder.onnx"
"""In the folder of an exported model, beside the encoder in `ONNX_FILE`."""


def memory_names(block: int) -> list[str]:
    """Keys and values of the encodings in a block of the decoder."""
    return [f"keys_{block}", f"values_{block}"]


def decoder_inputs(blocks: int) -> list[str]:
    """tokens, source, the memories of all blocks, and their caches."""
    memories = [name for block in range(blocks) for name in memory_names(block)]
    return ["tokens", "source", *memories, *(f"cached_{name}" for name in memories)]


def decoder_outputs(blocks: int) -> list[str]:
    """logits, attention, and the caches of all blocks."""
    return ["logits", "attention", *(f"new_{name}" for block in range(blocks) for name in memory_names(block))]


@dataclasses.dataclass(frozen=True, slots=True)
class FoundText:
    """The tokens of a text that the search ended with.

    Attributes:
      tokens: without the end token.
      mean: log probability of its tokens, the end included, in nats.
      count: how many these are.
      log_probabilities: of each, the end included.
    """

    tokens: list[int]
    mean: float
    count: int
    log_probabilities: list[float]


class OnnxTokenSearch:
    """The two graphs of an exported model.

    Args:
      folder: of the exported model.
      rules: which tokens may follow.
      longest: tokens that a text may have, the prompt included.
      threads: for one call; None: one for each core.

    Raises:
      WorkError: a file is damaged, or takes or returns something else.
    """

    def __init__(self, folder: Path, rules: "SearchRules", longest: int, threads: int | None = None) -> None:
        self._folder = folder
        self._rules = rules
        self._longest = longest - len(rules.prompt)
        self._encoder = load_session(folder / ONNX_FILE, threads)
        self._decoder = load_session(folder / DECODER_FILE, threads)

        # Names and their order: values are passed by name, and returned by position.
        self._memories = [node.name for node in self._encoder.get_outputs()]
        self._inputs = decoder_inputs(len(self._memories) // 2)
        self._outputs = decoder_outputs(len(self._memories) // 2)
        self._require(ONNX_FILE, self._encoder, ["waveforms", "lengths"], self._inputs[2 : 2 + len(self._memories)])
        self._require(DECODER_FILE, self._decoder, self._inputs, self._outputs)
        self._continuing = [self._outputs[0], *self._outputs[2:]]
        _, self._heads, _, self._size = self._decoder.get_inputs()[-1].shape

    def _require(self, name: str, session: Any, inputs: list[str], outputs: list[str]) -> None:
        taken = [node.name for node in session.get_inputs()]
        returned = [node.name for node in session.get_outputs()]
        if taken != inputs or returned != outputs:
            raise WorkError(
                f"{self._folder / name}: takes {', '.join(taken)} and returns {', '.join(returned)}; the graph of a "
                f"model with a decoder takes {', '.join(inputs)} and returns {', '.join(outputs)}; train again"
            )

    def encode(
        self, waveforms: "npt.NDArray[np.float32]", lengths: "npt.NDArray[np.int32]"
    ) -> "dict[str, npt.NDArray[np.float32]]":
        """The keys and values of the encodings in each block, by their names: `search` and `align` read them.

        Recordings are encoded one by one, so that the integers of one do not depend on the loudest of others.

        Args:
          waveforms: float32 [batch, samples], in [-1, 1].
          lengths: int32 [batch], samples.

        Raises:
          WorkError: the graph fails on them.
        """
        import numpy as np

        rows = [
            self._run(
                self._encoder,
                ONNX_FILE,
                self._memories,
                waveforms=waveforms[row : row + 1],
                lengths=lengths[row : row + 1],
            )
            for row in range(len(lengths))
        ]
        memories = rows[0] if len(rows) == 1 else [np.concatenate(arrays) for arrays in zip(*rows, strict=True)]
        return dict(zip(self._memories, memories, strict=True))

    def align(
        self, memories: "dict[str, npt.NDArray[np.float32]]", row: int, tokens: Sequence[int]
    ) -> "npt.NDArray[np.float32]":
        """How the tokens of a text attend to the encodings of a row, for `token_times.SpokenTokens`.

        Returns:
          float32 [alignment heads, prompt + tokens + 1, frames], scores before their softmax.
        """
        import numpy as np

        read = [*self._rules.prompt, *tokens, self._rules.end][: self._longest + len(self._rules.prompt)]
        of_row = {name: values[row : row + 1] for name, values in memories.items()}
        (attention,) = self._decode(["attention"], np.array([read], np.int64), np.zeros(1, np.int64), of_row, None)
        result: npt.NDArray[np.float32] = attention[0]
        return result

    def search(self, memories: "dict[str, npt.NDArray[np.float32]]", beams: int) -> list[list[FoundText]]:
        """The most probable texts of each row, the best first.

        Args:
          beams: texts that are followed; 1: greedy decoding.

        Raises:
          WorkError: the graph fails on them.
        """
        import numpy as np

        rules = self._rules
        rows = len(memories[self._memories[0]])
        prompt = np.tile(np.array([rules.prompt], np.int64), (rows * beams, 1))
        logits, *cache = self._decode(self._continuing, prompt, np.arange(rows * beams), memories, None)

        # All beams begin as one: only the first one of an utterance counts.
        totals = np.full((rows, beams), -np.inf, np.float32)
        totals[:, 0] = 0
        tokens = np.zeros((rows, beams, 0), np.int64)
        gains = np.zeros((rows, beams, 0), np.float32)
        ended = np.zeros((rows, beams), bool)
        penalties = rules.first_penalties
        while True:
            token, gain, source = self._best(logits[:, -1] + penalties, totals, ended)
            totals = np.take_along_axis(totals, source, axis=1) + gain
            tokens, gains = (
                np.concatenate([np.take_along_axis(earlier, source[:, :, None], axis=1), new[:, :, None]], axis=2)
                for earlier, new in ((tokens, token), (gains, gain))
            )
            ended = token == rules.end
            if tokens.shape[2] >= self._longest or ended.all():
                break
            rows_before = (np.arange(rows)[:, None] * beams + source).reshape(-1)
            logits, *cache = self._decode(self._continuing, token.reshape(-1, 1), rows_before, memories, cache)
            penalties = rules.penalties

        # The first end token counts, those after it do not.
        counts = (tokens != rules.end).sum(axis=2) + ended
        means = totals / np.maximum(counts, 1)
        order = np.argsort(-means, axis=1, kind="stable")
        return [
            [
                self._text(tokens[row, beam], gains[row, beam], means[row, beam], counts[row, beam])
                for beam in beam_order
            ]
            for row, beam_order in enumerate(order)
        ]

    def _text(self, tokens: Any, gains: Any, mean: Any, count: Any) -> FoundText:
        written = [int(token) for token in tokens if token != self._rules.end]
        return FoundText(written, float(mean), int(count), gains[:count].tolist())

    def _best(
        self, logits: "npt.NDArray[np.float32]", totals: "npt.NDArray[np.float32]", ended: "npt.NDArray[np.bool_]"
    ) -> "tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.int64]]":
        """The best continuations: their last tokens, what these add, and the beams before them, each [rows, beams].

        Args:
          logits: [rows · beams, vocabulary], minus infinity of tokens that may not follow.
        """
        import numpy as np

        rows, beams = totals.shape
        best = logits.max(axis=1, keepdims=True)
        normalizer = best + np.log(np.exp(logits - best).sum(axis=1, keepdims=True))

        # As many candidates of each beam as there are beams: [rows · beams, beams], lower tokens first where equal.
        if beams == 1:
            candidates = logits.argmax(axis=1)[:, None]
        else:
            candidates = np.sort(np.argpartition(-logits, beams - 1, axis=1)[:, :beams], axis=1)
        gains = np.take_along_axis(logits, candidates, axis=1) - normalizer

        # An ended text has one continuation, at no cost.
        over = ended.reshape(-1)
        candidates[over] = self._rules.end
        gains[over, 0] = 0
        gains[over, 1:] = -np.inf

        # [rows, beams · candidates]
        sums = (totals.reshape(-1, 1) + gains).reshape(rows, -1)
        places = np.argsort(-sums, axis=1, kind="stable")[:, :beams]
        token = np.take_along_axis(candidates.reshape(rows, -1), places, axis=1)
        gain = np.take_along_axis(gains.reshape(rows, -1), places, axis=1)
        return token, gain, places // beams

    def _decode(self, outputs: list[str], tokens: Any, source: Any, memories: dict[str, Any], cache: Any) -> list[Any]:
        """Runs the decoder on new tokens.

        Args:
          outputs: names of those that are wanted.
          tokens: int64 [rows, new].
          source: int64 [rows], the row of the cache that each continues.
          cache: keys and values of the tokens before, as it returned them; None before the first ones.
        """
        import numpy as np

        if cache is None:
            cache = [np.zeros((len(tokens), self._heads, 0, self._size), np.float32)] * len(memories)
        caches = dict(zip(self._inputs[2 + len(memories) :], cache, strict=True))
        return self._run(self._decoder, DECODER_FILE, outputs, tokens=tokens, source=source, **memories, **caches)

    def _run(self, session: Any, name: str, outputs: list[str], **inputs: Any) -> list[Any]:
        try:
            return run_session(session, outputs, inputs, keeps_memory=session is self._decoder)
        except WorkCancelledError:
            raise
        except Exception as error:
            # The first line says what; the others are the runtime's own stack.
            why = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
            raise WorkError(
                f"{self._folder / name}: fails on a batch of {len(next(iter(inputs.values())))}: {why}"
            ) from None
