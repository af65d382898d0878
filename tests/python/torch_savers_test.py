# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Tools that save optimizers through PyTorch's contract: what they resume equals, bit for bit, a run that
saved nothing, and a job of another size goes on from it. Each of them runs if it is installed.

    torch_savers_test.py
"""

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch
except ImportError:
    sys.exit(77)  # skipped
if torch.__version__ < "2.3" or importlib.util.find_spec("torch.distributed.checkpoint") is None:
    print("PyTorch before 2.3 has no get_state_dict")
    sys.exit(77)

RANK = Path(__file__).with_name("torch_savers_rank.py")
CASES = 5  # of the rank
MODULES = {"Accelerate": "accelerate", "Lightning": "lightning"}


def run(ranks, *arguments):
    """What a job printed, or an error with it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "savers",  # Lightning then starts no ranks of its own
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-B", str(RANK), *map(str, arguments)],
            env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        printed = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if any(process.returncode != 0 for process in processes):
        raise AssertionError("\n".join(printed))
    return printed[0]


class TorchSaversTest(unittest.TestCase):
    def check(self, *tools):
        for tool in tools:
            module = MODULES.get(tool)
            if module is not None and importlib.util.find_spec(module) is None:
                self.skipTest(f"{module} is not installed")
        with tempfile.TemporaryDirectory() as folder:
            for ranks, act in ((2, "save"), (3, "load")):
                printed = run(ranks, act, folder, *tools)
                self.assertEqual(printed.count(": equal"), CASES * len(tools), printed)

    def test_distributed_checkpoints(self):
        self.check("Checkpoint", "FullState")

    @unittest.skipIf(torch.__version__ < "2.5", "PyTorch before 2.5 does not flatten")
    def test_flattened_checkpoints(self):
        self.check("Flattened")

    def test_accelerate(self):
        self.check("Accelerate")

    def test_lightning(self):
        self.check("Lightning")


if __name__ == "__main__":
    unittest.main()
