# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Passes weights on to other processes, version by version, without loss and in few bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, Dict, List, Mapping

import numpy
import torch

from .._communicator import Communicator
from .._compressor import Compressor
from .._errors import InvalidArgument

_ALIGNMENT = 16  # bytes; no element of PyTorch is longer
_VERSION = ""  # the name of the version among the tensors, which no tensor of a module has


@dataclasses.dataclass(frozen=True)
class WeightUpdate:
    """What a call of WeightSync.update has done.

    Attributes:
        version: how many updates the root has begun, this one included; the same on all ranks.
        is_full: all elements were sent, not only those that have changed: it was the first update, ranks did
            not hold the same version, or nearly everything has changed.
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

    An update is atomic: if it fails, on any rank, the tensors of that rank are those of the version before. The
    communicator is then out of use. To go on, with the ranks that are left or with new ones, all of them make
    another communicator and take their object to it (`move`); new ranks make theirs on it.

    The communicator has one rank with the weights, the root, and the readers; of a trainer with several ranks,
    one takes part. Each rank holds the tensors twice more in host memory. Tensors may be of any type, and on
    any device, from which they are copied at each update.

    Attributes:
        communicator: where updates are made.
        version: that of the last update; 0 before.
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
            InvalidArgument: names, shapes or types differ; on all ranks. The text names the first difference.
        """
        self._tensors = {name: tensors[name].detach() for name in sorted(tensors)}
        self._root = root
        self.version = 0
        version = torch.zeros(1, dtype=torch.int64)
        self._agree(communicator)
        self.communicator = communicator
        self._flats = [
            _Flat(communicator, some, tensor_id)
            for tensor_id, some in enumerate(_by_width({**self._tensors, _VERSION: version}))
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
            for flat in self._flats:
                flat.read(self._tensors, self.version)
        full_calls = self._total("full_calls")
        for flat in self._flats:
            self.communicator.broadcast(flat.words, self._root, compressor=flat.compressor)
        if not is_root:
            for flat in self._flats:
                self.version = flat.write(self._tensors, self.version)
        return WeightUpdate(
            self.version, self._total("full_calls") > full_calls, self._total("wire_bytes")
        )

    def move(self, communicator: Communicator, *, root: int = 0) -> None:
        """Continues on another communicator. Collective: all its ranks call it, or create their object.

        Updates go on with what has changed if all its ranks hold the version of the last one.

        Raises:
            InvalidArgument: as when the object is made.
        """
        self._agree(communicator)
        for flat in self._flats:
            flat.compressor.rebind(communicator)
        self.communicator = communicator
        self._root = root

    def _total(self, counter: str) -> int:
        return sum(getattr(flat.compressor.stats(), counter) for flat in self._flats)

    def _agree(self, communicator: Communicator) -> None:
        """Compares names, shapes and types of all ranks."""
        mine = {name: [str(t.dtype), list(t.shape)] for name, t in self._tensors.items()}
        text = json.dumps(mine).encode()
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


class _Flat:
    """Tensors whose elements have as many bytes, as one, with a view for each.

    Words of 2 bytes are sent as bfloat16, others as float32: the codec compares bits, and what neighbours are
    among floating-point numbers holds for integers, too.
    """

    def __init__(
        self, communicator: Communicator, tensors: Mapping[str, torch.Tensor], tensor_id: int
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
            if name == _VERSION:
                view.fill_(version)
            else:
                view.copy_(tensors[name])

    @torch.no_grad()
    def write(self, tensors: Mapping[str, torch.Tensor], version: int) -> int:
        """Writes what was received, and returns the version, if that is here."""
        for name, view in self._views.items():
            if name == _VERSION:
                version = int(view.item())
            else:
                tensors[name].copy_(view)
        return version


def _words_of(tensor: torch.Tensor) -> torch.dtype:
    return torch.bfloat16 if tensor.element_size() <= 2 else torch.float32


def _by_width(tensors: Mapping[str, torch.Tensor]) -> List[Dict[str, torch.Tensor]]:
    """Groups of tensors that are sent as words of one kind, in the same order on all ranks."""
    groups: Dict[torch.dtype, Dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        groups.setdefault(_words_of(tensor), {})[name] = tensor
    return [groups[dtype] for dtype in (torch.bfloat16, torch.float32) if dtype in groups]


def _difference(first: Dict[str, Any], other: Dict[str, Any], rank: int) -> str:
    for name in sorted({*first, *other}):
        if name not in other or name not in first:
            has, lacks = (0, rank) if name in first else (rank, 0)
            return f"rank {has} has a tensor {name!r}, which rank {lacks} does not have"
        if first[name] != other[name]:
            (type_0, shape_0), (type_r, shape_r) = first[name], other[name]
            return (
                f"tensor {name!r} is {type_0} of shape {tuple(shape_0)} on rank 0, "
                f"but {type_r} of shape {tuple(shape_r)} on rank {rank}"
            )
    return "ranks have other tensors"
