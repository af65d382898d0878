# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A JSON report that replaces an older one only when it is complete."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import IO


class JsonFile:
    """A report file, opened before a run because nobody wants to learn after it that its result cannot
    be written."""

    def __init__(self, path: str | os.PathLike):
        """Raises OSError. Anything but a regular file, such as a pipe, is written in place."""
        self._path = pathlib.Path(path)
        self._part: pathlib.Path | None = None
        if self._path.exists() and not self._path.is_file():
            self._file: IO[str] = open(self._path, "w", encoding="utf-8")
            return
        self._path = self._path.resolve()  # keeps a symbolic link
        try:
            self._file = tempfile.NamedTemporaryFile(  # pylint: disable=consider-using-with
                "w", encoding="utf-8", dir=self._path.parent, prefix=f".{self._path.name}.",
                suffix=".part", delete=False)
        except OSError as error:  # the system names the temporary file
            raise OSError(error.errno, error.strerror, str(path)) from None
        self._part = pathlib.Path(self._file.name)

    def __enter__(self) -> JsonFile:
        return self

    def __exit__(self, *_) -> None:
        self._file.close()
        if self._part is not None:
            self._part.unlink(missing_ok=True)

    def write(self, value: object) -> None:
        """Writes the whole report."""
        json.dump(value, self._file, indent=2)
        self._file.write("\n")
        self._file.close()
        if self._part is not None:
            mask = os.umask(0)
            os.umask(mask)
            self._part.chmod(0o666 & ~mask)  # as for any new file
            os.replace(self._part, self._path)
            self._part = None
