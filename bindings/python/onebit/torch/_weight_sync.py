# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Passes weights on to other processes, version by version, without loss and in few bytes."""

from __future__ import annotations

import collections.abc
import dataclasses
import hashlib
import json
from typing import Any, Dict, List, Mapping, Optional

import numpy
import torch

from .._communicator import Communicator
from .._compressor import Compressor
from .._errors import InvalidArgument

_ALIGNMENT = 16  # bytes; no element of PyTorch is longer
_FIRST_ID = 1 << 31  # of tensor ids that follow from names, above those that count compressors


@dataclasses.dataclass(frozen=True)
class WeightUpdate:
    """What a call of WeightSync.update has done.

    Attributes:
        version: how many updates the root has begun, this one included; the same on all ranks.
        is_full: some tensors were sent in full: it was the first update, ranks did not hold the same version,
            or nearly everything has changed.
        sent_bytes: by this rank, headers included.
    """

    version: int
    is_full: bool
    sent_bytes: int


class WeightSync:
    """Passes a trainer's weights on to processes that use them, such as those that generate text for it.

        sync = onebit.torch.WeightSync(communicator, model.state_dict())  # on all ranks
        ...
        optimizer.step()                                                  # on the root
        update = sync.update()                                            # on all ranks

    After an update all ranks have the root's tensors, bit for bit. What has not changed since the last one is
    not sent: with AdamW at a rate of 1e-6 to 1e-5 most elements of bfloat16 stay as they are, and the others
    cost about a byte each (codec "lossless"). A reader that does not hold the version before, because it is
    new or has missed one, gets all elements with the next update, as all others then do.

    An update that fails while ranks exchange it leaves the tensors of this rank as they were; nothing is
    written before all has arrived and been checked. The communicator is then out of use. To go on, with the
    ranks that are left or with new ones, all of them make another communicator and take their object to it
    (`move`); new ranks make theirs on it.

    The communicator has one rank with the weights, the root, and the readers; of a trainer with several ranks,
    one takes part. Host memory holds the tensors twice more on each rank, and packets, which on the root may
    become as long. Tensors may be of any type and on any device, between which they are copied at each update.
    Their storage is what counts: make another object after a module was moved to another device or type.

    Attributes:
        communicator: where updates are made.
        version: that of the last update, as the root counts from 1; 0 before.
    """

    def __init__(
        self, communicator: Communicator, tensors: Mapping[str, torch.Tensor], *, root: int = 0
    ) -> None:
        """Collective: ranks compare what they have.

        Args:
            communicator: a onebit.Communicator of the root and all readers.
            tensors: by name, such as module.state_dict() or dict(module.named_parameters()): read on the
                root, written on the others. Names, shapes and types are the same on all ranks, and stay so;
                the order may differ.
            root: the rank that has the weights.

        Raises:
            InvalidArgument: names, shapes, types or roots differ, or something is not a dense tensor; on all
                ranks. The text names the first difference. A second object for tensors of the same names
                takes another communicator, or `close` of the first.
        """
        if not isinstance(tensors, collections.abc.Mapping):
            raise TypeError(
                "WeightSync takes tensors by name, such as model.state_dict(), and not "
                f"a {type(tensors).__name__}"
            )
        self._layout = _layout_of(tensors)
        self.version = 0
        self.communicator = communicator
        self._root = root
        digest = self._agree(communicator, root)
        self._tensors = {name: tensors[name].detach() for name in self._layout}
        version: Dict[Optional[str], torch.Tensor] = {None: torch.zeros(1, dtype=torch.int64)}
        first_id = _FIRST_ID + 2 * (int.from_bytes(digest[:4], "little") >> 2)
        self._flats = [
            _Flat(communicator, some, first_id + k)
            for k, some in enumerate(_by_width({**self._tensors, **version}))
        ]

    def update(self) -> WeightUpdate:
        """Makes the tensors of all ranks those of the root. Collective.

        Raises:
            PeerLost, Timeout, RemoteError, Aborted and others of Communicator: the tensors of this rank are as
                they were, and the communicator is out of use.
        """
        is_root = self.communicator.rank == self._root
        if is_root:
            self.version += 1
            try:
                for flat in self._flats:
                    flat.read(self._tensors, self.version)
            except BaseException:  # the readers are waiting
                self.communicator.abort()
                raise
        full_calls = self._total("full_calls")
        for flat in self._flats:
            self.communicator.broadcast(flat.words, self._root, compressor=flat.compressor)
        if not is_root:
            for flat in self._flats:
                self.version = flat.write(self._tensors, self.version)
        return WeightUpdate(
            self.version, self._total("full_calls") > full_calls, self._total("wire_bytes")
        )

    def move(self, communicator: Communicator, *, root: Optional[int] = None) -> None:
        """Continues on another communicator. Collective: all its ranks call it, or create their object.

        Updates go on with what has changed if all its ranks hold the version of the last one.

        Args:
            root: the rank there that has the weights; None: that of the same number as before.

        Raises:
            InvalidArgument: as when the object is made.
        """
        root = self._root if root is None else root
        self._agree(communicator, root)
        for flat in self._flats:
            flat.compressor.rebind(communicator)
        self.communicator = communicator
        self._root = root

    def close(self) -> None:
        """Frees what the object keeps. Local."""
        for flat in self._flats:
            flat.compressor.close()

    def _total(self, counter: str) -> int:
        return sum(getattr(flat.compressor.stats(), counter) for flat in self._flats)

    def _agree(self, communicator: Communicator, root: int) -> bytes:
        """Compares names, shapes, types and root of all ranks, and returns a digest of the former."""
        layout = json.dumps(self._layout).encode()
        text = json.dumps([root, self._layout]).encode()
        lengths = numpy.zeros(communicator.size, dtype=numpy.int64)
        digests = numpy.zeros((communicator.size, 32), dtype=numpy.uint8)
        lengths[communicator.rank] = len(text)
        digests[communicator.rank] = numpy.frombuffer(hashlib.sha256(text).digest(), numpy.uint8)
        communicator.all_gather(lengths)
        communicator.all_gather(digests)
        for rank in range(1, communicator.size):
            if (digests[rank] == digests[0]).all():
                continue
            pair = []
            for other in (0, rank):
                given = numpy.zeros(lengths[other], dtype=numpy.uint8)
                if other == communicator.rank:
                    given[:] = numpy.frombuffer(text, numpy.uint8)
                communicator.broadcast(given, other)
                pair.append(json.loads(given.tobytes()))
            raise InvalidArgument(f"WeightSync: {_difference(*pair, rank)}")
        for name, (problem, _) in self._layout.items():  # the same on all ranks
            if problem.startswith("not "):
                raise InvalidArgument(f"WeightSync: {name!r} is {problem}: pass dense tensors only")
        if not 0 <= root < communicator.size:
            raise InvalidArgument(f"WeightSync: root is {root}, but ranks are 0 to {communicator.size - 1}")
        return hashlib.sha256(layout).digest()


def _layout_of(tensors: Mapping[str, Any]) -> Dict[str, List[Any]]:
    """Type and shape by name, in the order of names; or, in place of a type, why a tensor cannot be sent."""
    layout: Dict[str, List[Any]] = {}
    for name in sorted(tensors):
        tensor = tensors[name]
        if not isinstance(tensor, torch.Tensor):
            layout[name] = [f"not a tensor, but of type {type(tensor).__qualname__}", []]
        elif tensor.layout != torch.strided or tensor.device.type == "meta":
            layout[name] = ["not dense, or without data", list(tensor.shape)]
        elif any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape)):
            layout[name] = ["not a tensor with memory for each element, but expanded", list(tensor.shape)]
        else:
            layout[name] = [str(tensor.dtype), list(tensor.shape)]
    return layout


class _Flat:
    """Tensors whose elements have as many bytes, as one, with a view for each; None names the version.

    Words of 2 bytes are sent as bfloat16, others as float32: the codec compares bits, and what neighbours are
    among floating-point numbers holds for integers, too.
    """

    def __init__(
        self, communicator: Communicator, tensors: Mapping[Optional[str], torch.Tensor], tensor_id: int
    ) -> None:
        ends, end = [], 0
        for tensor in tensors.values():
            begin = -(-end // _ALIGNMENT) * _ALIGNMENT
            end = begin + tensor.numel() * tensor.element_size()
            ends.append((begin, end))
        size = -(-end // _ALIGNMENT) * _ALIGNMENT
        data = torch.zeros(size, dtype=torch.uint8)
        self._views = {
            name: data[begin:end].view(tensor.dtype).view(tensor.shape)
            for (name, tensor), (begin, end) in zip(tensors.items(), ends)
        }
        dtype = _words_of(next(iter(tensors.values())))
        self.words = data.view(dtype)
        self.compressor = Compressor(
            communicator,
            self.words.numel(),
            dtype,
            codec="lossless",
            collective="broadcast",
            tensor_id=tensor_id,
        )

    @torch.no_grad()
    def read(self, tensors: Mapping[str, torch.Tensor], version: int) -> None:
        for name, view in self._views.items():
            if name is None:
                view.fill_(version)
            else:
                view.copy_(tensors[name])

    @torch.no_grad()
    def write(self, tensors: Mapping[str, torch.Tensor], version: int) -> int:
        """Writes what was received, and returns the version, if that is here."""
        for name, view in self._views.items():
            if name is None:
                version = int(view.item())
            else:
                tensors[name].copy_(view)
        return version


def _words_of(tensor: torch.Tensor) -> torch.dtype:
    return torch.bfloat16 if tensor.element_size() <= 2 else torch.float32


def _by_width(tensors: Mapping[Optional[str], torch.Tensor]) -> List[Dict[Optional[str], torch.Tensor]]:
    """Groups of tensors that are sent as words of one kind, in the same order on all ranks."""
    groups: Dict[torch.dtype, Dict[Optional[str], torch.Tensor]] = {}
    for name, tensor in tensors.items():
        groups.setdefault(_words_of(tensor), {})[name] = tensor
    return [groups[dtype] for dtype in (torch.bfloat16, torch.float32) if dtype in groups]


def _difference(first: List[Any], other: List[Any], rank: int) -> str:
    """What differs between [root, layout] of rank 0 and those of another rank."""
    (root_0, mine), (root_r, theirs) = first, other
    for name in sorted({*mine, *theirs}):
        if name not in theirs or name not in mine:
            has, lacks = (0, rank) if name in mine else (rank, 0)
            return f"rank {has} has a tensor {name!r}, which rank {lacks} does not have"
        if mine[name] != theirs[name]:
            (type_0, shape_0), (type_r, shape_r) = mine[name], theirs[name]
            return (
                f"tensor {name!r} is {type_0} of shape {tuple(shape_0)} on rank 0, "
                f"but {type_r} of shape {tuple(shape_r)} on rank {rank}"
            )
    return f"root is {root_0} on rank 0, but {root_r} on rank {rank}"
