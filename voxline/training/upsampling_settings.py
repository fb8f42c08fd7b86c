"""Sizes of HiFi-GAN's upsampling (Kong et al. 2020), which vocoders and VITS share. The defaults are those of V1."""

from typing import Annotated, Literal, Self

import pydantic

from voxline.settings import Settings

Channels = Annotated[int, pydantic.Field(ge=1, le=8192)]
Kernel = Annotated[int, pydantic.Field(ge=1, le=101)]
Rate = Annotated[int, pydantic.Field(ge=1, le=64)]


class UpsamplingSettings(Settings):
    """Transposed convolutions, each with residual blocks behind it."""

    channels: Channels = pydantic.Field(512, description="channels before the first upsampling; each halves them")
    upsample_rates: tuple[Rate, ...] = pydantic.Field(
        (8, 8, 2, 2),
        min_length=1,
        max_length=8,
        description="factors of upsampling; their product, times istft_hop and bands, is the hop",
    )
    upsample_kernels: tuple[Kernel, ...] = pydantic.Field(
        (16, 16, 4, 4), min_length=1, max_length=8, description="kernel sizes of the transposed convolutions"
    )
    residual_kernels: tuple[Kernel, ...] = pydantic.Field(
        (3, 7, 11), min_length=1, max_length=8, description="kernel sizes of the residual blocks; odd"
    )
    residual_dilations: tuple[tuple[Rate, ...], ...] = pydantic.Field(
        ((1, 3, 5), (1, 3, 5), (1, 3, 5)), description="dilations of each residual block"
    )
    residual_block: Literal["double", "single"] = pydantic.Field(
        "double", description="double: after each dilated convolution one without dilation (V1, V2); single: none (V3)"
    )

    def frames_around(self, reach: int) -> int:
        """Frames on each side of a step that it depends on, from the last layer to the first convolution.

        Args:
          reach: steps behind the last upsampling that it depends on, on each side.

        >>> UpsamplingSettings().frames_around(3)
        14
        """
        # Each residual block reaches as far as its convolutions do together.
        kernels_and_dilations = list(zip(self.residual_kernels, self.residual_dilations, strict=True))
        for rate, kernel in reversed(list(zip(self.upsample_rates, self.upsample_kernels, strict=True))):
            undilated = self.residual_block == "double"
            reach += max(
                size // 2 * sum(dilation + undilated for dilation in dilations)
                for size, dilations in kernels_and_dilations
            )
            reach = -(-(reach + (kernel + rate) // 2 - 1) // rate)

        # The first convolution, of 7 taps, too.
        return reach + 3

    @pydantic.field_validator("residual_kernels")
    @classmethod
    def _odd(cls, kernels: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(map(check_odd, kernels))

    @pydantic.model_validator(mode="after")
    def _check_layers(self) -> Self:
        # Lists that belong together have the same length.
        if len(self.upsample_rates) != len(self.upsample_kernels):
            raise ValueError(
                f"upsample_rates has {len(self.upsample_rates)} numbers and upsample_kernels "
                f"{len(self.upsample_kernels)}; give one kernel for each rate"
            )

        for rate, kernel in zip(self.upsample_rates, self.upsample_kernels, strict=True):
            if kernel < rate or (kernel - rate) % 2:
                raise ValueError(
                    f"upsample_kernels has {kernel} for a rate of {rate}; a rate plus an even number is accepted"
                )

        if len(self.residual_dilations) != len(self.residual_kernels):
            raise ValueError(
                f"residual_dilations has {len(self.residual_dilations)} lists and residual_kernels "
                f"{len(self.residual_kernels)} numbers; give one list for each kernel"
            )

        if self.channels % (1 << len(self.upsample_rates)):
            raise ValueError(
                f"channels is {self.channels} and is halved {len(self.upsample_rates)} times; multiples of "
                f"{1 << len(self.upsample_rates)} are accepted"
            )

        return self


def check_odd(kernel: int) -> int:
    """Refuses a kernel without a center.

    Raises:
      ValueError: it is even.
    """
    if kernel % 2 == 0:
        raise ValueError(f"a kernel of {kernel} has no center; odd numbers are accepted")
    return kernel
