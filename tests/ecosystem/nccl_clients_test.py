# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The interposer in front of the NCCL of packages on PyPI, as far as they go without a GPU:

    nccl_clients_test.py INTERPOSER CLIENT=PYTHON...

PYTHON has the package CLIENT: cupy, torch or tensorflow. What a program prints must not depend on the
interposer, and its calls must go there.
"""

import os
import pathlib
import re
import subprocess
import sys
import textwrap
import unittest

INTERPOSER = pathlib.Path(sys.argv[1]).resolve()
PYTHONS = dict(argument.split("=", 1) for argument in sys.argv[2:])
del sys.argv[1:]

PROGRAMS = {
    "cupy": """
        import cupy
        from cupy.cuda import nccl
        print(cupy.__version__, nccl.get_version(), nccl.get_build_version())
        unique_id = nccl.get_unique_id()
        print(len(unique_id))
        for ranks, rank in ((1, 0), (2, 3)):
            try:
                nccl.NcclCommunicator(ranks, unique_id, rank)
            except nccl.NcclError as error:
                print(error)
        nccl.groupStart()
        nccl.groupEnd()
        try:
            nccl.groupEnd()
        except nccl.NcclError as error:
            print(error)
        """,
    # Its other calls look for a GPU before they come to NCCL.
    "torch": """
        import torch
        print(torch.__version__, torch.cuda.is_available(), torch.cuda.nccl.version())
        print(len(torch.cuda.nccl.unique_id()), torch.distributed.is_nccl_available())
        """,
    # It opens NCCL when it finds a GPU.
    "tensorflow": """
        import tensorflow
        print(tensorflow.__version__, tensorflow.test.is_built_with_cuda())
        try:
            tensorflow.raw_ops.NcclAllReduce(input=[1.0], reduction="sum", num_devices=1, shared_name="")
        except tensorflow.errors.NotFoundError as error:
            print(error)
        """,
}
# Packages call different ones to make a communicator.
CALLED = {"ncclAllReduce", "ncclReduceScatter", "ncclBroadcast", "ncclGroupStart", "ncclGroupEnd",
          "ncclCommDestroy", "ncclCommInitRankConfig"}


class ClientsTest(unittest.TestCase):
    def start(self, client: str, stdout: int = subprocess.PIPE, **variables: str) -> subprocess.Popen:
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("LD_", "NCCL_", "ONEBIT_"))}
        command = [PYTHONS[client], "-B", "-c", textwrap.dedent(PROGRAMS[client])]
        return subprocess.Popen(command, env=environment | variables, stdout=stdout,
                                stderr=subprocess.PIPE, text=True, errors="replace")

    def output(self, client: str, **variables: str) -> str:
        job = self.start(client, **variables)
        output, errors = job.communicate(timeout=300)
        self.assertEqual(job.returncode, 0, errors)
        self.assertNotIn("onebit", errors)
        return output

    def bound_to_interposer(self, client: str) -> set:
        """The functions that the loader has bound to it, for whatever library."""
        job = self.start(client, stdout=subprocess.DEVNULL, LD_PRELOAD=str(INTERPOSER), LD_BIND_NOW="1",
                         LD_DEBUG="bindings")
        found = set()
        for line in job.stderr:  # up to 300 MB
            if f" to {INTERPOSER} " in line and (match := re.search("symbol `(p?nccl[A-Za-z]+)'", line)):
                found.add(match[1])
        job.wait(60)
        job.stderr.close()
        return found

    def test_output_does_not_depend_on_the_interposer(self):
        for client in PYTHONS:
            with self.subTest(client=client):
                alone = self.output(client)
                print(f"{client}: {alone}")
                self.assertGreater(len(alone.splitlines()), 1)
                preload = {"LD_PRELOAD": str(INTERPOSER)}
                self.assertEqual(self.output(client, **preload), alone)
                self.assertEqual(self.output(client, **preload, ONEBIT_NCCL_RULES="default"), alone)

    def test_calls_go_to_the_interposer(self):
        for client in PYTHONS:
            with self.subTest(client=client):
                bound = self.bound_to_interposer(client)
                print(f"{client}: {len(bound)} functions of NCCL are the interposer's")
                self.assertEqual(CALLED - bound, set())


if __name__ == "__main__":
    unittest.main(verbosity=2)
