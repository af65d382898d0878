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

# The folders that a folder may include directly, and so everything that these may include: `sync ->
# collectives` lets sync see packets of the codec. Every folder may include its own files.
MAY_INCLUDE = {
    "include/onebit": [],
    "kernels": [],
    "src/base": [],
    "src/api": ["src/sync", "src/collectives", "src/compressor", "src/comm"],
    "src/sync": ["src/schedule", "src/collectives"],
    "src/collectives": ["src/compressor", "src/comm", "src/transport", "src/device"],
    "src/compressor": ["src/codec", "src/device"],
    "src/codec": ["kernels", "src/base"],
    "src/comm": ["src/transport", "src/topology"],
    "src/transport": ["src/channel"],
    "src/channel": ["include/onebit", "kernels", "src/base"],
    "src/device": ["include/onebit", "kernels", "src/base"],
    "src/topology": ["src/base"],
    "src/schedule": ["include/onebit", "src/base"],
    # Clients of the public API, except for their own kernels and the device memory and streams that
    # these use. A setting says where the device library is.
    "src/optim": ["include/onebit", "kernels", "src/schedule", "src/device", "src/transport", "src/base"],
    "plugins": ["include/onebit"],
    "perf": ["include/onebit"],
    "bindings": ["include/onebit"],
}

# perf/ is a client like any other, except where it measures kernels or checks against the oracle.
FILES_THAT_MAY_SEE_KERNELS = re.compile(r"perf/(codec_perf[^/]*|common/.*)")

# Measuring the kernels of a device needs the code that launches them.
FILES_THAT_MAY_SEE_DEVICES = re.compile(r"perf/codec_perf_cuda[^/]*")

# Optimizers need the outcome of a call, which the public API gives only in statistics.
OPTIMIZER_CALLS = "src/api/optimizer_calls.h"

# The control channel compares calls, so it sees descriptions of calls, but no packets.
CALL_RECORDS = re.compile(r"src/comm/call_record_ring\.(h|cc)")
CALL_DESCRIPTION = "src/codec/message_header.h"

# The public headers that a transport may see: the ABI, and what it includes.
PLUGIN_ABI = {"include/onebit/transport.h", "include/onebit/onebit.h"}
TRANSPORT = re.compile(r"plugins/transport_[^/]+/")
# Parts that plugins share with the library; they need the standard library alone.
PARTS_FOR_ALL = {"src/base/backoff.h", "src/base/spin_lock.h"}
# Transports `local` and `socket` are linked in.
LINKED_IN_TABLES = re.compile(r"plugins/transport_(local|socket)/(local|socket)_transport\.h")
# Transport `socket` connects and proves the job's key as the control channel does.
SOCKET_TRANSPORT = "plugins/transport_socket/"
PARTS_FOR_SOCKET = {"src/base/format.h", "src/comm/secret.h", "src/comm/socket.h"}
REGISTRY = "src/transport/registry.cc"
# Parts that transports share, which know none of them.
TRANSPORT_PARTS = "plugins/common/"

# The one table of the CUDA driver's functions, which tools that allocate memory of devices call, too.
CUDA_DRIVER = "plugins/common/cuda_driver.h"
FILES_THAT_MAY_SEE_THE_CUDA_DRIVER = re.compile(r"perf/common/cuda_device[^/]*|plugins/device_cuda/.*")

# The launcher clears away what killed ranks have left, as transport `ucx` does when it starts.
LAUNCHER = "perf/onebit_run.cc"
FILES_OF_THE_KILLED = "plugins/common/abandoned_segments.h"

# The tool that prints what there is compares a file of NCCL with the drop-in, as the drop-in does.
INFO_TOOL = "perf/onebit_info.cc"
NCCL_EXPORTS = "plugins/nccl_preload/nccl_exports.h"

# The part of the library that runs on CUDA's devices: the ABI between both, and the kernels it launches.
DEVICE_PLUGIN = "plugins/device_cuda/"
DEVICE_ABI = re.compile(r"src/device/device_abi\.h|include/onebit/onebit\.h|kernels/(cuda/)?[^/]+\.h")

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
    "mpi.h": ["include/onebit/mpi.h", "plugins/transport_mpi", "perf/baselines"],
    "gloo": ["perf/baselines"],
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
    return next((name for name in MAY_INCLUDE if path.startswith(name + "/")), None)


def resolve(root: pathlib.Path, including: str, name: str) -> str | None:
    """Path of a project header as the compiler would find it, None if it is not one of ours."""
    own_folder = pathlib.PurePosixPath(including).parent
    for base in (own_folder, pathlib.PurePosixPath("."), pathlib.PurePosixPath("src"),
                 pathlib.PurePosixPath("include")):
        if (root / base / name).is_file():
            return str((root / base / name).resolve().relative_to(root))
    return None


def broken_rule(including: str, included: str) -> str | None:
    """Why `including` may not include the project's file `included`; None if it may."""
    folder, target = folder_of(including), folder_of(included)
    if folder is None:
        return "this folder has no rule: add it to MAY_INCLUDE in tests/layout/include_rules.py"
    if FILES_THAT_MAY_SEE_KERNELS.fullmatch(including) and target == "kernels":
        return None
    if FILES_THAT_MAY_SEE_DEVICES.fullmatch(including) and target == "src/device":
        return None
    if FILES_THAT_MAY_SEE_THE_CUDA_DRIVER.fullmatch(including) and included == CUDA_DRIVER:
        return None
    if folder == "src/optim" and included == OPTIMIZER_CALLS:
        return None
    if including == LAUNCHER and included == FILES_OF_THE_KILLED:
        return None
    if including == INFO_TOOL and included == NCCL_EXPORTS:
        return None
    if including == REGISTRY and LINKED_IN_TABLES.fullmatch(included):
        return None
    if CALL_RECORDS.fullmatch(including) and included == CALL_DESCRIPTION:
        return None
    if folder == "plugins":
        own = "/".join(including.split("/")[:2]) + "/"
        if included.startswith(own) or included in PARTS_FOR_ALL:
            return None
        if including.startswith(SOCKET_TRANSPORT) and included in PARTS_FOR_SOCKET:
            return None
        if including.startswith(DEVICE_PLUGIN):
            if DEVICE_ABI.fullmatch(included):
                return None
            return ("the device plugin may include device/device_abi.h, kernels/cuda, the CUDA driver and "
                    "its own files")
        if TRANSPORT.match(including) or including.startswith(TRANSPORT_PARTS):
            if included in PLUGIN_ABI or included.startswith(TRANSPORT_PARTS):
                return None
            return "a transport may include onebit/transport.h, plugins/common and its own files"
        if target == "plugins":
            return "a plugin may not include another one"
    if target in reachable(folder):
        return None
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


def main() -> int:
    root = pathlib.Path(sys.argv[1]).resolve()
    paths = sys.argv[2:] or [str(path) for path in project_files(root)]
    found = violations(root, paths)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
