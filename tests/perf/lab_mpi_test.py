# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/lab mpirun with the MPIs that are installed: lab_mpi_test.py [ALL_REDUCE_PERF]"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import lab_case

TOOL = ""
SOURCE = pathlib.Path(__file__).with_name("lab_mpi_program.c")
PROGRAMS: dict[str, str] = {}  # by MPI
COUNT = 1 << 18


class LabMpiTest(lab_case.LabTestCase):
    def lab(self, mpi: str, *arguments: str) -> list[str]:
        return ["mpirun", "--mpi", mpi, "--hosts", "3", "--rate", "1gbit", "--grace", "1", *arguments]

    def test_ranks_reach_each_other_through_their_links(self):
        for mpi, program in PROGRAMS.items():
            with self.subTest(mpi=mpi):
                report, output = self.report_of(*self.lab(mpi, program, str(COUNT)))
                ranks = re.findall(r"rank (\d) of 3 on (host\d)-\w+ has 6", output)
                self.assertEqual(sorted(ranks), [(str(i), f"host{i}") for i in range(3)], output)
                # An allreduce sends at least 2 (n - 1) / n of its bytes on average, headers or not.
                least = 4 * COUNT * 2 * 2 / 3
                sent = sum(link["sent_bytes"] for link in report["links"]) / 3
                self.assertGreater(sent, least)
                self.assertLess(sent, 4 * least)

    def test_ranks_of_a_host_have_numbers_in_a_row(self):
        place = 'echo "rank ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} on $(hostname) $ONEBIT_HOST."'
        for mpi in PROGRAMS:
            with self.subTest(mpi=mpi):
                report, output = self.report_of(*self.lab(mpi, "--ranks-per-host", "2,1,3", "sh", "-c", place))
                ranks = sorted(re.findall(r"rank (\d) on (host\d)-(\w+) \2-\3\.", output))
                self.assertEqual([host for _, host, _ in ranks],
                                 ["host0", "host0", "host1", "host2", "host2", "host2"], output)
                self.assertEqual((report["hosts"], report["ranks_per_host"]), (3, [2, 1, 3]))

    def test_ranks_of_a_host_share_memory_and_a_link(self):
        if "openmpi" not in PROGRAMS:  # MPICH's launcher kills the neighbours of a rank that skips MPI_Finalize
            self.skipTest("there is no Open MPI")
        report, output = self.report_of(*self.lab("openmpi", "--ranks-per-host", "3", "--mpi-arg=--mca",
                                                  "--mpi-arg=coll_tuned_use_dynamic_rules", "--mpi-arg=1",
                                                  "--mpi-arg=--mca", "--mpi-arg=coll_tuned_allreduce_algorithm",
                                                  "--mpi-arg=4", PROGRAMS["openmpi"], str(COUNT)))
        self.assertEqual(len(re.findall(r"rank \d of 9 on host\d-\w+ has 45", output)), 9, output)
        ring = 4 * COUNT * 2 * 8 / 9  # of the neighbours in a ring, one pair of each two hosts uses the link
        for link in report["links"]:
            self.assertGreater(link["sent_bytes"], ring)
            self.assertLess(link["sent_bytes"], 1.25 * ring)

    def test_an_abort_is_the_status(self):
        for mpi, program in PROGRAMS.items():
            with self.subTest(mpi=mpi):
                result = self.run_lab(*self.lab(mpi, program, "1", "abort"))
                self.assertEqual(result.returncode, 7, result)

    def test_nothing_is_left_after_a_signal(self):
        for mpi, program in PROGRAMS.items():
            with self.subTest(mpi=mpi):
                ready = self.folder / f"{mpi}.ready"
                lab = self.start(*self.lab(mpi, program, "1", "wait", str(ready)))
                self.wait_for_file(ready)
                lab.send_signal(signal.SIGTERM)
                result = self.finish(lab)
                self.assertEqual(result.returncode, 128 + signal.SIGTERM, result)
                self.assertEqual(self.leftovers(), [])

    def test_arguments_go_to_the_launcher(self):
        for mpi, argument in (("openmpi", "--tag-output"), ("mpich", "-l")):
            if mpi in PROGRAMS:
                result = self.run_lab(*self.lab(mpi, f"--mpi-arg={argument}", "echo", "hello"))
                self.assertEqual(result.returncode, 0, result)
                self.assertEqual(len(re.findall(r"(?m)^\[.*hello$", result.stdout)), 3, result)

    def test_the_library_finds_its_ranks(self):
        for mpi in PROGRAMS:
            with self.subTest(mpi=mpi):
                report, output = self.report_of(*self.lab(
                    mpi, TOOL, "--transport", "socket", "-b", "64K", "-e", "64K", "-n", "2",
                    "--mode", "ef"))
                self.assertIn("# Out of bounds values : 0 OK", output)
                self.assertEqual([count["rank"] for count in report["library"]], [0, 1, 2])


def compile_programs(folder: str) -> None:
    """The program for every MPI that has both a compiler and a launcher here."""
    for mpi in ("openmpi", "mpich"):
        compiler = shutil.which(f"mpicc.{mpi}")
        if compiler is None or shutil.which(f"mpirun.{mpi}") is None:
            print(f"no mpicc.{mpi} or mpirun.{mpi}: left out")
            continue
        PROGRAMS[mpi] = f"{folder}/program-{mpi}"
        subprocess.run([compiler, "-std=gnu11", str(SOURCE), "-o", PROGRAMS[mpi]], check=True)


if __name__ == "__main__":
    lab_case.skip_without_lab()
    TOOL = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as programs:
        compile_programs(programs)
        if not PROGRAMS:
            sys.exit(77)
        unittest.main()
