# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A parameter of a model as a segment of an optimizer: what it may be, its gradients, rates and moments,
and what the program writes to it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Union

import torch

from .._errors import InvalidArgument, InvalidUsage
from .._optimizer import Optimizer, Segment
from ._memory_order import flat
from ._replica import bare_name

_SIXTEEN_BITS = (torch.float16, torch.bfloat16)
# Rates of groups that keep their ratio differ by roundings of the scheduler.
_SAME_RATIO = 1e-12
# Elements that PyTorch converts at a time: they stay in the cache, and no other threads are woken for them.
_PIECE = 32768

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class WrittenBetweenSyncs(InvalidUsage):
    """Ranks would disagree for ever, if a step began from what one of them has written."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where an optimizer has a parameter."""

    tensor: torch.Tensor
    name: str  # "" if it has none
    number: int  # among those of all groups
    group_index: int
    index: int

    def __str__(self) -> str:
        if self.name:
            return f"parameter '{self.name}' of shape {tuple(self.tensor.shape)}"
        return f"parameter {self.index} of group {self.group_index} of shape {tuple(self.tensor.shape)}"

    def check_moment(self, key: str, values: Any) -> None:
        """Refuses what can be no `exp_avg` or `exp_avg_sq` of the parameter."""
        if not isinstance(values, torch.Tensor) or values.shape != self.tensor.shape:
            shape = tuple(getattr(values, "shape", ()))
            raise InvalidArgument(f"{key} of {self} has shape {shape}: it must have the parameter's")
        is_variance = key == "exp_avg_sq"
        if not values.isfinite().all() or (is_variance and (values < 0).any()):
            raise InvalidArgument(
                f"{key} of {self} has elements that are {'negative or ' if is_variance else ''}not finite: "
                "write finite ones, or load an earlier state"
            )

    @staticmethod
    def all_of(groups: Sequence[Dict[str, Any]]) -> List[Place]:
        places: List[Place] = []
        for group_index, group in enumerate(groups):
            # A model that is wrapped or compiled has the same parameters as before.
            names = group.get("param_names") or [""] * len(group["params"])
            for index, (tensor, name) in enumerate(zip(group["params"], names)):
                places.append(Place(tensor, bare_name(name), len(places), group_index, index))
        return places


class Parameter:
    """A parameter of the model, which is segment `number` of the optimizer.

    Steps update an array of float32: the parameter itself, or a master copy if it has 16 bits. The
    version of a tensor does not count what is written through `data`, so its bits are compared with
    those that the last step left: with the master, or with a copy if steps of 0/1 Adam begin from
    what an earlier one kept. A parameter of float32 that steps update in place needs no comparison.
    """

    def __init__(self, place: Place, group: Dict[str, Any], has_syncs: bool) -> None:
        check_type(place)
        tensor = place.tensor
        mask = mask_of(place, group)
        self.place = place
        self.tensor = tensor
        self._has_syncs = has_syncs
        self._address = tensor.data_ptr()
        self._rates = (1.0, 0.0)  # lr_scale and weight_decay of a new optimizer
        self._flat = flat(tensor)
        self._is_copy = tensor.dtype in _SIXTEEN_BITS
        self._master = self._flat.float() if self._is_copy else self._flat  # what steps update
        keeps = has_syncs and not self._is_copy
        self._written = self._flat.clone() if keeps else None
        self.segment = Segment(
            dense=group["non_freeze"],
            no_trust_ratio=group["no_trust_ratio"],
            rare_rows=group["rare_rows"],
            mask=None if mask is None else _bits(mask, tensor),
            parameters=self._master,
            parameter_copy=self._flat if self._is_copy else None,
        )

    def is_changed_by(self, groups: Sequence[Dict[str, Any]]) -> bool:
        """Tells if groups have options for it that the library's optimizer cannot change."""
        group, own = groups[self.place.group_index], self.segment
        wanted = (group["non_freeze"], group["no_trust_ratio"], group["rare_rows"])
        return wanted != (own.dense, own.no_trust_ratio, own.rare_rows)

    def __str__(self) -> str:
        return str(self.place)

    def set_rates(
        self, native: Optimizer, number: int, group: Dict[str, Any], greatest: float
    ) -> None:
        """Gives the group's rates to segment `number`, unless it has them."""
        lr_scale, _ = self._rates
        if not self.tensor.requires_grad:
            lr_scale = 0.0
        elif greatest > 0:
            ratio = float(group["lr"]) / greatest
            if abs(ratio - lr_scale) > _SAME_RATIO * lr_scale:
                lr_scale = ratio
        rates = (lr_scale, float(group["weight_decay"]))
        if rates != self._rates:
            native.set_rates(number, lr_scale=lr_scale, weight_decay=rates[1])
            self._rates = rates

    def note_write(self) -> None:
        """Tells PyTorch that the library has written to the parameter, so that a backward pass through
        what it was is an error."""
        self._flat[:0].zero_()
        if self._written is not None:
            self._written.copy_(self._flat)

    def check_place(self) -> None:
        if self.tensor.data_ptr() != self._address:
            raise InvalidUsage(
                f"{self} has moved in memory since the first step: copy into it, instead of replacing "
                "its data"
            )

    def was_written(self) -> Union[bool, torch.Tensor]:
        """Tells if the program has written to it since the last step: on a device a tensor, so that one
        wait does for all parameters."""
        if not self._is_copy and self._written is None:
            return False
        return differ(self._left, self._flat)

    @property
    def _left(self) -> torch.Tensor:
        """The values that the last step left."""
        return self._master if self._written is None else self._written

    def take_over(self, native: Optimizer, number: int) -> None:
        """Makes what the program has written, such as a checkpoint loaded into the model or a clipped
        weight, what the next step begins from. Elements that it left keep the bits of their master."""
        if self._has_syncs:
            try:
                native.set_rates(number)  # between two syncs an error, on all ranks alike
            except InvalidUsage as error:
                raise WrittenBetweenSyncs(
                    f"{self} was written to between two syncs of 0/1 Adam: call synchronize() first"
                ) from error
        values = self._master
        if self._is_copy:
            values = torch.where(written_elements(self._left, self._flat), self._flat.float(), self._master)
        if self._has_syncs:  # steps start from the parameters of the last sync
            if not values.isfinite().all():
                raise InvalidArgument(f"{self} has elements that are not finite: write finite ones")
            native.set_moment("x_sync", values, number)
        if self._is_copy:
            self._master.copy_(values)
        self.note_write()

    def hand_over(
        self, native: Optimizer, number: int, inverse_scale: Optional[torch.Tensor]
    ) -> None:
        """Gives the gradient of segment `number` to the next step."""
        values = gradient_of(self.place, inverse_scale)
        if values is None:
            native.add_gradient(number, None, self._gradient_type(inverse_scale))
        else:
            native.add_gradient(number, values)

    def moment(self, native: Optimizer, number: int, name: str) -> torch.Tensor:
        """A copy of a moment, in the form of the parameter."""
        values = torch.empty_like(self.tensor, dtype=torch.float32, requires_grad=False)
        native.get_moment(name, flat(values), number)
        return values

    def set_moment(self, native: Optimizer, number: int, name: str, values: torch.Tensor) -> None:
        ordered = torch.empty_like(self.tensor, dtype=torch.float32, requires_grad=False)
        native.set_moment(name, flat(ordered.copy_(values)), number)

    def _gradient_type(self, inverse_scale: Optional[torch.Tensor]) -> str:
        dtype = self.tensor.dtype if inverse_scale is None else torch.float32
        return str(dtype).rsplit(".", maxsplit=1)[-1]


def gradient_of(place: Place, inverse_scale: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """The gradient of a parameter, unscaled, its elements in the parameter's order in memory; None if it
    has none."""
    gradient = place.tensor.grad
    if gradient is None:
        return None
    if gradient.layout != torch.strided:
        raise InvalidArgument(
            f"the gradient of {place} is sparse: make the embedding with sparse=False"
        )
    if gradient.stride() != place.tensor.stride():
        gradient = torch.empty_like(place.tensor).copy_(gradient)
    values = flat(gradient)
    if inverse_scale is None:
        return values
    # Unscaled numbers can be too small for 16 bits.
    return values.float().mul_(inverse_scale.to(values.device))


def mask_of(place: Place, group: Dict[str, Any]) -> Optional[torch.Tensor]:
    """The exp_avg_mask of a parameter's group."""
    mask: Optional[torch.Tensor] = group["exp_avg_mask"]
    shape = place.tensor.shape
    if mask is not None and (len(group["params"]) != 1 or mask.shape != shape):
        raise InvalidArgument(
            f"an exp_avg_mask of shape {tuple(mask.shape)} must be that of a group of one "
            f"parameter, and have its shape {tuple(shape)}"
        )
    return mask


def take_over_writes(parameters: Sequence[Parameter], native: Optimizer) -> None:
    """Takes over what the program has written to parameters since the last step."""
    for parameter in parameters:
        parameter.check_place()
    found = answers([parameter.was_written() for parameter in parameters])
    for number, (parameter, is_written) in enumerate(zip(parameters, found)):
        if is_written:
            parameter.take_over(native, number)


def answers(found: Sequence[Union[bool, torch.Tensor]]) -> List[bool]:
    """The results of tests; those on a device take one wait for all."""
    on_device = [each for each in found if isinstance(each, torch.Tensor)]
    from_device = iter(torch.stack(on_device).tolist() if on_device else [])
    return [next(from_device) if isinstance(each, torch.Tensor) else each for each in found]


def check_kind(place: Place) -> None:
    """Refuses what has no elements of its own in memory, of which all ranks could have the same."""
    tensor = place.tensor
    if torch.nn.parameter.is_lazy(tensor):
        who = place.name or f"parameter {place.index} of group {place.group_index}"
        raise InvalidArgument(f"{who} is not initialized: run the model on one batch first")
    who = str(place)
    if any(base.__name__ == "DTensor" for base in type(tensor).__mro__):
        raise InvalidArgument(
            f"{who} is a DTensor: FSDP2 and tensor parallelism keep parts of it on other ranks, and "
            "the optimizers need whole parameters on each: use torch.optim.AdamW with them, or the "
            "optimizer with a model that is not sharded"
        )
    if getattr(tensor, "_is_flat_param", False) or getattr(tensor, "_fsdp_flattened", False):
        raise InvalidArgument(
            f"{who} belongs to FSDP, which keeps a part of it on each rank, and the optimizers need "
            "whole parameters: use torch.optim.AdamW with FSDP, or do not wrap the model"
        )
    if tensor.is_meta:
        raise InvalidArgument(
            f"{who} is on the device 'meta', so it has no elements: call the model's to_empty() and "
            "initialize it before making the optimizer"
        )
    if tensor.is_quantized:
        raise InvalidArgument(f"{who} is quantized: pass the optimizer only parameters that train")
    if tensor.layout != torch.strided:
        raise InvalidArgument(
            f"{who} has the layout {tensor.layout}, but must be dense: make it from to_dense()"
        )
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and hasattr(
        tensor, "__tensor_flatten__"
    ):
        raise InvalidArgument(
            f"{who} is a {type(tensor).__name__}, whose elements are in other tensors: pass the "
            "optimizer dense parameters of torch.nn.Parameter"
        )
    if tensor.requires_grad:
        check_type(place)
    flat(tensor, who)


def check_type(place: Place) -> None:
    dtype = place.tensor.dtype
    if dtype != torch.float32 and dtype not in _SIXTEEN_BITS:
        raise InvalidArgument(
            f"{place} has elements of {dtype}, but must have float32, float16 or bfloat16"
        )


def differ(left: torch.Tensor, now: torch.Tensor) -> Union[bool, torch.Tensor]:
    """Tells if a parameter is no longer what was left in it, in its type or in float32; on a device a
    tensor."""
    if now.device.type != "cpu":
        return written_elements(left, now).any()
    if left.dtype == now.dtype:
        return not _same_bytes(left, now)
    pieces = zip(left.split(_PIECE), now.split(_PIECE))
    return not all(_same_bytes(one.to(other.dtype), other) for one, other in pieces)


def written_elements(left: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
    """The elements that the program has written."""
    return _as_bits(left.to(now.dtype)) != _as_bits(now)


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tells if two tensors in host memory are equal; that of PyTorch takes 2 to 4 times as long."""
    size = one.numel() * one.element_size()
    return bool(_memcmp(one.data_ptr(), other.data_ptr(), size) == 0)


def _as_bits(values: torch.Tensor) -> torch.Tensor:
    """Numbers as integers, so that one that is not a number equals itself."""
    return values.view(torch.int32 if values.element_size() == 4 else torch.int16)


def _bits(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A bit per element, in the order of `like` in memory."""
    return packed_bits(flat(torch.empty_like(like, dtype=torch.uint8).copy_(mask != 0)))


def packed_bits(elements: torch.Tensor) -> torch.Tensor:
    """A bit for each element of 0 or 1, in bytes in host memory, as masks of the library are."""
    padded = torch.zeros((elements.numel() + 7) // 8 * 8, dtype=torch.uint8)
    padded[: elements.numel()] = elements
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)
    return (padded.view(-1, 8) * weights).sum(1).to(torch.uint8)
