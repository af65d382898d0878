# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The drop-in opened by its file, on the stand-ins: drop_in_test.py DROP_IN NCCL_STAND_IN FOLDER_OF_CUDA_STAND_IN

Its folder is not that of libonebit, which it has to find all the same.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import threading
import unittest

RANKS = 2


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def check(result: int) -> None:
    if result != 0:
        raise RuntimeError(f"result {result}")


def run_rank(nccl: ctypes.CDLL, unique_id: UniqueId, rank: int) -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    context, comm = ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), rank))
    check(cuda.cuCtxSetCurrent(context))
    check(nccl.ncclCommInitRank(ctypes.byref(comm), RANKS, unique_id, rank))
    check(nccl.ncclCommDestroy(comm))


def run_program(drop_in: str) -> None:
    """As vLLM does. Its last line is the file of libonebit."""
    nccl = ctypes.CDLL(drop_in)
    nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
    unique_id = UniqueId()
    check(nccl.ncclGetUniqueId(ctypes.byref(unique_id)))
    ranks = [threading.Thread(target=run_rank, args=(nccl, unique_id, rank)) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    maps = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8")
    print("\n".join({line.split()[-1] for line in maps.splitlines() if "/libonebit.so" in line}))


class DropInTest(unittest.TestCase):
    def run_program(self, **variables: str) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("ONEBIT_", "LD_"))}
        environment |= {"ONEBIT_NCCL_LIB": STAND_IN, "LD_LIBRARY_PATH": CUDA, "CUDA_STAND_IN_DEVICES": str(RANKS)}
        done = subprocess.run([sys.executable, "-B", __file__, DROP_IN], env=environment | variables,
                              capture_output=True, text=True, timeout=60, check=False)
        # Rank 0 says that it is there.
        told = done.stderr.splitlines()
        self.assertTrue(all(" onebit VERSION in front of NCCL, " in line for line in told), done)
        self.assertEqual((done.returncode, len(told)), (0, 1 if "ONEBIT_NCCL_RULES" in variables else 0), done)
        return done.stdout.strip()

    def test_it_finds_the_library_that_it_is_installed_with(self):
        folder = pathlib.Path(DROP_IN).parents[2]
        self.assertEqual(self.run_program(ONEBIT_NCCL_RULES="*:fp4"), str((folder / "libonebit.so.0").resolve()))

    def test_it_opens_no_library_without_rules(self):
        self.assertEqual(self.run_program(), "")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        run_program(sys.argv[1])
    else:
        DROP_IN, STAND_IN, CUDA = sys.argv[1:4]
        del sys.argv[1:4]
        unittest.main()
