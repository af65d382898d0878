# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Describes the memory of a caller's array: address, count, element type, and whether it may be written.

Arrays come in five ways. The first that an object has is taken, so that the one with the most
knowledge decides: PyTorch's methods, which know bfloat16; __cuda_array_interface__;
__array_interface__ (NumPy); the buffer protocol (bytearray, array.array, memoryview, ctypes);
__dlpack__. None of these packages is imported.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

from ._dlpack import dlpack_of
from ._errors import InvalidArgument
from ._native import DataType

#: An array in one of these ways.
Array = Any

ELEMENT_BYTES = {
    DataType.UINT8: 1,
    DataType.INT32: 4,
    DataType.INT64: 8,
    DataType.FLOAT16: 2,
    DataType.FLOAT32: 4,
    DataType.FLOAT64: 8,
    DataType.BFLOAT16: 2,
}

# Types by kind and bytes, as the array interfaces spell them.
_BY_KIND = {
    "u1": DataType.UINT8,
    "i4": DataType.INT32,
    "i8": DataType.INT64,
    "f2": DataType.FLOAT16,
    "f4": DataType.FLOAT32,
    "f8": DataType.FLOAT64,
}
# Kinds of the struct module's characters, which the buffer protocol has.
_KINDS = {
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("efd", "f"),
}


@dataclass(frozen=True)
class Buffer:
    """An array of a caller. `where` names it in errors; `owner` keeps its memory alive."""

    where: str
    address: int
    count: int
    dtype: DataType
    is_writable: bool
    owner: Any

    def written(self) -> Buffer:
        """This buffer, if the library may write to it."""
        if not self.is_writable:
            raise InvalidArgument(
                f"{self.where} is read-only: the result is written to it, so pass a writable "
                "array, or another one as `out`"
            )
        return self

    def sized(self, count: int, why: str) -> Buffer:
        """This buffer, if it has `count` elements, as `why` says."""
        if self.count != count:
            raise InvalidArgument(
                f"{self.where} has {self.count} elements, but needs {count}: {why}"
            )
        return self

    def typed(self, other: Buffer) -> Buffer:
        """This buffer, if its elements are those of `other`."""
        if self.dtype != other.dtype:
            raise InvalidArgument(
                f"{self.where} has elements of {self.dtype} and {other.where} of {other.dtype}: "
                "convert one of them"
            )
        return self


def data_type(value: Any) -> DataType:
    """The element type that `value` names: a DataType, its name, or the type of an array of NumPy,
    ml_dtypes or PyTorch. Raises TypeError."""
    if isinstance(value, DataType):
        return value
    name = (
        value
        if isinstance(value, str)
        else (getattr(value, "name", None) or getattr(value, "__name__", None) or str(value))
    )
    found = DataType.__members__.get(name.rsplit(".", maxsplit=1)[-1].upper())
    if found is None:
        raise TypeError(f"{value!r} is not an element type of onebit: use one of {_names(DataType)}")
    return found


def buffer_of(array: Array, where: str) -> Buffer:
    """Describes an array. Raises TypeError if it is not an array, or has elements of another type,
    and InvalidArgument if its elements do not lie in a row."""
    for attribute, describe in _WAYS:
        if hasattr(array, attribute):
            return describe(array, where)
    try:
        view = memoryview(array)
    except (TypeError, BufferError, ValueError):
        view = None
    if view is not None:
        return _from_memoryview(view, where)
    if hasattr(array, "__dlpack__"):
        return _from_dlpack(array, where)
    raise TypeError(
        f"{where} is {_a(array)}: pass an array, such as one of NumPy or PyTorch, a bytearray or an array.array"
    )


def _names(enumeration: Any) -> str:
    return ", ".join(str(member) for member in enumeration)


def _a(value: Any) -> str:
    return f"of type {type(value).__module__}.{type(value).__qualname__}"


def _refuse_type(where: str, found: Any) -> NoReturn:
    raise TypeError(
        f"{where} has elements of type {found}, which onebit does not know: convert them to one of "
        f"{_names(DataType)}"
    )


def _refuse_layout(where: str, shape: Sequence[int]) -> NoReturn:
    raise InvalidArgument(
        f"{where}, of shape {tuple(shape)}, is not contiguous: its elements must lie in a row "
        "in C order; copy it first (numpy.ascontiguousarray, torch.Tensor.contiguous)"
    )


def _product(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _is_contiguous(shape: Sequence[int], strides: Optional[Sequence[int]], unit: int) -> bool:
    """Tells if elements lie in a row in C order; `unit` is the stride of neighbours, None a row."""
    if strides is None or 0 in shape:
        return True
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != unit:
            return False
        unit *= extent
    return True


def _from_torch(tensor: Any, where: str) -> Buffer:
    if not hasattr(tensor, "element_size") or not hasattr(tensor, "is_contiguous"):
        raise TypeError(f"{where} is {_a(tensor)}, which has data_ptr but is not a tensor")
    try:
        dtype = data_type(tensor.dtype)
    except TypeError:
        _refuse_type(where, tensor.dtype)
    if not tensor.is_contiguous():
        _refuse_layout(where, tensor.shape)
    try:
        address = tensor.data_ptr()
    except RuntimeError as error:  # a sparse tensor, or one of torch.compile
        raise TypeError(f"{where} is a tensor without memory of its own: {error}") from error
    return Buffer(where, address, tensor.numel(), dtype, True, tensor)


def _from_interface(name: str) -> Callable[[Any, str], Buffer]:
    def describe(array: Any, where: str) -> Buffer:
        interface: Dict[str, Any] = getattr(array, name)
        shape = interface["shape"]
        typestr = interface["typestr"]  # byte order, kind and bytes: "<f4"
        dtype = _BY_KIND.get(typestr[1:])
        if getattr(getattr(array, "dtype", None), "name", None) == "bfloat16":
            dtype = DataType.BFLOAT16  # of ml_dtypes, for which the interface has no word
        if dtype is None or typestr[0] == ">":
            _refuse_type(where, getattr(array, "dtype", typestr))
        if not _is_contiguous(shape, interface.get("strides"), ELEMENT_BYTES[dtype]):
            _refuse_layout(where, shape)
        data = interface.get("data")
        if not isinstance(data, tuple):
            raise TypeError(f"{where} is {_a(array)}, whose {name} has no address")
        address, is_read_only = data
        return Buffer(where, address or 0, _product(shape), dtype, not is_read_only, array)

    return describe


class _PyBuffer(ctypes.Structure):
    """Py_buffer of CPython's stable interface, as far as it is needed, with room for the rest."""

    _fields_ = [("buf", ctypes.c_void_p), ("rest", ctypes.c_byte * 120)]


def _address_of(view: memoryview) -> int:
    """Address of a contiguous view, also of a read-only one, for which ctypes has no function."""
    found = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(found), 0)
    address = found.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(found))
    return address


def _from_memoryview(view: memoryview, where: str) -> Buffer:
    letter = view.format.lstrip("@=<")
    dtype = _BY_KIND.get(f"{_KINDS.get(letter, letter)}{view.itemsize}")
    if dtype is None:
        _refuse_type(where, f"{view.format!r} of the struct module")
    if not view.c_contiguous:
        _refuse_layout(where, view.shape or ())
    # The view keeps the memory where it is: a bytearray cannot be resized while it has one.
    return Buffer(
        where, _address_of(view), view.nbytes // view.itemsize, dtype, not view.readonly, view
    )


def _from_dlpack(array: Any, where: str) -> Buffer:
    tensor = dlpack_of(array)
    try:
        dtype = data_type(tensor.dtype_name)
    except TypeError:
        _refuse_type(where, tensor.dtype_name)
    if not _is_contiguous(tensor.shape, tensor.strides, 1):
        _refuse_layout(where, tensor.shape)
    return Buffer(
        where,
        tensor.address,
        _product(tensor.shape),
        dtype,
        not tensor.is_read_only,
        tensor.capsule,
    )


_WAYS: List[Tuple[str, Callable[[Any, str], Buffer]]] = [
    ("data_ptr", _from_torch),
    ("__cuda_array_interface__", _from_interface("__cuda_array_interface__")),
    ("__array_interface__", _from_interface("__array_interface__")),
]
