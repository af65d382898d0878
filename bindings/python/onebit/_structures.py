# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Structures of the C API with their initial content, and with options by their Python names."""

from __future__ import annotations

import ctypes
import re
from typing import Any, Dict, Mapping, Type, TypeVar, Union

from . import _native
from ._buffers import data_type
from ._library import lib
from ._types import Structure

AnyStructure = TypeVar("AnyStructure", bound=Structure)

# The head of each configuration, which onebitStructInit fills.
_HEAD = ("size", "magic", "version")


def freeze_step(value: Union[int, str]) -> int:
    """A number of steps, "automatic", "settled" or "never", as C has it."""
    named = {
        "automatic": _native.ONEBIT_FREEZE_AUTOMATIC,
        "settled": _native.ONEBIT_FREEZE_SETTLED,
        "never": _native.ONEBIT_FREEZE_NEVER,
    }
    if isinstance(value, str) and value not in named:
        raise ValueError(f"{value!r} is neither a number of steps nor one of: {', '.join(named)}")
    return named[value] if isinstance(value, str) else value


# Functions that turn an option into the value of its member in C.
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
    "clipNorm": _native.ClipNorm.of,
    "scales": _native.Scales.of,
    "parameterCopyType": data_type,
    "transport": str.encode,
    "block": lambda value: _native.ONEBIT_BLOCK_TENSOR if value == "tensor" else value,
    "freezeStep": freeze_step,
}


def new(structure: Type[AnyStructure]) -> AnyStructure:
    """A structure as C's initialiser macro makes it."""
    made = structure()
    lib.onebitStructInit(structure.KIND, ctypes.byref(made), ctypes.sizeof(made))
    return made


def option_names(structure: Type[Structure]) -> Dict[str, str]:
    """The members of a configuration that a caller may set, by their names in Python."""
    return {python_name(name): name for name, *_ in structure._fields_ if name not in _HEAD}


def configured(structure: Type[AnyStructure], options: Mapping[str, Any]) -> AnyStructure:
    """A configuration with these options, named as in Python: tensor_id is tensorId. None keeps a
    default. What an option points to must outlive the configuration."""
    made = new(structure)
    known = option_names(structure)
    for option, value in options.items():
        if option not in known:
            raise TypeError(f"there is no option {option!r}; the options are: {', '.join(known)}")
        if value is not None:
            member = known[option]
            setattr(made, member, _READERS.get(member, lambda same: same)(value))
    return made


def python_name(member: str) -> str:
    """tensorId is tensor_id."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1].lower(), member)
