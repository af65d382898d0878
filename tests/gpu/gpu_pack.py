# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""One folder with the programs of tests/gpu/run and all they need, to carry to a machine with a GPU."""

import pathlib
import re
import shutil
import subprocess

LIMIT_MIB = 60
COMMIT = "commit"  # the file that says what was built
LIBRARIES = ["src/libonebit.so.0", "src/libonebit-cuda.so", "src/libonebit-transport-nccl.so"]
# Every machine has the first line; the driver is the GPU's.
LEFT_OUT = re.compile(r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux[^.]*)\.so"
                      r"|libcuda\.so|libonebit\.so")


def libraries_of(files: list[pathlib.Path], environment: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Paths of the other libraries that they are linked with, by name, and names of missing ones."""
    found, missing = {}, []
    for file in files:
        done = subprocess.run(["ldd", file], env=environment, text=True, capture_output=True, check=True)
        for name, path in re.findall(r"^\s*(\S+) => (not found|\S+)", done.stdout, re.MULTILINE):
            if LEFT_OUT.match(name):
                continue
            if path == "not found":
                missing.append(name)
            found[name] = path
    return found, sorted(set(missing))


def pack(build: pathlib.Path, folder: pathlib.Path, programs: list[str], environment: dict[str, str],
         commit: str) -> str:
    """What is wrong, or "". The folder is as a build folder and as one of tests/gpu/make-deps."""
    if folder.exists() and any(folder.iterdir()) and not (folder / COMMIT).exists():
        return f"{folder} has files that are not of this command: name a new folder"
    if absent := [name for name in [*programs, *LIBRARIES] if not (build / name).exists()]:
        return f"not built: {', '.join(absent)}"
    binaries = [name for name in [*programs, *LIBRARIES] if not name.endswith(".py")]
    libraries, missing = libraries_of([build / name for name in binaries], environment)
    if missing:
        return f"libraries that cannot be found: {', '.join(missing)}"
    shutil.rmtree(folder, ignore_errors=True)
    sources = {name: build / name for name in [*programs, *LIBRARIES]}
    sources |= {f"usr/lib/{name}": pathlib.Path(path) for name, path in libraries.items()}
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / name)  # links become files
        if shutil.which("strip") and not name.endswith(".py"):
            subprocess.run(["strip", "--strip-unneeded", folder / name], check=True)
    (folder / COMMIT).write_text(commit + "\n")
    sizes = {name: (folder / name).stat().st_size for name in sources}
    for name, size in sizes.items():
        print(f"{size:10}  {name}")
    mib = sum(sizes.values()) / (1 << 20)
    print(f"{mib:7.1f} MiB in {folder}; on the machine with the GPU:\n"
          f"  tests/gpu/run --no-build --build {folder} --deps {folder} --out OUT")
    return "" if mib < LIMIT_MIB else f"that is not below {LIMIT_MIB} MiB"
