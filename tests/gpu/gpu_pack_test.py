# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What tests/gpu/run makes of the programs of this build, on the stand-in for CUDA's driver:
gpu_pack_test.py FOLDER_OF_IT FOLDER_OF_STAND_IN BUILD_FOLDER"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()
STAND_IN = pathlib.Path(sys.argv.pop(1)).resolve()
BUILT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(FOLDER))

import gpu_parts  # noqa: E402
import gpu_preload  # noqa: E402
import gpu_speed  # noqa: E402


class BuiltTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(STAND_IN), "CUDA_STAND_IN_DEVICES": "1"}

    def call(self, *options: str, status: int) -> str:
        done = subprocess.run([FOLDER / "run", "--no-build", *options], env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=250, check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def part(self, **variables: str) -> gpu_parts.Run:
        end = time.monotonic() + 200
        return gpu_parts.Run(BUILT, self.folder / "logs", self.environment | variables, {"nccl": None}, end,
                             end)


class PackTest(BuiltTest):
    def test_what_is_packed_runs(self):
        packed, out = self.folder / "gpu", self.folder / "out"
        output = self.call("--pack", str(packed), "--build", str(BUILT), "--commit", "abc", status=0)
        self.assertIn(f"tests/gpu/run --no-build --build {packed} --deps {packed} --out OUT", output)
        self.assertEqual([path for path in packed.rglob("*") if path.is_symlink()], [])
        self.call("staged", "--limit", "staged=200", "--build", str(packed), "--deps", str(packed), "--out",
                  str(out), status=0)
        (row,) = json.loads((out / "report.json").read_text())["parts"]
        self.assertEqual((row["status"], row["commit"]), ("passed", "abc"))
        self.call("--pack", str(packed), "--build", str(BUILT), status=0)  # takes the place of the first

    def test_a_pack_is_complete(self):
        output = self.call("--pack", str(self.folder / "gpu"), "--build", str(self.folder), status=1)
        self.assertIn("not built: perf/codec_perf", output)

    def test_a_pack_leaves_files_of_others_alone(self):
        (self.folder / "thesis.txt").touch()
        output = self.call("--pack", str(self.folder), "--build", str(BUILT), status=1)
        self.assertIn("not of this command", output)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["thesis.txt"])


class HoldTest(BuiltTest):
    CASE = "late peer, greatest priority, 1 connections"

    @mock.patch.object(gpu_parts, "HOLD_S", 100)
    def test_holds_with_a_driver_that_lets_nobody_in_while_it_waits(self):
        run = self.part(CUDA_STAND_IN_QUEUES="1", CUDA_STAND_IN_DRIVER_LOCK="1")
        gpu_parts.hold_one(run, "1", "greatest", "late")
        self.assertEqual(run.problems, [])
        self.assertEqual(list(run.figures[self.CASE]), gpu_parts.HELD)

    def test_a_driver_without_memory_fails(self):
        run = self.part(CUDA_STAND_IN_MEMORY=str(8 << 20))
        gpu_parts.hold_one(run, "1", "greatest", "late")
        self.assertEqual(len(run.problems), len(gpu_parts.HELD))
        self.assertRegex(run.problems[0], f"^free, {self.CASE}: rank . ended with 1\\n.*OUT_OF_MEMORY")


class PreloadTest(BuiltTest):
    def test_one_rank_of_nccl_is_left_alone(self):
        run = self.part()
        # The stand-in for NCCL connects threads, so there is one rank.
        run.machine["nccl"] = {"path": str(BUILT / "tests/support/nccl/libnccl.so.2"), "version": "22809"}
        gpu_preload.one_rank(run)
        self.assertEqual(run.problems, [])
        self.assertEqual(list(run.figures), [f"{way}_1_ranks_ms" for way in gpu_preload.WAYS])


class SweepTest(BuiltTest):
    def test_counts_launches_and_checks_results(self):
        run = self.part()
        sizes = ["-b", "4K", "-e", "64K", "-f", "16", "-n", "4", "-c", "1"]
        small, large = gpu_speed.sweep_rows(run, "socket", "sweep", sizes)
        self.assertEqual(run.problems, [])
        self.assertEqual((small["bytes"], large["bytes"]), (4 << 10, 64 << 10))
        for row in small, large:
            self.assertIn(row["ef_kernels"], range(3, 20))  # compress, reduce, decode, and their checks
            self.assertEqual(row["dense_kernels"], 0)  # the host adds
            self.assertGreater(row["dense_others"], 2)  # to the host and back, a flag and a wait
            self.assertGreater(row["dense_us"], row["dense_host_us"])


if __name__ == "__main__":
    if not (BUILT / "perf/all_reduce_perf").exists():
        print("the sweep tools are off")
        sys.exit(77)
    unittest.main()
