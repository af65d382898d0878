# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What this machine has: GPUs, CUDA, NCCL; and which state of the source is tested."""

import ctypes
import glob
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys


def output_of(*command: str) -> str:
    """What a command prints; "" if there is none or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False,
                              stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def find_gpus() -> tuple[list[str], str]:
    """Names of the GPUs that CUDA's driver has, and the driver's CUDA version or why there are none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return [], f"CUDA's driver cannot be loaded ({error})"
    if (error := driver.cuInit(0)) != 0:
        return [], f"CUDA's driver does not start (cuInit: error {error})"
    count, version = ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    driver.cuDriverGetVersion(ctypes.byref(version))
    names = []
    for device in range(count.value):
        name = ctypes.create_string_buffer(256)
        driver.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode(errors="replace"))
    if not names:
        return [], "CUDA's driver has no device"
    return names, f"{version.value // 1000}.{version.value % 1000 // 10}"


def find_tool(name: str) -> str | None:
    """A program of the CUDA toolkit."""
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for path in (shutil.which(name), f"{toolkit}/bin/{name}", f"{toolkit}/{name}/{name}"):
        if path and os.access(path, os.X_OK):
            return path
    return None


def _nccl_candidates():
    yield os.environ.get("ONEBIT_NCCL_LIB", "")
    yield from re.findall(r"libnccl\.so\.2 .*=> (\S+)", output_of("ldconfig", "-p"))
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    yield from glob.glob(f"{toolkit}/lib*/libnccl.so.2")
    # From a Python package (nvidia-nccl-cu13) of whichever python3 comes first.
    for python in dict.fromkeys([shutil.which("python3") or sys.executable, sys.executable]):
        for folder in output_of(python, "-c", "import sys; print('\\n'.join(sys.path))").splitlines():
            yield from glob.glob(f"{folder}/nvidia/*/lib/libnccl.so.2") if folder else []


def find_nccl() -> dict[str, str] | None:
    """The file of NCCL and its version, asked in another process."""
    code = ("import ctypes, sys; v = ctypes.c_int(); "
            "ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)")
    for path in _nccl_candidates():
        if path and os.path.exists(path) and (version := output_of(sys.executable, "-c", code, path)):
            return {"path": path, "version": version}
    return None


def commit_of(root: pathlib.Path) -> str:
    commit = output_of("git", "-C", str(root), "rev-parse", "HEAD")
    if not commit:
        return "unknown"
    return commit + (" with changes" if output_of("git", "-C", str(root), "status", "--porcelain") else "")


def describe(root: pathlib.Path, gpus: list[str], cuda: str) -> dict:
    module = pathlib.Path("/proc/driver/nvidia/version")
    driver = re.search(r"NVRM.*? (\d+\.\d+[\d.]*)", module.read_text()) if module.exists() else None
    nvcc = re.search(r"release ([\d.]+)", output_of(find_tool("nvcc") or "nvcc", "--version"))
    return {
        "commit": commit_of(root),
        "gpus": gpus,
        "driver": driver[1] if driver else "unknown",
        "cuda_of_driver": cuda,
        "cuda_of_toolkit": nvcc[1] if nvcc else "unknown",
        "nccl": find_nccl(),
        "compiler": (output_of("c++", "--version").splitlines() or ["unknown"])[0],
        "processors": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
    }
