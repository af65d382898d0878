# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Structures of the C API with their initial content, and with options by their Python names."""

from __future__ import annotations

import ctypes
import re
from typing import Any, Dict, Mapping, Type, TypeVar

from . import _native
from ._buffers import data_type
from ._library import lib
from ._types import Structure

AnyStructure = TypeVar("AnyStructure", bound=Structure)

# The head of each configuration, which onebitStructInit fills.
_HEAD = ("size", "magic", "version")

# How members that C declares as integers are read.
_READERS: Dict[str, Any] = {
    "mode": _native.Mode.of,
    "collective": _native.Collective.of,
    "scaleRule": _native.ScaleRule.of,
    "residualType": data_type,
    "memory": _native.Memory.of,
    "codec": _native.Codec.of,
    "values": _native.SparseValues.of,
    "algorithm": _native.Algorithm.of,
    "variant": _native.Variant.of,
    "parameterCopyType": data_type,
    "transport": str.encode,
}


def new(structure: Type[AnyStructure]) -> AnyStructure:
    """A structure as the initialiser macro of C makes it."""
    made = structure()
    lib.onebitStructInit(structure.KIND, ctypes.byref(made), ctypes.sizeof(made))
    return made


def configured(structure: Type[AnyStructure], options: Mapping[str, Any]) -> AnyStructure:
    """A configuration with these options, named as in Python: tensor_id is tensorId. None leaves a
    default. What an option points to must outlive the configuration."""
    made = new(structure)
    known = {python_name(name): name for name, *_ in structure._fields_ if name not in _HEAD}
    for option, value in options.items():
        if option not in known:
            raise TypeError(f"there is no option {option!r}; there are: {', '.join(known)}")
        if value is not None:
            member = known[option]
            setattr(made, member, _READERS.get(member, lambda same: same)(value))
    return made


def python_name(member: str) -> str:
    """tensorId is tensor_id."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1].lower(), member)
