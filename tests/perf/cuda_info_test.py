# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebit_info tells of CUDA devices, or why there are none: cuda_info_test.py ONEBIT_INFO STAND_IN_OF_CUDA"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile


def run(tool: str, folder: str, *options: str, **environment: str) -> str:
    done = subprocess.run([tool, *options], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "LD_LIBRARY_PATH": folder, **environment})
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout


def main() -> None:
    tool, stand_in = sys.argv[1:]
    folder = str(pathlib.Path(stand_in).parent)
    text = run(tool, folder, CUDA_STAND_IN_DEVICES="2")
    assert "CUDA device 1: stand-in" in text and "CUDA devices can be used: yes" in text, text
    cuda = json.loads(run(tool, folder, "--json", CUDA_STAND_IN_DEVICES="2"))["cuda"]
    assert cuda["can_be_used"] is True and len(cuda["devices"]) == 2, cuda

    old = run(tool, folder, CUDA_STAND_IN_DRIVER="11080")
    assert "CUDA device 0:" in old and "can be used: no: libonebit-cuda.so:" in old, old
    assert "11.8" in old, old
    none = run(tool, folder, CUDA_STAND_IN_DEVICES="0")
    assert "CUDA devices can be used: no: no CUDA" in none, none
    with tempfile.TemporaryDirectory() as broken:
        (pathlib.Path(broken) / "libcuda.so.1").touch()
        cuda = json.loads(run(tool, broken, "--json"))["cuda"]
    assert cuda["devices"] == [] and "cannot be loaded" in cuda["problem"], cuda


if __name__ == "__main__":
    main()
