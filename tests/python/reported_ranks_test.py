# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Launchers report the rank of PyTorch that failed, and none that has learned of it:
reported_ranks_test.py ONEBIT_RUN."""

import re
import socket
import subprocess
import sys
import tempfile
import unittest

from needs_torch import torch

import exits_rank

RANKS = 3


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ReportedRanksTest(unittest.TestCase):
    def test_spawn_learns_which_rank_failed(self):
        for how in ("before", "inside"):
            with tempfile.TemporaryDirectory() as folder:
                with self.assertRaises(torch.multiprocessing.ProcessRaisedException) as caught:
                    torch.multiprocessing.spawn(
                        exits_rank.fail_in_a_step, (folder, RANKS, how), nprocs=RANKS
                    )
            self.assertEqual(caught.exception.error_index, 1)
            self.assertIn("ValueError: the batch is empty", str(caught.exception))

    def test_launchers_learn_which_rank_failed(self):
        # Without a port of its own it would meet another torchrun of this host.
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1"]
        torchrun += ["--rdzv_backend", "c10d", "--rdzv_endpoint", f"localhost:{free_port()}"]
        # PyTorch 1.13 cannot do without these with Python 3.11.
        torchrun += ["--redirects", "1", "--tee", "1", "--nproc_per_node"]
        launchers = (
            (torchrun, r"Root Cause[^$]*?rank +: (\d+)"),
            ([onebit_run, "-n"], r"onebit_run: rank (\d+) \("),
        )
        for launcher, report in launchers:
            for how in ("exit", "kill"):
                with tempfile.TemporaryDirectory() as folder:
                    command = [*launcher, str(RANKS), exits_rank.__file__, "fail", how, folder]
                    if launcher is not torchrun:
                        command[3:3] = ["--", sys.executable, "-B"]
                    job = subprocess.run(
                        command, capture_output=True, text=True, timeout=100, check=False
                    )
                output = job.stdout + job.stderr
                with self.subTest(launcher=launcher[0], how=how):
                    self.assertEqual(re.findall(report, output), ["1"], output)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    onebit_run = sys.argv.pop(1)
    unittest.main()
