# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run as far as it goes without a GPU: run_test.py FOLDER_OF_IT FOLDER_OF_STAND_IN

What it says where there is none; on the stand-in for CUDA's driver, what a call does with its time and
its report; and what it makes of figures. And that tests/gpu/make-deps copies what a build needs, and no
more.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()
STAND_IN = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(FOLDER))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import gpu_parts  # noqa: E402
import gpu_preload  # noqa: E402
import gpu_speed  # noqa: E402
from waiting import comes_true  # noqa: E402


class WithoutGpuTest(unittest.TestCase):
    def run_it(self, *options: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            # Found before the machine's own driver, if there is one.
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
        self.assertIn("no part is called engines: there are codec, kernels, hold", done.stderr)


ALL = ["codec", "kernels", "hold", "staged", "nccl", "graph", "preload", "sweep", "torch", "sanitizer"]
KERNELS = "tests/kernels/cuda_kernels_gpu_test"
STAGED = "tests/gpu/staged_ranks"


class BuildFolder(unittest.TestCase):
    """With programs that stand in for those that need a GPU."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name).resolve()

    def make(self, path: str, code: str) -> None:
        program = self.build / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!{sys.executable}\n{code}\n")
        program.chmod(0o755)


class CallTest(BuildFolder):
    """Whole calls, with the stand-in for CUDA's driver."""

    def setUp(self):
        super().setUp()
        self.make(KERNELS, "print('[  PASSED  ] 106 tests.')")
        self.make(STAGED, "print('[  PASSED  ] 12 tests.')")
        self.make("bin/cmake", "")
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(STAND_IN), "CUDA_STAND_IN_DEVICES": "1",
                            "PATH": f"{self.build}/bin:{os.environ['PATH']}"}

    def start(self, *options: str) -> subprocess.Popen:
        command = [FOLDER / "run", "--build", self.build, "--deps", self.build / "no-deps", *options]
        return subprocess.Popen(command, env=self.environment, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def call(self, *options: str, status: int = 0) -> str:
        call = self.start(*options)
        output, _ = call.communicate(timeout=60)
        self.assertEqual(call.returncode, status, output)
        return output

    def rows(self) -> dict[str, dict]:
        return {row["name"]: row for row in json.loads((self.build / "report.json").read_text())["parts"]}

    def statuses(self) -> dict[str, str]:
        return {name: row["status"] for name, row in self.rows().items()}

    def begun(self, output: str) -> list[str]:
        return re.findall(r"(?m)^(\w+) \.\.\.$", output)

    def test_parts_run_in_the_given_order(self):
        output = self.call("staged", "kernels", "staged", "--no-build")
        self.assertEqual(self.begun(output), ["staged", "kernels"])
        rows = self.rows()
        self.assertLessEqual(rows["staged"]["started"], rows["kernels"]["started"])

    def test_all_parts_have_an_order(self):
        # Most programs are missing: their parts fail, and the next one begins.
        self.assertEqual(self.begun(self.call("--no-build", status=1)), ALL)
        self.assertEqual(list(self.rows()), ALL)
        self.assertIn("no program", self.rows()["codec"]["detail"])
        self.assertEqual(self.statuses()["kernels"], "passed")

    def test_a_quick_call_has_some_parts_and_cases(self):
        self.make(KERNELS, "import sys; print(sys.argv[1:], '\\n[  PASSED  ] 10 tests.')")
        output = self.call("--quick", "--no-build", status=1)
        self.assertEqual(self.begun(output), ["codec", "kernels", "hold", "sweep"])
        self.assertIn("filter=-*EveryPosition*", (self.build / "output.txt").read_text())

    def test_pytorch_is_found_or_missed(self):
        self.environment["TORCH_PYTHON"] = str(self.build / "no-python")
        self.call("torch", "--no-build")
        self.assertEqual(self.statuses(), {"torch": "skipped"})
        self.make("bin/torch-python", "")
        self.make("bindings/python/onebit/_native.py", "")
        figures = {"torch": "2", **{way: {"step_ms": 1.5} for way in ("dense", "fp4", "sign")}}
        self.make("perf/onebit_run", f"print('torch_ranks:', {json.dumps(json.dumps(figures))})")
        self.environment["TORCH_PYTHON"] = "torch-python"
        self.call("torch", "--no-build")
        self.assertEqual(self.statuses(), {"torch": "passed"})
        self.assertEqual(self.rows()["torch"]["figures"], figures)

    def test_a_part_that_hangs_ends_at_its_limit(self):
        self.make(KERNELS, "import time; time.sleep(60)")
        self.call("kernels", "staged", "--no-build", "--limit", "kernels=3", "--limit", "60", status=1)
        self.assertEqual(self.statuses(), {"kernels": "failed", "staged": "passed"})
        self.assertIn("not done after 3 s", self.rows()["kernels"]["detail"])

    def test_everything_to_bring_back_is_in_one_folder(self):
        self.make("bin/nvidia-smi", "print('Driver Version : 580')")
        out = self.build / "some" / "out"
        self.call("kernels", "--no-build", "--out", str(out))
        self.assertEqual(sorted(path.name for path in out.iterdir()),
                         ["nvidia-smi.txt", "output.txt", "report.json", "report.txt"])
        self.assertEqual((out / "nvidia-smi.txt").read_text(), "Driver Version : 580\n")
        self.assertRegex((out / "output.txt").read_text(),
                         r"^==== kernels, kernels of .*\n\[  PASSED  \] 106 tests\.\n")
        self.assertIn("passed   kernels", (out / "report.txt").read_text())

    def test_calls_share_a_report(self):
        self.call("staged", "--commit", "first")
        before = self.rows()
        time.sleep(1.1)  # times in it have a resolution of one second
        output = self.call("kernels", "--no-build", "--commit", "second")
        self.assertEqual(self.statuses(), {"build": "passed", "kernels": "passed", "staged": "passed"})
        rows = self.rows()
        self.assertEqual(rows["staged"], before["staged"])
        self.assertGreater(rows["kernels"]["started"], rows["staged"]["started"])
        self.assertEqual(rows["kernels"]["commit"], "first")  # the commit that was built
        self.assertEqual(rows["kernels"]["figures"], {"tests": 106})
        self.assertRegex(output, r"(?m)^commit    second$")
        self.assertRegex(output, r"(?m)^passed   staged .*tests 12\n    commit first$")
        self.assertIn("3 passed, 0 failed, 0 skipped, 0 not run", output)

    def test_a_part_that_runs_again_has_its_last_result(self):
        self.call("kernels", "--no-build", "--commit", "first")
        self.make(KERNELS, "raise SystemExit(3)")
        self.call("kernels", "--commit", "second", status=1)
        self.assertEqual(self.statuses(), {"build": "passed", "kernels": "failed"})
        self.assertEqual(self.rows()["kernels"]["commit"], "second")
        self.call("staged", "--no-build")  # does not include the other part's failure
        self.assertEqual(self.statuses(), {"build": "passed", "kernels": "failed", "staged": "passed"})

    def test_a_fresh_report_has_this_call_only(self):
        self.call("kernels", "--no-build")
        self.call("staged", "--no-build", "--fresh")
        self.assertEqual(self.statuses(), {"staged": "passed"})

    def test_a_report_that_cannot_be_read_is_replaced(self):
        for text in ("", "[1]", '{"parts": [{"name": "kernels"}]}'):
            (self.build / "report.json").write_text(text)
            self.call("staged", "--no-build")
            self.assertEqual(self.statuses(), {"staged": "passed"})

    def test_what_there_is_no_time_for_is_not_run(self):
        self.make(KERNELS, "import time; time.sleep(60)")
        output = self.call("kernels", "staged", "--no-build", "--limit", "8", status=1)
        self.assertEqual(self.statuses(), {"kernels": "not run", "staged": "not run"})
        self.assertRegex(self.rows()["kernels"]["detail"], "^no time left: kernels was not done after [1-5] s$")
        self.assertEqual(self.rows()["staged"]["detail"], "no time left")
        self.assertIn("go on with: tests/gpu/run kernels staged\n", output)
        self.call("staged", "--no-build")
        self.assertEqual(self.statuses(), {"kernels": "not run", "staged": "passed"})

    def test_a_failure_that_was_seen_counts_without_time_for_the_rest(self):
        self.make(KERNELS, "import time; print('[  FAILED  ] A.B', flush=True); time.sleep(60)")
        self.call("kernels", "--no-build", "--limit", "8", status=1)
        self.assertEqual(self.statuses(), {"kernels": "failed"})

    def test_the_build_is_part_of_the_time(self):
        self.make("bin/cmake", "import sys, time; time.sleep(60 if '--build' in sys.argv else 0)")
        self.call("staged", "--limit", "8", status=1)
        self.assertEqual(self.statuses(), {"build": "not run", "staged": "not run"})
        self.assertIn("build was not done after", self.rows()["build"]["detail"])

    def test_nothing_runs_after_a_build_that_failed(self):
        self.make("bin/cmake", "import sys; sys.exit('no such compiler')")
        output = self.call("staged", status=1)
        self.assertEqual(self.statuses(), {"build": "failed", "staged": "not run"})
        self.assertEqual(self.rows()["staged"]["detail"], "the build failed")
        self.assertIn("no such compiler", output)

    def test_a_call_that_is_killed_leaves_a_report_and_no_program(self):
        self.make(KERNELS, "import os, time; print(os.getpid(), flush=True); time.sleep(60)")
        call = self.start("staged", "kernels")
        self.addCleanup(call.communicate)
        self.addCleanup(call.kill)
        log = self.build / "logs/kernels"
        self.assertTrue(comes_true(lambda: log.exists() and log.read_text().endswith("\n")))
        call.kill()
        self.assertEqual(call.wait(20), -signal.SIGKILL)
        self.assertEqual(self.statuses(), {"build": "passed", "staged": "passed"})
        self.assertIn("12 tests", (self.build / "output.txt").read_text())
        command = pathlib.Path(f"/proc/{int(log.read_text())}/cmdline")
        # A zombie has no command.
        self.assertTrue(comes_true(lambda: not (command.exists() and command.read_bytes())), "the program goes on")

    def test_programs_have_the_library_of_this_build(self):
        self.make(KERNELS, "import os\nprint(os.environ['LD_LIBRARY_PATH'].split(':')[0])\n"
                  "print(os.environ['CUDA_TEST_DEVICE_FOLDER'])\nprint('[  PASSED  ] 1 test.')")
        self.call("kernels", "--no-build")
        self.assertEqual((self.build / "logs/kernels").read_text().splitlines()[:2],
                         [str(self.build / "src")] * 2)

    def test_libraries_of_make_deps_come_last(self):
        library = self.build / "deps/usr/lib/some-linux/libhwloc.so.15"
        library.parent.mkdir(parents=True)
        library.touch()
        self.make(KERNELS, "import os\nprint(os.environ['LD_LIBRARY_PATH'])\nprint('[  PASSED  ] 1 test.')")
        self.call("kernels", "--no-build", "--deps", str(self.build / "deps"))
        self.assertEqual((self.build / "logs/kernels").read_text().splitlines()[0],
                         f"{self.build}/src:{STAND_IN}:{library.parent}")

    def test_a_limit_is_a_number_of_seconds(self):
        for limit in ("0", "-3", "nan", "inf", "soon", "kernels=", "engines=3"):
            self.assertIn("--limit", self.call("--limit=" + limit, status=2))


class FiguresTest(BuildFolder):
    def setUp(self):
        super().setUp()
        end = time.monotonic() + 60
        self.run_of_part = gpu_parts.Run(self.build, self.build / "logs", dict(os.environ),
                                         {"nccl": None, "gpus": ["stand-in"]}, end, end)

    def make_codec_perf(self, share: float, before: str = "") -> None:
        rows = [{"name": name, "gbps": 1.5, "copy_gbps": 2, "ceiling_share": share}
                for name in (*gpu_speed.CODEC_LIMITS, "Sign")]
        self.make("perf/codec_perf", f"""import json, re, sys
options = dict(a.split('=', 1) for a in sys.argv if '=' in a)
names, out = options['--benchmark_filter'], options['--benchmark_out']
{before}
rows = [row for row in {rows!r} if bool(re.search(names.lstrip('-'), row['name'])) != (names[0] == '-')]
json.dump({{'benchmarks': rows}}, open(out, 'w'))""")

    def test_shares_that_are_reached_count_once(self):
        self.make_codec_perf(0.9)
        gpu_speed.codec(self.run_of_part)
        self.assertEqual(self.run_of_part.problems, [])
        self.assertEqual(set(self.run_of_part.figures["shares"].values()), {0.9})
        self.assertEqual(len(self.run_of_part.written), 2)
        self.assertRegex(self.run_of_part.table[0],
                         "^EfCompress/fp32/block4096 .* 0.900 of a copy, limit 0.9$")
        self.assertRegex(self.run_of_part.table[-1], "^Sign .* 0.900 of a copy$")

    def test_shares_that_are_missed_fail_after_all_tries(self):
        self.make_codec_perf(0.82)
        gpu_speed.codec(self.run_of_part)
        self.assertEqual(self.run_of_part.problems,
                         ["EfCompress/fp32/block4096: 0.820 of a copy, not 0.9",
                          "Decode/fp32: 0.820 of a copy, not 0.85"])
        self.assertEqual(len(self.run_of_part.written), 1 + gpu_speed.CODEC_TRIES)

    def test_a_benchmark_that_fails_keeps_the_figures_before_it(self):
        for fails in ("others", "retry"):
            with self.subTest(fails):
                self.setUp()
                self.make_codec_perf(0.82, f"if 'codec-{fails}' in out: sys.exit('out of memory')")
                with self.assertRaisesRegex(gpu_parts.Failure, "out of memory"):
                    gpu_speed.codec(self.run_of_part)
                self.assertEqual({self.run_of_part.figures["shares"][name]
                                  for name in gpu_speed.CODEC_LIMITS}, {0.82})
                self.assertEqual(len(self.run_of_part.problems), 2)

    def test_what_hangs_is_named_and_the_rest_is_tried(self):
        self.make("tests/cuda/cuda_late_peer", """import sys, time
for held in sys.argv[3:]:
    print(f"late_peer: {held} ...", flush=True)
    if held in ("load", "nothing"):
        time.sleep(60)
    print(f"late_peer: {held} took 0.250 s", flush=True)""")
        with mock.patch.object(gpu_parts, "HOLD_S", 1):
            gpu_parts.hold_one(self.run_of_part, "1", "greatest", "late")
        self.assertEqual([problem.splitlines()[0] for problem in self.run_of_part.problems],
                         [f"{held}, late peer, greatest priority, 1 connections: not done after 1 s"
                          for held in ("load", "nothing")])
        self.assertEqual(self.run_of_part.figures, {"late peer, greatest priority, 1 connections":
                                                    dict.fromkeys(["free", "free_host", "allocate"], 0.25)})

    def test_tests_are_counted(self):
        self.make(KERNELS, "print('[  PASSED  ] 106 tests.')")
        gpu_parts.kernels(self.run_of_part)
        self.assertEqual(self.run_of_part.figures, {"tests": 106})

    def test_a_test_that_fails_is_shown(self):
        self.make(KERNELS,
                  "import sys\nprint('a.cc:7: Failure\\n  1 is not 2'); sys.exit(1)")
        with self.assertRaisesRegex(gpu_parts.Failure, "ended with 1\na.cc:7: Failure\n  1 is not 2"):
            gpu_parts.kernels(self.run_of_part)

    def test_no_test_at_all_is_a_failure(self):
        self.make(KERNELS, "print('[  PASSED  ] 0 tests.')")
        with self.assertRaisesRegex(gpu_parts.Failure, "no test ran"):
            gpu_parts.kernels(self.run_of_part)

    def test_without_nccl_its_part_is_skipped(self):
        with self.assertRaisesRegex(gpu_parts.Skip, "ONEBIT_NCCL_LIB"):
            gpu_parts.nccl(self.run_of_part)

    def make_preload_ranks(self, **changed) -> None:
        """Those of a job with the interposer or the drop-in differ by `changed`."""
        self.run_of_part.machine["nccl"] = {"path": "libnccl.so.2", "version": "0"}
        self.make("tests/gpu/preload_ranks", f"""import json, os
ranks, has_rules = int(os.environ['WORLD_SIZE']), 'ONEBIT_NCCL_RULES' in os.environ
is_compressed = has_rules and ranks > 1
row = {{'digest': 'abc', 'exact_error': 1e-7, 'last_error': 0.1 if is_compressed else 1e-7,
       'mean_error': 0.01 if is_compressed else 1e-7, 'step_ms': 2.5, 'calls': 120}}
if has_rules:
    row |= {changed!r}
    print(f"-   {{ranks}}  allreduce      float32   {{row['calls']}}   12000  no rule")
if row['digest'] == 'rank':
    row['digest'] = os.environ['RANK']
print('preload_ranks:', json.dumps(row))""")

    def test_results_beside_the_interposer_are_compared(self):
        self.make_preload_ranks()
        gpu_preload.preload(self.run_of_part)
        self.assertEqual(self.run_of_part.problems, [])
        self.assertEqual(self.run_of_part.figures, {f"{way}_{ranks}_ranks_ms": 2.5 for ranks in (1, 2)
                                                    for way in gpu_preload.WAYS})
        self.assertEqual(self.run_of_part.table[1], "2 ranks, interposer: 2.500 ms a step, a compressed call "
                                                    "misses by 0.1, their mean by 0.01")

    def test_what_the_interposer_gets_wrong_is_named(self):
        for changed, problem in (
            ({"digest": "other"}, "1 rank: results of the interposer differ from NCCL's"),
            ({"digest": "rank"}, "2 ranks, drop-in: ranks have different results"),
            ({"exact_error": 0.1}, "2 ranks, interposer: calls that nothing compresses miss by 0.1"),
            ({"last_error": 1e-7}, "2 ranks, interposer: calls to be compressed miss by 1e-07"),
            ({"last_error": 0.5}, "2 ranks, interposer: calls to be compressed miss by 0.5"),
            ({"mean_error": 0.1}, "2 ranks, drop-in: the mean of compressed calls misses by 0.1"),
            ({"calls": 7}, "1 ranks, interposer: calls that were seen: {'no rule': 7}, not 120: "
                           "preload-1-interposer.rank0"),
        ):
            with self.subTest(changed):
                self.setUp()
                self.make_preload_ranks(**changed)
                gpu_preload.preload(self.run_of_part)
                self.assertIn(problem, self.run_of_part.problems)


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
            name = "usr/lib/*/libhwy.so.1"  # if it exists
            self.assertEqual(len(list(copy.glob(name))), len(list(pathlib.Path("/").glob(name))))
            files = [path for path in copy.rglob("*") if path.is_file()]
            self.assertEqual([path for path in copy.rglob("*") if not path.exists()], [])
            self.assertLess(sum(path.stat().st_size for path in files), 40 << 20)
            again = subprocess.run([FOLDER / "make-deps", "deps"], cwd=folder, text=True,
                                   capture_output=True, timeout=60, check=False)
            self.assertEqual(again.returncode, 0, again)
            self.assertIn(str(copy), again.stdout)

    def test_leaves_files_of_others_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            mine = pathlib.Path(folder, "thesis.txt")
            mine.write_text("mine", encoding="utf-8")
            done = subprocess.run([FOLDER / "make-deps", folder], text=True, capture_output=True,
                                  timeout=60, check=False)
            if done.returncode == 1 and ("no Debian" in done.stderr or "not installed" in done.stderr):
                self.skipTest(done.stderr)
            self.assertEqual(done.returncode, 1, done)
            self.assertIn("not of this command", done.stderr)
            self.assertEqual(mine.read_text(encoding="utf-8"), "mine")


if __name__ == "__main__":
    unittest.main()
