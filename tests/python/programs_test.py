# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The demo and the doctor run, and need no other package; a folder of sources says what it lacks."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"


def output_of(*arguments: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-B", *arguments],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


class ProgramsTest(unittest.TestCase):
    def test_demo_shows_bytes_and_errors(self):
        text = output_of("-m", "onebit.demo", "-n", "2", "--elements", "2048", "--calls", "3")
        self.assertRegex(text, r"2 processes average 2048 floats, 3 times\.")
        # Half of the floats in each of two messages; all codes, with their scales, in one.
        self.assertRegex(text, rf"dense +{2 * (64 + 4 * 1024)} bytes +1.0x +0.00% +0.00%")
        self.assertRegex(text, rf"fp4 +{64 + 2 * 16 + 1024} bytes +\d\.\dx")
        self.assertRegex(text, r"sign +\d+ bytes +\d+\.\dx")

    def test_doctor_says_what_is_here_and_measures(self):
        text = output_of("-m", "onebit.doctor", "--mebibytes", "1", ONEBIT_GROUP_ELEMENTS="1000")
        self.assertIn(os.environ["ONEBIT_LIBRARY"], text)
        self.assertRegex(text, "transports +local, socket")
        self.assertIn("setting     ONEBIT_GROUP_ELEMENTS=1000", text)
        self.assertIn("2 ranks average 262144 floats (1 MiB)", text)
        self.assertRegex(text, r"fp4 (pays|does not pay) here\. With computing as above it pays")

    def test_doctor_says_why_pytorch_ignores_a_setting(self):
        variables = {"ONEBIT_TORCH_DDP": "fp4", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        text = output_of("-m", "onebit.doctor", "--no-measurement", **variables)
        self.assertIn("setting     ONEBIT_TORCH_DDP=fp4\n            trainers fail or ignore it: ", text)
        self.assertIn("ignore it: TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns entry points off\n", text)
        self.assertNotIn("onebit is not installed", text)
        code = (
            "import importlib.metadata as metadata\n"
            "from onebit import doctor\n"
            "doctor.mistakes_in = lambda value: []\n"
            "for version in '1.13.1', '2.4.0+cpu', '2.5.0', '2.15.0+cu132':\n"
            "    metadata.version = lambda name: version\n"
            "    print(*doctor.obstacles_of_ddp('fp4'))"
        )
        old = [f"PyTorch {version} loads no entry points; 2.5 and newer do" for version in ("1.13.1", "2.4.0+cpu")]
        self.assertEqual(output_of("-c", code, PATH="").splitlines(), [*old, "", ""])

    def test_doctor_sees_that_torchrun_belongs_to_another_python(self):
        with tempfile.TemporaryDirectory() as folder:
            torchrun = pathlib.Path(folder, "torchrun")
            variables = {"ONEBIT_TORCH_DDP": "fp4", "PATH": folder}
            for interpreter, is_other in (("/elsewhere/bin/python3", True), (sys.executable, False)):
                torchrun.write_text(f"#!{interpreter}\n", encoding="utf-8")
                torchrun.chmod(0o755)
                text = output_of("-m", "onebit.doctor", "--no-measurement", **variables)
                self.assertEqual(f"{torchrun} starts {interpreter}, which is another Python" in text, is_other)

    def test_doctor_says_which_ranks_share_a_host(self):
        measured = ("-m", "onebit.doctor", "--mebibytes", "1")
        self.assertIn("hosts       1, with 2 ranks\n\n", output_of(*measured))
        split = output_of(*measured, ONEBIT_HOST_RANKS="1")
        self.assertIn("hosts       2, with 1 rank each (ONEBIT_HOST_RANKS)\n", split)
        self.assertIn("ONEBIT_HOST_RANKS splits one machine into 2 hosts", split)
        self.assertNotIn("makes", output_of(*measured, ONEBIT_HOST="a"))

    def test_doctor_tells_where_hosts_are_no_machines(self):
        code = (
            "from onebit.doctor import Place, hosts\n"
            "print(*hosts([Place(0, 7), Place(0, 8), Place(1, 9), Place(2, 9)], 'ONEBIT_HOST'), sep='\\n')"
        )
        self.assertEqual(
            output_of("-c", code).splitlines(),
            [
                "hosts       3, with 2, 1 and 1 ranks (ONEBIT_HOST)",
                "            ONEBIT_HOST puts 2 machines into host 0: do they share a link?",
                "            ONEBIT_HOST splits one machine into 2 hosts: does each have a link of its own?",
            ],
        )

    def test_doctor_counts_what_leaves_a_host(self):
        code = (
            "from onebit.doctor import examine, verdict\n"
            "from rank_threads_case import run_ranks\n"
            "(found, costs), *others = run_ranks(4, lambda comm: examine(comm, 1 << 18))\n"
            "assert all(other[0] == found for other in others)\n"
            "print(costs['dense'].link_bytes, costs['fp4'].link_bytes, *verdict(costs, 1 << 18, found), sep='\\n')"
        )
        tests = pathlib.Path(__file__).resolve().parent
        path = f"{os.environ['PYTHONPATH']}:{tests}"
        # Each of two hosts sends half of the tensor twice, each of four one and a half in all.
        for ranks, tensors, sent in ((2, 1, "sent per host"), (0, 1.5, "sent per rank"), (1, 1.5, "sent per host")):
            with self.subTest(ranks=ranks):
                dense, fp4, _, head, *rows = output_of(
                    "-c", code, PYTHONPATH=path, ONEBIT_HOST_RANKS=str(ranks), ONEBIT_TWO_LEVEL_BYTES="65536"
                ).splitlines()
                self.assertIn(sent, head)
                self.assertGreaterEqual(int(dense), tensors * 2**20)
                self.assertLess(int(dense), 1.01 * tensors * 2**20)
                if ranks != 2:  # where they share a host, the library decides if they send one packet
                    self.assertLess(int(fp4), 1.01 * tensors * 2**20 * 4.125 / 32)
                self.assertEqual(rows[-1].endswith(", with one rank on each host."), ranks == 0)

    def test_doctor_says_on_which_links_it_pays(self):
        code = (
            "from onebit.doctor import Cost, Place, verdict\n"
            "found = [Place(rank // 2, 0) for rank in range(4)]\n"
            "costs = {'dense': Cost(2, 1, 10**9), 'fp4': Cost(1, 3, 10**9 // 5), 'sign': Cost(3, 3, 10**9)}\n"
            "print(*verdict(costs, 1 << 18, found), sep='\\n')\n"
            "print(*verdict({**costs, 'sign': Cost(1, 1, 1)}, 1 << 18, found[:2]), sep='\\n')"
        )
        lines = output_of("-c", code).splitlines()
        self.assertEqual(
            [line for line in lines if "pays" in line or "pay" in line],
            [
                "fp4 pays here. With computing as above it pays if the link of a host is below about 3.2 Gbit/s.",
                "sign does not pay here. With computing as above it pays on no link of a host, because it saves no bytes.",
                "fp4 pays here. With computing as above it pays if the link of a host is below about 3.2 Gbit/s, with "
                "one rank on each host.",
                "sign pays here. With computing as above it pays on any link of a host, with one rank on each host.",
            ],
        )

    def test_doctor_measures_the_job_that_it_is_in(self):
        text = output_of("-m", "onebit.doctor", RANK="0", WORLD_SIZE="1")
        self.assertIn("There is only one rank", text)

    def test_neither_imports_other_packages(self):
        code = "import sys, onebit.demo, onebit.doctor; print('numpy' in sys.modules)"
        self.assertEqual(output_of("-c", code), "False\n")

    def test_sources_say_that_they_are_not_built(self):
        result = subprocess.run([sys.executable, "-B", "-c", "import onebit"], text=True, stderr=subprocess.PIPE,
                                env={**os.environ, "PYTHONPATH": str(SOURCES)}, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"ImportError: {SOURCES}/onebit holds the sources of the package", result.stderr)
        self.assertIn("ONEBIT_LIBRARY to src/libonebit.so", result.stderr)


if __name__ == "__main__":
    unittest.main()
