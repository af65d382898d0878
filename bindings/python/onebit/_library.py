# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Finds libonebit and gives its functions types. Their errors become exceptions here."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any, List

from . import _errors, _native
from ._native import Result

SONAME = f"libonebit.so.{_native.ONEBIT_MAJOR}"
PACKAGED = pathlib.Path(__file__).parent / "lib" / SONAME


def _open() -> ctypes.CDLL:
    """The library that ONEBIT_LIBRARY names, else that of this package, else the system's."""
    chosen = os.environ.get("ONEBIT_LIBRARY")
    candidates: List[str] = [chosen] if chosen else [str(PACKAGED), SONAME]
    tried = []
    for path in candidates:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error) if path in str(error) else f"{path}: {error}")
    where = (
        "ONEBIT_LIBRARY names it"
        if chosen
        else "searched this package, then the system"
    )
    raise ImportError(
        f"cannot load libonebit ({where}): {'; '.join(tried)}. Install the wheel of onebit, or "
        "set ONEBIT_LIBRARY to the path of the library"
    )


def version_text(code: int) -> str:
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def _load() -> ctypes.CDLL:
    library = _open()
    success = Result.SUCCESS  # a local variable, because every call reads it

    def check(result: int, _function: Any, _arguments: Any) -> Result:
        if result == success:
            return success
        if result == Result.IN_PROGRESS:
            return Result.IN_PROGRESS
        raise _errors.error_of(result, library.onebitGetLastError(None).decode(errors="replace"))

    for name, (result, parameters) in _native.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(
                f"{library._name} has no {name}: it is older than this package, which is for "
                f"version {version_text(_native.ONEBIT_VERSION_CODE)}"
            ) from None
        function.argtypes = parameters
        function.restype = result
        if result is Result:
            function.restype = ctypes.c_int
            function.errcheck = check

    version = ctypes.c_int()
    library.onebitGetVersion(version)
    # Before 1.0 a minor version may change anything.
    if version.value // 100 != _native.ONEBIT_VERSION_CODE // 100:
        raise ImportError(
            f"{library._name} is version {version_text(version.value)}, but this package is for "
            f"{version_text(_native.ONEBIT_VERSION_CODE)}"
        )
    return library


#: The C functions, e.g. lib.onebitCommDestroy(handle). They let other threads of the interpreter run,
#: return a Result or raise an Error, and take a variable of ctypes where C takes its address.
lib = _load()


def library_path() -> str:
    """Path of the library in use, or its bare name where the system's loader has found it."""
    return lib._name
