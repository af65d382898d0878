# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a file whole or not at all."""

import contextlib
import os
import pathlib
import stat
import tempfile


def write(path: pathlib.Path, text: str) -> None:
    """Replaces `path`, or what it links to. A reader sees the old file or the new one, and whatever ends
    the program leaves no other file. What is no regular file (a pipe, a terminal) is written to."""
    path = pathlib.Path(os.path.realpath(path))
    content = text.encode("utf-8")
    old = path.stat() if path.exists() else None
    if old is not None and not stat.S_ISREG(old.st_mode):
        path.write_bytes(content)
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode) if old else 0o666 & ~current_umask())
            file.write(content)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def current_umask() -> int:
    """There is no way to read it without setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
