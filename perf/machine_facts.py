# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Facts without which a time means nothing: processor, cores, kernel, commit, compiler, speed of
memory."""

from __future__ import annotations

import datetime
import os
import pathlib
import platform
import re
import subprocess
import time

COPY_BYTES = 128 << 20  # beyond any cache
COPIES = 5


def processor() -> str:
    """The name of the processor."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    return model[1] if model else platform.machine()


def cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0))


def copy_gbps() -> float:
    """Bytes read and written per second by one core that copies memory, in 10^9: the best of several
    tries."""
    source, target = bytearray(COPY_BYTES), bytearray(COPY_BYTES)
    source[::4096] = b"\1" * (COPY_BYTES // 4096)  # touches every page
    target[:] = source
    best = 0.0
    for _ in range(COPIES):
        begin = time.perf_counter()
        memoryview(target)[:] = source
        best = max(best, 2 * COPY_BYTES / (time.perf_counter() - begin) / 1e9)
    return round(best, 2)


def cache_bytes() -> int | None:
    """The size of the last-level cache; None if the system does not say."""
    found = []
    for index in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            size = re.fullmatch(r"(\d+)K", (index / "size").read_text(encoding="ascii").strip())
            found.append((int((index / "level").read_text(encoding="ascii")), int(size[1]) << 10))
        except (OSError, ValueError, TypeError):
            continue
    return max(found)[1] if found else None


def commit(root: pathlib.Path) -> str:
    """The commit of the checkout, with -dirty if it was changed."""
    described = subprocess.run(["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12",
                                "--exclude=*"], capture_output=True, text=True, check=False)
    return described.stdout.strip() if described.returncode == 0 else "unknown"


def facts(root: pathlib.Path, build: pathlib.Path) -> dict:
    """The entry "machine" of a report."""
    return {"cpu": processor(),
            "cores": cores(),
            "kernel": platform.release(),
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "commit": commit(root),
            "compiler": compiler(root / build),
            "copy_gbps": copy_gbps(),
            "cache_bytes": cache_bytes()}


def compiler(build: pathlib.Path) -> str:
    """The compiler of a build, as 'GCC 12.2.0'."""
    for file in build.glob("CMakeFiles/*/CMakeCXXCompiler.cmake"):
        found = dict(re.findall(r'set\(CMAKE_CXX_COMPILER_(ID|VERSION) "(.*)"\)',
                                file.read_text(encoding="utf-8")))
        if {"ID", "VERSION"} <= found.keys():
            return f"{found['ID'].replace('GNU', 'GCC')} {found['VERSION']}"
    return "unknown"
