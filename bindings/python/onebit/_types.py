# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Bases of the classes that generate.py makes from the C headers."""

from __future__ import annotations

import ctypes
import enum
from typing import ClassVar, Optional, Type, TypeVar, Union

Member = TypeVar("Member", bound="Enumeration")


class Enumeration(enum.IntEnum):
    """An enumeration of the C API. Wherever one is expected, a member's name in any case does as
    well: "fp4" for Codec.FP4."""

    @classmethod
    def of(cls: Type[Member], value: Union[int, str]) -> Member:
        """The member that `value` is or names; an InvalidArgument lists what there is."""
        if isinstance(value, str):
            found = cls.__members__.get(value.upper())
            if found is not None:
                return found
        elif not isinstance(value, bool) and value in cls.__members__.values():
            return cls(value)
        names = ", ".join(name.lower() for name in cls.__members__)
        # pylint: disable-next=import-outside-toplevel,cyclic-import; it imports what is made of these bases
        from ._errors import InvalidArgument

        raise InvalidArgument(f"{value!r} is not a {cls.__name__}: use one of {names}")

    def __str__(self) -> str:
        return self.name.lower()


class Flags(enum.IntFlag):
    """An enumeration of the C API whose members can be added."""


class Structure(ctypes.Structure):
    """A structure of the C API, whose members have the names they have there."""

    KIND: ClassVar[Optional[int]] = (
        None  # for onebitStructInit, if the structure begins with its size
    )

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={getattr(self, name)!r}" for name, *_ in self._fields_)
        return f"{type(self).__name__}({members})"
