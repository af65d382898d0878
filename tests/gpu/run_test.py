# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run as far as it goes without a GPU: run_test.py FOLDER_OF_IT

What it says where there is none, how it starts ranks and ends what hangs, and what it makes of
figures. And that tests/gpu/make-deps copies what a build needs, and no more.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(FOLDER))

import parts  # noqa: E402
import processes  # noqa: E402


def is_running(pid: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


class WithoutGpuTest(unittest.TestCase):
    def run_it(self, *options: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            # Found before the machine's own driver, if it has one.
            pathlib.Path(folder, "libcuda.so.1").touch()
            environment = {**os.environ, "LD_LIBRARY_PATH": folder}
            return subprocess.run([FOLDER / "run", *options], env=environment, text=True,
                                  capture_output=True, timeout=60, check=False)

    def test_says_so_and_exits_with_77(self):
        done = self.run_it()
        self.assertEqual(done.returncode, 77, done)
        self.assertIn("tests/gpu/run: no GPU: CUDA's driver cannot be loaded", done.stdout)

    def test_knows_its_parts(self):
        done = self.run_it("kernels", "engines")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("no part is called engines: there are kernels, staged", done.stderr)


class ProcessesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_ranks(self, code: str, limit_s: float = 30, ranks: int = 3) -> processes.Ended:
        return processes.run_ranks(ranks, [sys.executable, "-c", code], dict(os.environ),
                                   self.folder / "log", limit_s, parts.rank_variables(is_shared=True))

    def test_ranks_know_who_they_are(self):
        ended = self.run_ranks("import os; print(*[os.environ[name] for name in ('RANK', 'WORLD_SIZE',"
                               "'NCCL_HOSTID', 'NCCL_SOCKET_IFNAME', 'CUDA_VISIBLE_DEVICES')])")
        self.assertEqual(ended.problem, "")
        self.assertEqual([log.read_text() for log in ended.logs],
                         [f"{rank} 3 onebit-rank-{rank} =lo 0\n" for rank in range(3)])

    def test_a_rank_that_fails_is_named(self):
        ended = self.run_ranks("import os, sys; sys.exit(os.environ['RANK'] == '2')")
        self.assertEqual(ended.problem, "rank 2 ended with 1")

    def test_what_hangs_is_ended(self):
        code = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
        start = time.monotonic()
        ended = self.run_ranks(code, limit_s=2, ranks=2)
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual(ended.problem, "not done after 2 s")
        children = [int(pid) for pid in ended.text().split()]
        self.assertEqual(len(children), 2)
        while any(is_running(child) for child in children):
            self.assertLess(time.monotonic() - start, 20, "a child goes on")
            time.sleep(0.05)


    def test_what_runs_is_ended_with_its_starter(self):
        code = ("import pathlib, signal, sys, processes\n"
                "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
                "processes.run(['sh', '-c', 'echo $$; exec sleep 60'], {'PATH': '/usr/bin:/bin'},\n"
                "              pathlib.Path(sys.argv[1]), 60)\n")
        log = self.folder / "log"
        starter = subprocess.Popen([sys.executable, "-B", "-c", code, log], cwd=FOLDER)
        deadline = time.monotonic() + 20
        while not (log.exists() and log.read_text().endswith("\n")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        child = int(log.read_text())
        starter.terminate()
        self.assertEqual(starter.wait(20), 143)
        self.assertFalse(is_running(child))


class FiguresTest(unittest.TestCase):
    """Parts, on programs that stand in for those that need a GPU."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        self.run_of_parts = parts.Run(self.build, dict(os.environ), {"nccl": None, "gpus": ["stand-in"]},
                                      time.monotonic() + 60)

    def make(self, path: str, code: str) -> None:
        program = self.build / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!{sys.executable}\n{code}\n")
        program.chmod(0o755)

    def make_codec_perf(self, share: float) -> None:
        row = {"name": parts.CODEC_FIGURE, "gbps": 1.5, "ceiling_share": share}
        self.make("perf/codec_perf", "import sys\n"
                  "out = [a.split('=')[1] for a in sys.argv if a.startswith('--benchmark_out=')][0]\n"
                  f"open(out, 'w').write({json.dumps(json.dumps({'benchmarks': [row]}))})")

    def test_a_share_that_is_reached_counts_once(self):
        self.make_codec_perf(0.9)
        self.assertEqual(parts.codec(self.run_of_parts)["ceiling_share"], [0.9])

    def test_a_share_that_is_missed_fails_after_all_tries(self):
        self.make_codec_perf(0.5)
        with self.assertRaisesRegex(parts.Failure, "0.500 of the ceiling, not 0.85") as failure:
            parts.codec(self.run_of_parts)
        self.assertEqual(failure.exception.figures["ceiling_share"], [0.5] * parts.CODEC_TRIES)
        self.assertEqual(len(list(self.build.glob("logs/codec-*.json"))), parts.CODEC_TRIES)

    def test_tests_are_counted(self):
        self.make("tests/kernels/cuda_kernels_gpu_test", "print('[  PASSED  ] 106 tests.')")
        self.assertEqual(parts.kernels(self.run_of_parts), {"tests": 106})

    def test_a_test_that_fails_is_shown(self):
        self.make("tests/kernels/cuda_kernels_gpu_test",
                  "import sys\nprint('a.cc:7: Failure\\n  1 is not 2'); sys.exit(1)")
        with self.assertRaisesRegex(parts.Failure, "ended with 1\na.cc:7: Failure\n  1 is not 2"):
            parts.kernels(self.run_of_parts)

    def test_no_test_at_all_is_a_failure(self):
        self.make("tests/kernels/cuda_kernels_gpu_test", "print('[  PASSED  ] 0 tests.')")
        with self.assertRaisesRegex(parts.Failure, "no test ran"):
            parts.kernels(self.run_of_parts)

    def test_without_nccl_its_part_is_skipped(self):
        with self.assertRaisesRegex(parts.Skip, "ONEBIT_NCCL_LIB"):
            parts.nccl(self.run_of_parts)


class MakeDepsTest(unittest.TestCase):
    def test_copies_what_a_build_needs(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder, "deps")
            done = subprocess.run([FOLDER / "make-deps", copy], text=True, capture_output=True,
                                  timeout=60, check=False)
            if done.returncode == 1 and ("no Debian" in done.stderr or "not installed" in done.stderr):
                self.skipTest(done.stderr)
            self.assertEqual(done.returncode, 0, done)
            for name in ("usr/include/fmt/format.h", "usr/include/sodium.h", "usr/include/gtest/gtest.h",
                         "usr/include/CLI/CLI.hpp", "usr/include/nlohmann/json.hpp", "usr/bin/pkgconf",
                         "usr/lib/*/libsodium.so", "usr/lib/*/libgmock.a", "usr/lib/*/libbenchmark.so.1*"):
                self.assertTrue(list(copy.glob(name)), name)
            files = [path for path in copy.rglob("*") if path.is_file()]
            self.assertEqual([path for path in copy.rglob("*") if not path.exists()], [])
            self.assertLess(sum(path.stat().st_size for path in files), 40 << 20)


if __name__ == "__main__":
    unittest.main()
