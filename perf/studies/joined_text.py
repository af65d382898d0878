# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The text that studies train on."""

import os
import pathlib


def joined_text(path: pathlib.Path) -> bytes:
    """The files of a folder in bytewise order, without fortune's indices: what train_text reads."""
    if not path.is_dir():
        return path.read_bytes()
    files = [file for file in path.iterdir()
             if file.is_file() and not file.is_symlink() and file.suffix != ".dat"]
    return b"".join(file.read_bytes() for file in sorted(files, key=lambda file: os.fsencode(file.name)))
