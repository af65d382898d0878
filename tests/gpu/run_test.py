# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run as far as it goes without a GPU: run_test.py FOLDER_OF_IT

What it says where there is none, and what it makes of figures. And that tests/gpu/make-deps copies what
a build needs, and no more.
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
