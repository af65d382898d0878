# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The files of the project: what git tracks and what it would, or all files where there is no git."""

import pathlib
import subprocess

NOT_OURS = {"build", ".git", "__pycache__"}


def project_files(root: pathlib.Path) -> list[pathlib.PurePosixPath]:
    """Paths relative to `root`, sorted."""
    listing = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=False)
    if listing.returncode == 0:
        paths = {pathlib.PurePosixPath(name) for name in listing.stdout.split("\0") if name}
    else:
        paths = {pathlib.PurePosixPath(path.relative_to(root)) for path in root.rglob("*")}
    return sorted(path for path in paths
                  if (root / path).is_file() and not NOT_OURS.intersection(path.parts))
