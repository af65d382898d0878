# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a file whole or not at all."""

import contextlib
import os
import pathlib
import stat
import tempfile

from reporting import signals


def write(path: pathlib.Path, text: str) -> None:
    """Replaces `path`, or what it links to. A reader sees the old file or the new one, and whatever ends
    the program leaves no other file. What is no regular file (a pipe, a terminal) is written to."""
    content = text.encode("utf-8")
    old = path.stat() if path.exists() else None
    if old is not None and not stat.S_ISREG(old.st_mode):
        path.write_bytes(content)
        return
    with signals.cleaned_up():
        replace(pathlib.Path(os.path.realpath(path)), content, old)


def replace(path: pathlib.Path, content: bytes, old: os.stat_result | None) -> None:
    """By way of a file beside it, which has the rights of the old one."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:  # about a name that nobody gave
        raise OSError(error.errno, error.strerror, str(path)) from error
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
