# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that dependencies between folders point one way.

    include_rules.py ROOT [FILE...]

Reads the #include lines of every source of the project (or of the files given) and prints the ones
that break a rule, with file, line and rule. Exits with 1 if there is one.
"""

import pathlib
import re
import sys

from sources import project_files

# The folders that a folder may include directly, and so everything that these may include: `sync -> state` lets
# sync see packets of the codec. Every folder may include its own files. A name that ends in * stands for every
# folder that begins so, and these may not include each other.
MAY_INCLUDE = {
    "include/onebit": [],
    "kernels": [],
    "src/wait": [],
    "src/base": ["src/wait"],
    "src/api": ["src/sync", "src/state", "src/lossless", "src/exec"],
    "src/sync": ["src/schedule", "src/state"],
    "src/state": ["src/exec"],
    "src/lossless": ["src/exec"],
    "src/exec": ["src/steps"],
    "src/steps": ["src/plan"],
    "src/plan": ["src/compressor", "src/comm"],
    "src/compressor": ["src/codec", "src/device"],
    "src/codec": ["include/onebit", "kernels", "src/base"],
    "src/comm": ["src/transport", "src/topology"],
    "src/transport": ["src/channel"],
    "src/channel": ["include/onebit", "kernels", "src/base"],
    "src/device": ["include/onebit", "kernels", "src/base"],
    "src/topology": ["src/base"],
    "src/schedule": ["include/onebit", "src/base"],
    # Clients of the public API, except for their own kernels and the device memory and streams that
    # these use. A setting says where the device library is.
    "src/optim": ["include/onebit", "kernels", "src/schedule", "src/device", "src/transport", "src/base"],
    "plugins/common": ["include/onebit", "src/wait"],
    "plugins/transport_*": ["plugins/common"],
    "plugins/nccl_preload": ["include/onebit"],
    "plugins/device_cuda": ["plugins/common", "src/device"],
    "perf": ["include/onebit", "plugins/common"],
    "bindings": ["include/onebit"],
}

# A folder sees only these files of another one.
TRANSPORT_ABI = r"include/onebit/(transport|onebit)\.h"  # the ABI, and what it includes
SEES_ONLY = {
    # Transports compile without the library.
    ("plugins/common", "include/onebit"): TRANSPORT_ABI,
    ("plugins/transport_*", "include/onebit"): TRANSPORT_ABI,
    # The interface of the library's part that runs on CUDA's devices, and the kernels that it launches.
    ("plugins/device_cuda", "src/device"): r"src/device/device_abi\.h",
    ("plugins/device_cuda", "include/onebit"): r"include/onebit/onebit\.h",
    ("plugins/device_cuda", "kernels"): r"kernels/(cuda/)?[^/]+\.h",
    ("plugins/device_cuda", "plugins/common"): r"plugins/common/cuda_driver\.h",
    ("plugins/device_cuda", "src/base"): None,
    ("plugins/device_cuda", "src/wait"): r"src/wait/backoff\.h",
    # Tools that allocate memory of devices call CUDA's driver by the same table; the launcher clears away what
    # killed ranks have left, as a transport does when it starts.
    ("perf", "plugins/common"): r"plugins/common/(cuda_driver|abandoned_segments)\.h",
    ("perf", "src/wait"): None,
}

# The files that may include against the arrows, by the reason: (who, what). No more than five reasons.
EXCEPTIONS = {
    "optimizers need the outcome of a call, which the public API gives only in statistics": [
        (r"src/optim/.*", r"src/api/optimizer_calls\.h")],
    "the control channel compares calls, so it sees descriptions of calls, but no packets": [
        (r"src/comm/record_ring\.(h|cc)", r"src/codec/message_header\.h")],
    "transports local and socket are linked in; socket connects and proves the key as the control channel does": [
        (r"src/transport/registry\.cc", r"plugins/transport_(local|socket)/\1_transport\.h"),
        (r"plugins/transport_socket/.*", r"src/(base/format|comm/secret|comm/socket)\.h")],
    "codec_perf measures kernels, and the tools' models of collectives are made of the reference": [
        (r"perf/(codec_perf[^/]*|common/.*)", r"kernels/.*"),
        (r"perf/codec_perf_cuda[^/]*", r"src/device/.*")],
    "onebit_info compares a file of NCCL with the drop-in, as the drop-in does": [
        (r"perf/onebit_info\.cc", r"plugins/nccl_preload/nccl_exports\.h")],
}
MOST_EXCEPTIONS = 5

# Libraries by the first part of the path in <...>, and the folders that may use them. A library that
# is not listed here counts as part of the system.
LIBRARIES = {
    "fmt": ["src", "plugins", "perf"],
    "hwy": ["kernels"],
    "CLI": ["perf"],
    "nlohmann": ["perf"],
    "benchmark": ["perf"],
    "Eigen": ["perf/train_text"],
    "gtest": [],
    "gmock": [],
    "hwloc.h": ["src/topology"],
    "sodium.h": ["src/comm", "plugins/transport_socket"],
    "mpi.h": ["include/onebit/mpi.h", "plugins/transport_mpi", "perf/studies/baselines"],
    "gloo": ["perf/studies/baselines"],
    "nccl.h": ["include/onebit/nccl.h", "plugins/transport_nccl", "plugins/nccl_preload"],
    "ucp": ["plugins/transport_ucx"],
    "uct": ["plugins/transport_ucx"],
    "ucs": ["plugins/transport_ucx"],
    "nvtx3": ["src/base"],
    "cuda.h": ["kernels/cuda", "plugins"],
    "cuda_runtime.h": ["kernels/cuda", "plugins"],
    "Python.h": ["bindings"],
    "pybind11": ["bindings"],
    "nanobind": ["bindings"],
    "torch": ["bindings"],
}

SOURCE_SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
FREE_FOLDERS = ("tests",)  # may include anything


def reachable(folder: str) -> set[str]:
    """`folder` and every folder that MAY_INCLUDE leads to from there."""
    found, ahead = set(), [folder]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead.extend(MAY_INCLUDE.get(name, []))
    return found


def folder_of(path: str) -> str | None:
    """The folder of MAY_INCLUDE that `path` belongs to."""
    return next((name for name in MAY_INCLUDE if path.startswith(name.removesuffix("*") if "*" in name else name + "/")),
                None)


def is_own(including: str, included: str) -> bool:
    """Tells if both are files of one folder of MAY_INCLUDE, and not of two that share a pattern."""
    folder = folder_of(including)
    depth = folder.count("/") + 1
    return folder == folder_of(included) and including.split("/")[:depth] == included.split("/")[:depth]


def resolve(root: pathlib.Path, including: str, name: str) -> str | None:
    """Path of a project header as the compiler would find it, None if it is not one of ours."""
    own_folder = pathlib.PurePosixPath(including).parent
    for base in (own_folder, pathlib.PurePosixPath("."), pathlib.PurePosixPath("src"),
                 pathlib.PurePosixPath("include")):
        if (root / base / name).is_file():
            return str((root / base / name).resolve().relative_to(root))
    return None


def exception_of(including: str, included: str) -> str | None:
    """The reason for which `including` may include `included` against the arrows."""
    return next((reason for reason, rows in EXCEPTIONS.items() for who, what in rows
                 if re.fullmatch(who, including) and re.fullmatch(what, included)), None)


def broken_rule(including: str, included: str) -> str | None:
    """Why `including` may not include the project's file `included`; None if it may."""
    folder, target = folder_of(including), folder_of(included)
    if folder is None:
        return "this folder has no rule: add it to MAY_INCLUDE in tests/layout/include_rules.py"
    if is_own(including, included) or exception_of(including, included):
        return None
    if target in reachable(folder) - {folder}:
        seen = SEES_ONLY.get((folder, target), ".*")
        if seen is not None and re.fullmatch(seen, included):
            return None
        return f"{folder} sees only {seen or 'nothing'} of {target}"
    allowed = sorted(reachable(folder) - {folder})
    return f"{folder} may include {', '.join(allowed) if allowed else 'no other folder'}"


def broken_library_rule(including: str, name: str) -> str | None:
    """Why `including` may not include the library header `name`; None if it may."""
    library = name.split("/")[0]
    users = LIBRARIES.get(library)
    if users is None or any(including == user or including.startswith(user + "/") for user in users):
        return None
    return f"<{library}> is for {', '.join(users + list(FREE_FOLDERS))} only"


def violations(root: pathlib.Path, paths: list[str]) -> list[str]:
    found = []
    for path in paths:
        if path.startswith(FREE_FOLDERS) or pathlib.PurePosixPath(path).suffix not in SOURCE_SUFFIXES:
            continue
        text = (root / path).read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), start=1):
            match = INCLUDE.match(line)
            if not match:
                continue
            included = resolve(root, path, match[2])
            if included is not None:
                rule = broken_rule(path, included)
            elif match[1] == '"' and match[2].split("/")[0] not in LIBRARIES:
                rule = "the project has no such file"
            else:
                rule = broken_library_rule(path, match[2])
            if rule:
                found.append(f"{path}:{number}: {line.strip()}: {rule}")
    return found


def needless_exceptions(root: pathlib.Path, paths: list[str]) -> list[str]:
    """Rows of EXCEPTIONS that no file needs any more, and reasons beyond their number."""
    uses = set()
    for path in paths:
        if pathlib.PurePosixPath(path).suffix in SOURCE_SUFFIXES:
            for match in filter(None, map(INCLUDE.match, (root / path).read_text(encoding="utf-8").splitlines())):
                uses.add((path, resolve(root, path, match[2]) or ""))
    found = [f"EXCEPTIONS: nothing needs {row} any more: delete it" for rows in EXCEPTIONS.values() for row in rows
             if not any(re.fullmatch(row[0], who) and re.fullmatch(row[1], what) for who, what in uses)]
    if len(EXCEPTIONS) > MOST_EXCEPTIONS:
        found.append(f"EXCEPTIONS: {len(EXCEPTIONS)} reasons, more than {MOST_EXCEPTIONS}: move the code instead")
    return found


def main() -> int:
    root = pathlib.Path(sys.argv[1]).resolve()
    paths = sys.argv[2:] or [str(path) for path in project_files(root)]
    found = violations(root, paths)
    if not sys.argv[2:]:
        found += needless_exceptions(root, paths)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
