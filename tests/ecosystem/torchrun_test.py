# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The hook and the optimizers under PyTorch's torchrun: processes that die and are started again."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

TRAINER = pathlib.Path(__file__).with_name("restarted_trainer.py")
MODULES = pathlib.Path(__file__).resolve().parents[1] / "python"
STEPS, DIES_AT = 14, 10
# The others need time to find out by themselves, before torchrun ends them.
MONITOR = ["--monitor-interval", "3"]


def found_in(folder: str, name: str) -> dict:
    """What the ranks of a trainer wrote to its folder, by their numbers."""
    files = pathlib.Path(folder).glob(f"{name}-*.json")
    return {int(file.stem.split("-")[1]): json.loads(file.read_text("utf-8")) for file in files}


def start(folder: str, way: str, dies_at: int, who: str, *options: str, **variables: str) -> subprocess.Popen:
    path = os.pathsep.join(filter(None, [str(MODULES), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **variables}
    # Otherwise Gloo of PyTorch 2.15 finds the addresses of the processes before the restart in the store.
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    command = [sys.executable, "-m", "torch.distributed.run", *MONITOR, *options, "--", str(TRAINER), folder]
    command += [way, str(STEPS), str(dies_at), who]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class TorchrunTest(unittest.TestCase):
    def end(self, job: subprocess.Popen) -> None:
        output, _ = job.communicate(timeout=300)
        self.assertEqual(job.returncode, 0, output)

    def run_to_the_end(self, way: str, dies_at: int) -> tuple:
        """The results of a job of 4 ranks, and what ended the first attempt on those that lived."""
        with tempfile.TemporaryDirectory() as name:
            self.end(start(name, way, dies_at, "rank", "--standalone", "--nproc-per-node", "4", "--max-restarts", "1"))
            return found_in(name, "result"), found_in(name, "failure")

    def test_a_job_continues_where_a_rank_was_killed(self):
        for way in ("hook", "adam"):
            with self.subTest(way=way):
                straight, failures = self.run_to_the_end(way, -1)
                self.assertEqual(failures, {})
                resumed, failures = self.run_to_the_end(way, DIES_AT)
                self.assertEqual(sorted(failures), [0, 2, 3])
                for each in failures.values():
                    self.assertEqual(each["type"], "PeerLost")
                    self.assertIn("rank 1 is gone", each["text"])
                for rank in range(4):
                    self.assertEqual([resumed[rank][name] for name in ("attempt", "ranks", "from")], [1, 4, 8])
                    self.assertEqual(resumed[rank]["digest"], straight[rank]["digest"])

    def test_a_job_continues_without_a_lost_host(self):
        with tempfile.TemporaryDirectory() as name:
            options = ["--nnodes", "1:2", "--nproc-per-node", "2", "--max-restarts", "2", "--rdzv-backend", "c10d"]
            options += ["--rdzv-endpoint", f"localhost:{free_port()}", "--local-addr", "localhost", "--rdzv-conf"]
            # The first attempt begins when both hosts are there; seconds later the loss of one is noticed.
            times = "last_call_timeout=20,keep_alive_interval=1,keep_alive_max_attempt=3"
            stays = start(name, "hook", DIES_AT, "host", *options, f"{times},is_host=true")
            leaves = start(name, "hook", DIES_AT, "host", *options, f"{times},is_host=false", DIES="yes")
            for host in (stays, leaves):
                self.addCleanup(host.terminate)  # torchrun then ends its ranks, too
            self.end(stays)
            leaves.communicate(timeout=60)
            self.assertLess(leaves.returncode, 0)
            found = found_in(name, "result")
        self.assertEqual(sorted(found), [0, 1])
        for each in found.values():
            self.assertEqual([each["ranks"], each["from"]], [2, 8])
            self.assertLess(each["error of what is owed"], 1e-6)
        self.assertEqual(found[0]["digest"], found[1]["digest"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
