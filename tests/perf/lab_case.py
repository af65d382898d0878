# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Common parts of the tests of perf/lab: starting it, and looking for leftovers."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import marked_processes  # noqa: E402
from waiting import comes_true  # noqa: E402

LAB = str(pathlib.Path(__file__).resolve().parents[2] / "perf" / "lab")
FOREIGN = re.compile(r"(RANK|WORLD_SIZE|OMPI_.*|PMI_.*|SLURM_.*|ONEBIT_.*)")


def skip_without_lab() -> None:
    """Skips the test if there can be no lab, with the reason that the lab gives."""
    probe = subprocess.run([LAB, "run", "--hosts", "1", "--rate", "1gbit", "true"],
                           capture_output=True, text=True, timeout=60, check=False)
    if probe.returncode == 77:
        print(probe.stderr.strip())
        sys.exit(77)


class LabTestCase(unittest.TestCase):
    """Also fails if a test leaves anything of a lab behind."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # Every process on the hosts inherits this variable and can be found by it.
        self.mark = f"LAB_TEST_MARK={self.folder}"
        self.environment = {name: value for name, value in os.environ.items()
                            if not FOREIGN.fullmatch(name)}
        self.environment |= {"LAB_TEST_MARK": str(self.folder), "TMPDIR": str(self.folder)}
        self.owners: list[int] = []

    def tearDown(self) -> None:
        self.assertTrue(comes_true(lambda: not self.leftovers()), self.leftovers())

    def leftovers(self) -> list[str]:
        """Processes, namespaces and files of the labs of this test."""
        found = [path.name for path in self.folder.iterdir() if path.name.startswith("onebit")]
        namespaces = pathlib.Path("/run/netns")
        for path in namespaces.iterdir() if namespaces.is_dir() else []:
            if any(path.name.startswith(f"onebit-lab-{owner}-") for owner in self.owners):
                found.append(path.name)
        return found + marked_processes.living(self.mark)

    def start(self, *arguments: str) -> subprocess.Popen:
        lab = subprocess.Popen([LAB, *arguments], stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment)
        self.owners.append(lab.pid)
        return lab

    def finish(self, lab: subprocess.Popen) -> subprocess.CompletedProcess:
        output, errors = lab.communicate(timeout=60)
        return subprocess.CompletedProcess(lab.args, lab.returncode, output, errors)

    def run_lab(self, *arguments: str) -> subprocess.CompletedProcess:
        return self.finish(self.start(*arguments))

    def report_of(self, command: str, *arguments: str) -> tuple[dict, str]:
        """Returns the JSON report and standard output of a run that must succeed."""
        path = self.folder / "lab.json"
        result = self.run_lab(command, "--json", str(path), *arguments)
        self.assertEqual(result.returncode, 0, result)
        return json.loads(path.read_text()), result.stdout

    def wait_for_file(self, path: pathlib.Path) -> None:
        self.assertTrue(comes_true(path.exists), f"{path} does not appear")
