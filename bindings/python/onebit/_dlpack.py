# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the tensors of DLPack, for arrays that offer nothing else."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Optional, Tuple

_READ_ONLY = 1  # flag of a versioned tensor
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned of DLPack 1.0. A tensor of earlier versions begins with the tensor."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


@dataclass(frozen=True)
class DlpackTensor:
    """The memory of a tensor, valid as long as `capsule` lives; strides in elements, None for a row."""

    address: int
    dtype_name: str
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]
    is_read_only: bool
    capsule: Any


def dlpack_of(array: Any) -> DlpackTensor:
    """Asks `array` for its tensor. The capsule is not consumed, so its own end frees the tensor."""
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # an array from before DLPack 1.0
        capsule = array.__dlpack__()
    if _is_named(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        tensor, is_read_only = managed.tensor, bool(managed.flags & _READ_ONLY)
    else:
        tensor, is_read_only = _Tensor.from_address(_pointer(capsule, b"dltensor")), False
    lanes = f"x{tensor.dtype.lanes}" if tensor.dtype.lanes != 1 else ""
    name = f"{_CODES.get(tensor.dtype.code, f'code {tensor.dtype.code} of ')}{tensor.dtype.bits}{lanes}"
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    return DlpackTensor(
        (tensor.data or 0) + tensor.byte_offset,
        name,
        tuple(tensor.shape[: tensor.ndim]),
        strides,
        is_read_only,
        capsule,
    )


def _is_named(capsule: Any, name: bytes) -> bool:
    function = ctypes.pythonapi.PyCapsule_IsValid
    function.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return bool(function(capsule, name))


def _pointer(capsule: Any, name: bytes) -> int:
    """Returns the pointer in a capsule of this name; a ValueError for one of another name."""
    function = ctypes.pythonapi.PyCapsule_GetPointer
    function.argtypes, function.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return int(function(capsule, name))
