# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How the hook compresses parameters: its options, and compressors that have them."""

from __future__ import annotations

import warnings
from typing import Any, Dict, Optional, Union

import torch

from .._communicator import Communicator
from .._compressor import Compressor
from .._errors import InvalidArgument
from .._native import Codec, Collective, Mode

#: Element types that codecs compress.
COMPRESSIBLE = (torch.float32, torch.float16, torch.bfloat16)
_SPARSE = (Codec.TOPK, Codec.RANDK)
# With 1 or 2 bits AdamW and Muon end at losses that are 5 to 18 % higher.
_COARSE = (Codec.SIGN, Codec.INT2)


def warn_of_coarse(compression: Compression, stacklevel: int) -> None:
    """Warns of a codec that does not suit gradients in usual optimizers, at a level of the caller."""
    codec = compression.codec
    # A small GPT that ended at a loss of 0.175 with int8 did so at 0.223 with signs, 1.38 with topk and 3.69 with randk.
    if compression.mode == Mode.PLAIN and codec in (*_SPARSE, *_COARSE):
        warnings.warn(
            f'codec="{codec}" has no error feedback here, so what it leaves out of a gradient is lost, and the '
            'loss stays higher: use "int8" or "fp4", or mode="ef" of onebit.torch.State or onebit.torch.fsdp',
            stacklevel=stacklevel + 1,
        )
    elif codec in _COARSE:
        warnings.warn(
            f'codec="{codec}" under an optimizer with a live variance, such as AdamW, or Muon ends at a loss that '
            'is 5 to 18 % higher: codec="fp4" costs 0.1 to 0.9 %, and the optimizers of onebit.torch.optim are made '
            "for signs",
            stacklevel=stacklevel + 1,
        )


class Compression:
    """Options of a State, which are the same for all its parameters.

    Raises:
        InvalidArgument: there is no such codec, options do not go together, or `levels` is out of range.
    """

    def __init__(
        self,
        codec: Union[str, Codec],
        mode: Union[str, Mode],
        block: Optional[int],
        k: Optional[int],
        levels: Optional[int],
        *,
        is_of_weights: bool = False,
    ) -> None:
        if codec == "auto":
            raise InvalidArgument(
                '"auto" is for onebit.torch.State, the hook of DistributedDataParallel: name a codec here, such '
                'as "int8" or "fp4"; None is full precision'
            )
        self.codec = Codec.of(codec)
        self.mode = Mode.of(mode)
        #: Sends what has changed since the last call.
        self.is_lossless = self.codec == Codec.LOSSLESS
        if self.is_lossless and not is_of_weights:
            raise InvalidArgument(
                'codec="lossless" is for weights, few of which change from call to call, and gradients all do: use '
                'it for gather of onebit.torch.fsdp.compress_shards or by onebit.torch.WeightSync, and another '
                'codec here, such as "int8" or "fp4"'
            )
        if self.codec == Codec.INT8_STOCHASTIC and self.mode == Mode.EF:
            raise InvalidArgument(
                'codec="int8_stochastic" needs mode="plain": error feedback would bias its averages'
            )
        if k is not None and self.codec not in _SPARSE:
            raise InvalidArgument(f'k={k} belongs to codec="topk" and codec="randk"')
        if block is not None and self.codec == Codec.BF16:
            raise InvalidArgument(
                f'block={block!r} does not go with codec="bf16", which has no scales: leave out block'
            )
        if isinstance(levels, bool) or levels not in (None, 0, 1, 2):
            raise InvalidArgument(
                f"levels={levels!r} must be None or 0, with which the library decides; 1, with which "
                "every rank sends packets of its own; or 2, with which a host sends one for all its ranks"
            )
        if levels == 2 and block in (0, "tensor"):
            raise InvalidArgument(
                f"levels=2 does not go with block={block!r}, one scale for a parameter, because ranks of "
                "a host send parts of it: leave out block or levels"
            )
        self._levels = levels
        # With one hop, their default for few ranks, packets go from each rank to each other.
        hops = 2 if levels == 2 and self.codec in _SPARSE else None
        self._options: Dict[str, Any] = {
            "codec": self.codec,
            "mode": None if self.is_lossless else self.mode,
            "block": block,
            "k": k,
            "hops": hops,
        }

    def compressor(
        self,
        communicator: Communicator,
        count: int,
        dtype: torch.dtype,
        *,
        device: torch.device,
        tensor_id: Optional[int] = None,
        collective: Collective = Collective.ALL_REDUCE,
        **others: Any,
    ) -> Compressor:
        """A new compressor for a tensor of `count` elements on `device`, as the collective counts them.
        Without a `tensor_id` all ranks make theirs in the same order. `others`: of the Compressor's
        options those that no State has."""
        is_cuda = device.type == "cuda"
        options = {
            **self._options,
            **others,
            "collective": collective,
            "tensor_id": tensor_id,
            "memory": "device" if is_cuda else "host",
            "device": device.index if is_cuda else None,
        }
        if self._levels != 2:
            return Compressor(communicator, count, dtype, levels=self._levels, **options)
        # The library refuses two levels for a tensor that takes one exchange, as short ones do, so it
        # decides first. With two exchanges it has taken one level, and with four two.
        compressor = Compressor(communicator, count, dtype, **options)
        if compressor.stats().exchanges != 2:
            return compressor
        compressor.close()
        return Compressor(communicator, count, dtype, levels=2, **options)
