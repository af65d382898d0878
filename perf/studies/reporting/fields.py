# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Reads typed values out of JSON objects, and says where in which file something is wrong."""

import json
import math
import pathlib
import typing


class Malformed(Exception):
    """A file does not hold what it should. The text says which, where, and what is expected."""


def reject_constant(name: str) -> typing.NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def read_json(path: pathlib.Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=reject_constant)
    except OSError as error:
        raise Malformed(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # decoding errors of both kinds are ValueErrors
        raise Malformed(f"{path}: is not JSON: {error}") from error


class Fields:
    """The members of one JSON object. `where` names it in messages."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise Malformed(f"{where}: is no object")
        self._members: dict[str, object] = value
        self.where = where

    def raw(self, key: str) -> object:
        if key not in self._members:
            raise Malformed(f"{self.where}: has no member '{key}'")
        return self._members[key]

    def is_absent(self, key: str) -> bool:
        """Left out, or null."""
        return self._members.get(key) is None

    def wrong(self, key: str, expected: str) -> Malformed:
        text = json.dumps(self._members.get(key), default=str)
        if len(text) > 60:
            text = text[:57] + "..."
        return Malformed(f"{self.where}.{key}: {text} is no {expected}")

    def text(self, key: str) -> str:
        value = self.raw(key)
        if not isinstance(value, str):
            raise self.wrong(key, "text")
        return value

    def integer(self, key: str, least: int = 0) -> int:
        value = self.raw(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(key, f"integer of at least {least}")
        return value

    def number(self, key: str) -> float:
        value = self.raw(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.wrong(key, "number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.wrong(key, "finite number")
        return number

    def positive(self, key: str) -> float:
        value = self.number(key)
        if value <= 0:
            raise self.wrong(key, "number above zero")
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self.is_absent(key) else self.text(key)

    def optional_integer(self, key: str, least: int = 0) -> int | None:
        return None if self.is_absent(key) else self.integer(key, least)

    def optional_number(self, key: str) -> float | None:
        return None if self.is_absent(key) else self.number(key)
