# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The backend of PyTorch for one dimension of a mesh, in jobs of real processes.

    torch_backend_test.py ONEBIT_RUN
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from needs_torch import torch
from rank_jobs import Jobs

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 14):
    print(f"PyTorch {torch.__version__} has no backends in Python")
    run = subprocess.run([sys.executable, "-c", "import onebit.torch, onebit.torch.backend"], capture_output=True)
    sys.exit(77 if b"needs PyTorch 2.14 or newer" in run.stderr else run.stderr.decode())

HERE = pathlib.Path(__file__).parent
run_job = Jobs(sys.argv.pop(1), HERE / "torch_backend_rank.py").run


class TorchBackendTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Ranks find the entry point of pyproject.toml, as that of an installed package."""
        packages = tempfile.TemporaryDirectory()
        cls.addClassCleanup(packages.cleanup)
        project = (HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        found = re.search(r'^\[project.entry-points."(torch.distributed.backends)"\]\n(.*)\n', project, re.MULTILINE)
        name, line = found.groups()
        information = pathlib.Path(packages.name, "onebit-0.dist-info")
        information.mkdir()
        (information / "entry_points.txt").write_text(f"[{name}]\n{line.replace(chr(34), '')}\n", encoding="utf-8")
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: onebit\nVersion: 0\n", encoding="utf-8")
        paths = [packages.name, *filter(None, [os.environ.get("PYTHONPATH")])]
        cls.environment = {"PYTHONPATH": os.pathsep.join(paths)}

    def run_ranks(self, ranks, *arguments, **more):
        return run_job(ranks, *arguments, **self.environment, **more)

    def run_cases(self, ranks, kind, number, *names):
        found = self.run_ranks(ranks, kind, *names)
        self.assertEqual(sorted(found), list(range(ranks)))
        for rank, cases in found.items():
            self.assertEqual(len(cases), number)
            for name, result in cases.items():
                with self.subTest(name=name, rank=rank):
                    self.assertIsNone((result or {}).get("failed"), (result or {}).get("failed"))

    def test_collectives(self):
        self.run_cases(4, "collectives", 15)

    def test_two_ranks(self):
        names = ("a_factor_comes_before_the_sum", "compressed_results_are_near_and_alike", "groups_do_not_mix")
        self.run_cases(2, "collectives", 3, *names)

    def test_training(self):
        self.run_cases(4, "training", 6)

    def test_a_killed_rank_is_named_on_all_others(self):
        found = self.run_ranks(3, "a_killed_rank_is_named", is_failing=True)
        self.assertEqual(sorted(found), [0, 2])
        for rank, calls in found.items():
            self.assertEqual(calls.pop("warned"), [])
            self.assertEqual(set(calls), {"wait", "future", "later", "pair", "ddp"})
            for name, (kind, text) in calls.items():
                with self.subTest(name=name, rank=rank):
                    # An error that passes through C++ futures is one of PyTorch, with the text.
                    is_own = name in ("wait", "later", "pair")
                    self.assertEqual(kind in ("PeerLost", "RemoteError"), is_own, kind)
                    number = "rank 0 (global rank 1) " if name == "pair" and rank == 2 else "rank 1 "
                    self.assertIn(number, text)
                    self.assertEqual("global" in text, "global" in number)
                    self.assertRegex(text, "is gone|lost")

    def test_a_program_ends_without_the_others(self):
        self.assertEqual(len(self.run_ranks(2, "ends_with_calls_of_its_own")), 2)
        found = self.run_ranks(2, "one_leaves_while_others_wait")
        self.assertEqual(found[1]["error"][0], "RemoteError")
        self.assertIn("rank 0 has left", found[1]["error"][1])

    def test_it_can_be_the_default_group_and_checked_by_pytorch(self):
        self.assertEqual(len(self.run_ranks(2, "default")), 2)
        self.assertEqual(len(self.run_ranks(2, "default", TORCH_DISTRIBUTED_DEBUG="DETAIL")), 2)

    def test_import_of_the_package_is_enough_to_use_it(self):
        code = "import onebit.torch; print(onebit.torch.backend.Options().min_bytes, hasattr(onebit.torch, 'none'))"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(found.stdout, "65536 False\n")

    def test_pytorch_imports_it_only_when_it_is_named(self):
        program = (
            "import sys, torch.distributed as dist, onebit.torch\n"
            "assert 'onebit.torch.backend' not in sys.modules and 'onebit' not in dist.Backend.backend_list\n"
            "import onebit.torch.backend\n"
            "for _ in range(2): onebit.torch.backend.register()\n"
            "assert dist.Backend.backend_list.count('onebit') == 1\n"
        )
        subprocess.run([sys.executable, "-B", "-c", program], check=True)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    unittest.main()
