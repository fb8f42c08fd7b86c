"""The part that Tacotron and Tacotron 2 share: the path through encoder, decoder and post-net."""

from keras import ops

from voxline.families.tts.networks.decoder import Decoder, DecoderOutput
from voxline.families.tts.networks.decoding import Compiler, decode_autoregressive, decode_teacher_forced
from voxline.families.tts.networks.tts_network import TtsNetwork, TtsOutput
from voxline.training.layers import Tensor, mask_padding


class TacotronBase(TtsNetwork):
    """Symbols in, normalized mels out, by a decoder that attends to the text and sees its last frame."""

    decoder: Decoder

    def encode(self, labels: Tensor, counts: Tensor, training: bool, noise: Tensor | None) -> Tensor:
        """Encoded text [batch, symbols, units], zero on padding."""
        raise NotImplementedError

    def refine(
        self, before: Tensor, frames: Tensor, training: bool, noise: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Mels after the post-net, and the linear spectrum where there is one."""
        raise NotImplementedError

    def call(
        self,
        labels: Tensor,
        counts: Tensor,
        features: Tensor,
        frames: Tensor,
        training: bool = False,
        noise: Tensor | None = None,
        reduction: int | None = None,
        teacher_forcing: Tensor | None = None,
    ) -> TtsOutput:
        """Predicts mels, feeding the decoder recorded frames.

        Args:
          labels: int [batch, symbols]; counts: int [batch], real symbols.
          features: float32 [batch, frames, bins], normalized; frames: int [batch], real frames.
          training: normalize by the statistics of the batch, drop activations and frames.
          noise: int [2], the seed of dropout and of the fed frames; None: no dropout at all.
          reduction: frames per decoder step; at most, and by default, that of the settings.
          teacher_forcing: share of the steps that are fed the recorded frame, a number or float [batch]; None: all. The
            others are fed the decoder's last frame.
        """

        # A schedule of training may lower the reduction; the weights are those of the largest one.
        reduction = reduction or self.settings.reduction
        if reduction > self.settings.reduction:
            raise ValueError(
                f"reduction {reduction} is more than the {self.settings.reduction} of the model's settings"
            )

        if teacher_forcing is not None and noise is None:
            raise ValueError("teacher_forcing is a share of steps drawn at random; noise, their seed, is missing")

        # Steps hold `reduction` frames each, so recordings are padded to whole steps: [batch, frames, mels].
        counts = ops.cast(counts, "int32")
        frames = ops.cast(frames, "int32")
        length = ops.shape(features)[1]
        mels = mask_padding(ops.cast(features, "float32")[..., : self.mels], frames)
        mels = ops.pad(mels, [(0, 0), (0, -length % reduction), (0, 0)])

        # [batch, symbols, units]
        memory = self.encode(ops.cast(labels, "int32"), counts, training, noise)
        decoded = decode_teacher_forced(
            self.decoder,
            memory,
            counts,
            mels,
            reduction=reduction,
            training=training,
            noise=noise,
            teacher_forcing=teacher_forcing,
        )

        # Only synthesis can be cut off.
        hit_limit = ops.zeros(ops.shape(frames), "bool")

        return self._output(decoded, frames, hit_limit, training, noise)

    def synthesize(
        self,
        labels: Tensor,
        counts: Tensor,
        *,
        max_steps: int,
        noise: Tensor,
        reduction: int | None = None,
        compiler: Compiler | None = None,
    ) -> TtsOutput:
        """Predicts mels from the decoder's own frames, until each row's stop token or `max_steps` decoder steps.

        Args:
          labels, counts, reduction: as in a call.
          noise: int [2], the seed of the pre-net's dropout, which is the same for all rows of any batch.
          compiler: compiles the decoder's loop.
        """
        counts = ops.cast(counts, "int32")
        memory = self.encode(ops.cast(labels, "int32"), counts, False, None)
        reduction = reduction or self.settings.reduction
        decoded, frames, hit_limit = decode_autoregressive(
            self.decoder, memory, counts, reduction=reduction, max_steps=max_steps, noise=noise, compiler=compiler
        )

        return self._output(decoded, frames, hit_limit, False, None)

    def _output(
        self, decoded: DecoderOutput, frames: Tensor, hit_limit: Tensor, training: bool, noise: Tensor | None
    ) -> TtsOutput:
        before = mask_padding(decoded.frames, frames)
        mels, linear = self.refine(before, frames, training, noise)
        return TtsOutput(before, mels, linear, decoded.stop, decoded.alignment, frames, hit_limit)
