# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What `state` and `state_dict()` of the optimizers hold: moments of each parameter for PyTorch's tools,
and the exact state of the library, from which training continues."""

from __future__ import annotations

import codecs
import copy
import json
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, MutableMapping, Optional
from typing import Sequence, Tuple

import torch

from .._communicator import Communicator
from .._errors import Corrupt, InvalidArgument, InvalidUsage
from .._native import RedOp, StateKind
from .._optimizer import Optimizer
from ._memory_order import flat, memory_order
from ._parameter import Parameter

MOMENTS = {"exp_avg": "m", "exp_avg_sq": "v"}
_OWN = ("step", *MOMENTS, "onebit")


class Packed(int):
    """A part of the exact state, under "onebit": bytes, whose number is its value.

    It is neither a tensor nor `bytes`, because torch.distributed.checkpoint takes no tensor whose length
    has changed since it was saved, and StateDictOptions(flatten_optimizer_state_dict=True) takes only
    tensors and numbers. Files have plain bytes, which load everywhere, with `weights_only`, too.
    """

    _data: bytes

    def __new__(cls, data: bytes = b"") -> Packed:
        made = super().__new__(cls, len(data))
        made._data = data
        return made

    def __bytes__(self) -> bytes:
        return self._data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (bytes, Packed)) and self._data == bytes(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._data)

    def __copy__(self) -> Packed:
        return self

    def __deepcopy__(self, _memo: Any) -> Packed:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        if protocol >= 3:
            return bytes, (self._data,)
        # As pickle itself writes bytes in the protocol of PyTorch's files.
        return codecs.encode, (self._data.decode("latin1"), "latin1")

    def __repr__(self) -> str:
        return f"<{len(self._data)} bytes of an optimizer's state>"


def copied_to(entry: Mapping[str, Any], device: torch.device) -> Dict[str, Any]:
    """A copy of what a program has added to the state of a parameter, with its tensors on a device."""
    copied = {key: copy.deepcopy(value) for key, value in entry.items() if key not in _OWN}
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in copied.items()}


def bytes_of(given: Any) -> bytes:
    """The bytes of a part, which tools may have made a tensor.

    Raises:
        TypeError, ValueError: it is something else.
    """
    if isinstance(given, torch.Tensor):
        if given.dtype != torch.uint8:
            raise TypeError(f"it is a tensor of {given.dtype}, not of bytes")
        return given.detach().cpu().contiguous().numpy().tobytes()
    if not isinstance(given, (bytes, bytearray, memoryview, Packed)):
        raise TypeError(f"it is of the type {type(given).__name__}, not bytes")
    return bytes(given)


if TYPE_CHECKING:
    _Mapping = Dict[str, Any]
else:

    class _Mapping(MutableMapping, dict):  # pylint: disable=abstract-method
        """A dictionary whose methods go by those that a class of it defines."""


class ParameterState(_Mapping):
    """`state[parameter]` of an optimizer: `step`, `exp_avg` and `exp_avg_sq`, as of torch.optim.Adam, and
    what the program has added. Under "onebit" it has no bytes: making them is collective, so
    state_dict() does it. The key tells PyTorch's tools that a state has it.

    The library has the moments, so a tensor is a copy as of when it was read. What the program writes
    to it before the next step is taken over by that step.
    Tools ask if it is a `dict`, so it is one, whose own storage stays empty.
    """

    def __init__(self, tensor: torch.Tensor, added: Optional[Mapping[str, Any]] = None) -> None:
        self._tensor = tensor
        self._of: Optional[Tuple[Optimizer, int, Parameter]] = None
        self._read: Dict[str, Tuple[torch.Tensor, torch.Tensor]] = {}  # and what it was then
        self._added: Dict[str, Any] = dict(added or {})

    def attach(self, native: Optimizer, number: int, parameter: Parameter) -> None:
        """The library has the state from now on."""
        is_first = self._of is None
        self._of = (native, number, parameter)
        if is_first:
            self.write_back()

    def write_back(self) -> None:
        """Takes over what the program has written, and forgets what it has read."""
        if self._of is None:
            return
        native, number, parameter = self._of
        for name, (tensor, was) in self._read.items():
            if torch.equal(tensor, was):
                continue
            if name == "step":
                raise InvalidUsage(
                    f"state['step'] of {parameter} was written to, but it counts the steps: make a new "
                    "optimizer, or call rewarm()"
                )
            parameter.place.check_moment(name, tensor)
            parameter.set_moment(native, number, MOMENTS[name], tensor)
        self.forget()

    def forget(self) -> None:
        self._read.clear()

    def replace_added(self, entry: Mapping[str, Any]) -> None:
        """Takes the program's own entries from a loaded state, in place of those from before."""
        self._added = copied_to(entry, self._tensor.device)

    @property
    def added(self) -> Dict[str, Any]:
        """The program's own entries."""
        return self._added

    def __getitem__(self, key: str) -> Any:
        if key == "onebit":
            return Packed()
        if key not in _OWN:
            return self._added[key]
        if key not in self._read:
            value = self._now(key)
            self._read[key] = (value, value.clone())
        return self._read[key][0]

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in _OWN:
            self._added[key] = value
            return
        now = self[key]
        if key == "onebit":
            if value != now:
                raise InvalidUsage("state['onebit'] cannot be written to: use load_state_dict()")
            return
        if not isinstance(value, torch.Tensor) or value.shape != now.shape:
            raise InvalidArgument(f"state['{key}'] must be a tensor of shape {tuple(now.shape)}")
        if value is not now:
            now.copy_(value)

    def __delitem__(self, key: str) -> None:
        if key in _OWN:
            raise InvalidUsage(
                f"state['{key}'] cannot be removed, because the library has it: make a new optimizer"
            )
        del self._added[key]

    def __contains__(self, key: object) -> bool:
        return key in _OWN or key in self._added

    def __iter__(self) -> Iterator[str]:
        return iter((*_OWN, *self._added))

    def __reversed__(self) -> Iterator[str]:
        return reversed((*_OWN, *self._added))

    def __len__(self) -> int:
        return len(_OWN) + len(self._added)

    # A MutableMapping lacks these methods, and those of dict would see the empty storage.

    def __repr__(self) -> str:
        return repr(dict(self))

    def copy(self) -> Dict[str, Any]:
        return dict(self)

    def __or__(self, other: Any) -> Dict[str, Any]:  # type: ignore[override]
        return {**self, **other}

    def __ror__(self, other: Any) -> Dict[str, Any]:  # type: ignore[override]
        return {**other, **self}

    def __ior__(self, other: Any) -> ParameterState:  # type: ignore[override,misc]
        self.update(other)
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return OrderedDict, (list(self.items()),)  # which torch.load allows with weights_only

    def _now(self, key: str) -> torch.Tensor:
        if self._of is None:  # before the first step
            if key == "step":
                return torch.tensor(0.0)
            return torch.zeros_like(self._tensor, dtype=torch.float32, requires_grad=False)
        native, number, parameter = self._of
        if key == "step":
            return torch.tensor(float(native.stats().step))
        return parameter.moment(native, number, MOMENTS[key])


@dataclass(frozen=True)
class Blobs:
    """States of the library: of ranks by their numbers, and of all ranks under -1."""

    ranks: int
    agree: bool  # ranks had the same parameters and moments: they were not between two syncs
    of: Dict[int, bytes]

    @staticmethod
    def exported(native: Optimizer, kind: str, is_between_syncs: bool) -> Blobs:
        """The states of a kind: see OnebitOptimizer.state_dict."""
        communicator = native.communicator
        if kind == "global":
            of = {-1: native.export_state(StateKind.GLOBAL)}
            return Blobs(communicator.size, True, of)
        own = native.export_state(StateKind.RANK)
        if kind == "rank":
            return Blobs(communicator.size, not is_between_syncs, {communicator.rank: own})
        of = {-1: native.export_state(StateKind.GLOBAL)}
        if is_between_syncs:  # for the state of all, ranks have made a sync that training does not make
            native.import_state(torch.frombuffer(bytearray(own), dtype=torch.uint8))
        of.update(enumerate(_gathered(communicator, own)))
        return Blobs(communicator.size, not is_between_syncs, of)

    def chosen(self, communicator: Communicator) -> bytes:
        """The one from which this rank continues."""
        if self.ranks == communicator.size and communicator.rank in self.of:
            return self.of[communicator.rank]
        # If it is that of another rank, the library says so.
        return self.of[-1] if -1 in self.of else next(iter(self.of.values()))

    def packed(self) -> bytes:
        """All of them in one piece: states of ranks differ in their residuals only, so each is
        what it does not share with the first one."""
        table, pieces = [], []
        first = b""
        for number, blob in self.of.items():
            before, after = _shared(first, blob)
            first = first or blob
            pieces.append(blob[before : len(blob) - after])
            table.append([number, before, len(pieces[-1]), after])
        header = json.dumps({"ranks": self.ranks, "agree": self.agree, "table": table})
        return b"".join([header.encode(), b"\n", *pieces])

    @staticmethod
    def unpacked(data: bytes) -> Blobs:
        head, _, rest = data.partition(b"\n")
        try:
            header = json.loads(head)
            of: Dict[int, bytes] = {}
            first, position = b"", 0
            for number, before, own, after in header["table"]:
                piece = rest[position : position + own]
                blob = first[:before] + piece + first[len(first) - after :]
                first = first or blob
                position += own
                of[number] = blob
            if position != len(rest) or not of:
                raise ValueError(f"it has {len(rest)} bytes instead of {position}")
            return Blobs(header["ranks"], header["agree"], of)
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"the optimizer's state is damaged: {error}") from error


@dataclass(frozen=True)
class Part:
    """What the state of one parameter has under "onebit": a part of the packed states, and what says
    that it is of the right parameter."""

    position: int
    parts: int
    name: str
    shape: List[int]
    digest: int  # of the parameter's elements
    data: bytes
    order: Optional[List[int]] = None  # memory_order; None in states that do not have it

    @staticmethod
    def divided(data: bytes, parameters: Sequence[Parameter]) -> List[Packed]:
        """Each parameter has its part, so that writers of checkpoints share the work."""
        parts = len(parameters)
        divided = []
        for position, parameter in enumerate(parameters):
            start, end = (len(data) * k // parts for k in (position, position + 1))
            header = {
                "position": position,
                "parts": parts,
                "name": parameter.place.name,
                "shape": list(parameter.tensor.shape),
                "digest": digest_of(parameter.tensor),
                "order": memory_order(parameter.tensor),
            }
            # A rank loads what is its own, but all of them are to refuse a state that is damaged.
            head = json.dumps({**header, "checksum": _checksum(header, data[start:end])})
            divided.append(Packed(head.encode() + b"\n" + data[start:end]))
        return divided

    @staticmethod
    def read(given: Any, key: Any) -> Part:
        try:
            head, _, data = bytes_of(given).partition(b"\n")
            header = json.loads(head)
            if header.pop("checksum", None) not in (None, _checksum(header, data)):
                raise ValueError("it has another checksum")
            return Part(**header, data=data)
        except (ValueError, TypeError, AttributeError) as error:
            raise Corrupt(f"the state of parameter {key} is damaged: {error}") from error

    def __str__(self) -> str:
        return f"'{self.name}'" if self.name else f"one of shape {tuple(self.shape)}"


def compare_over_ranks(
    communicator: Communicator,
    described: Sequence[str],
    digests: Sequence[int] = (),
    what: str = "parameter",
) -> None:
    """Refuses, on all ranks, parameters that differ between ranks, or come in another order: then the
    digests of their elements are the same ones in another order. Collective.

    Args:
        what: names what is compared, in the error.
    """
    parameters = list(described)
    lines = _broadcast(communicator, "\n".join(parameters).encode(), 0).decode().split("\n")
    first_digests = json.loads(_broadcast(communicator, json.dumps(list(digests)).encode(), 0))
    if parameters == lines and sorted(digests) == sorted(first_digests):
        for position, digest in enumerate(digests):
            if digest != first_digests[position]:
                there = first_digests.index(digest)
                parameters[position] += f", with the elements of parameter {there} of rank 0"
    count = max(len(lines), len(parameters))
    padded = [*parameters, *["missing"] * (count - len(parameters))]
    expected = [*lines, *["missing"] * (count - len(lines))]
    differing = [k for k in range(count) if padded[k] != expected[k]]
    none = 2**62
    first = torch.tensor([differing[0] if differing else none])
    communicator.all_reduce(first, op=RedOp.MIN)
    position = int(first)
    if position == none:
        return
    who = communicator.rank if position in differing else communicator.size
    culprit = torch.tensor([who])
    communicator.all_reduce(culprit, op=RedOp.MIN)
    own = padded[position] if position < count else "missing"
    there = _broadcast(communicator, own.encode(), int(culprit)).decode()
    here = expected[position] if position < count else "missing"
    raise InvalidArgument(
        f"{what} {position} on rank {int(culprit)} is {there}, but on rank 0 {here}: all ranks must "
        f"pass the same {what}s in the same order; nothing was copied"
    )


def _checksum(header: Mapping[str, Any], data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(json.dumps(header).encode()))


def digest_of(tensor: torch.Tensor) -> int:
    """A checksum of the elements, which tells parameters of one shape apart."""
    return zlib.crc32(flat(tensor).view(torch.uint8).cpu().numpy().data)


def _broadcast(communicator: Communicator, data: bytes, root: int) -> bytes:
    """The bytes that `root` has."""
    length = torch.tensor([len(data)])
    communicator.broadcast(length, root)
    if communicator.rank != root:
        values = torch.empty(int(length), dtype=torch.uint8)
    else:
        values = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0)
    if int(length) > 0:
        communicator.broadcast(values, root)
    return data if communicator.rank == root else values.numpy().tobytes()


def _gathered(communicator: Communicator, own: bytes) -> List[bytes]:
    """The states of all ranks, of which each sends what it does not share with rank 0's."""
    first = _broadcast(communicator, own, 0)
    gathered = [first]
    for rank in range(1, communicator.size):
        before, after = _shared(first, own)
        piece = own[before : len(own) - after]
        packed = _broadcast(communicator, f"{before} {after}\n".encode() + piece, rank)
        head, _, piece = packed.partition(b"\n")
        before, after = map(int, head.split())
        gathered.append(first[:before] + piece + first[len(first) - after :])
    return gathered


def _shared(first: bytes, second: bytes) -> Tuple[int, int]:
    """How many bytes at their beginnings and at their ends are equal."""
    count = min(len(first), len(second))
    if count == 0:
        return 0, 0
    a, b = (torch.frombuffer(bytearray(each), dtype=torch.uint8) for each in (first, second))
    differ = (a[:count] != b[:count]).to(torch.uint8)
    if not differ.any():
        return count, 0
    before = int(differ.argmax())
    differ = (a[len(a) - count :] != b[len(b) - count :]).to(torch.uint8)
    after = int(differ.flip(0).argmax()) if differ.any() else count
    return before, min(after, count - before)
