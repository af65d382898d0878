# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How tests/gpu/run starts programs and ends them: processes_test.py FOLDER_OF_IT"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(FOLDER))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import gpu_parts  # noqa: E402
import processes  # noqa: E402
from waiting import comes_true  # noqa: E402


def stat_of(pid: int) -> list[str]:
    """State, parent, ...; empty if there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_running(pid: int) -> bool:
    stat = stat_of(pid)
    return bool(stat) and stat[0] not in "ZX"


def children_of(pid: int) -> list[int]:
    processes_here = (int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit())
    return [child for child in processes_here if stat_of(child)[1:2] == [str(pid)]]


class ProcessesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_ranks(self, code: str, limit_s: float = 30, ranks: int = 3) -> processes.Ended:
        return processes.run_ranks(ranks, [sys.executable, "-c", code], dict(os.environ),
                                   self.folder / "log", limit_s, gpu_parts.rank_variables(is_shared=True))

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
        self.assertTrue(comes_true(lambda: not any(map(is_running, children))), "a child goes on")

    def test_what_is_told_to_end_has_time_for_it(self):
        code = ("import signal, sys, time\n"
                "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('removed half a file')))\n"
                "print('began', flush=True)\ntime.sleep(60)")
        ended = self.run_ranks(code, limit_s=2, ranks=1)
        self.assertTrue(ended.is_late)
        self.assertEqual(ended.text(), "began\nremoved half a file\n")

    def test_what_cannot_be_started_leaves_no_other_rank(self):
        commands = [["sh", "-c", "echo $$; exec sleep 60"], ["/nowhere/program"]]
        programs = [processes.Program(command, dict(os.environ), self.folder / str(rank))
                    for rank, command in enumerate(commands)]
        with self.assertRaises(FileNotFoundError):
            processes._run(programs, 30)
        text = (self.folder / "0").read_text()
        self.assertFalse(text and is_running(int(text)))


class StarterTest(unittest.TestCase):
    """A process that runs a program, which has a child, ends in some way."""

    # The shell is the leader of the group, sleep is its child.
    CODE = ("import pathlib, signal, sys, processes\n"
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
            "processes.run(['sh', '-c', 'sleep 60 & echo $$ $!; wait'], {'PATH': '/usr/bin:/bin'},\n"
            "              pathlib.Path(sys.argv[1]), 60)\n")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        log = pathlib.Path(folder.name, "log")
        self.starter = subprocess.Popen([sys.executable, "-B", "-c", self.CODE, log], cwd=FOLDER,
                                        start_new_session=True)
        self.addCleanup(self.starter.wait)
        self.addCleanup(self.starter.kill)
        self.assertTrue(comes_true(lambda: log.exists() and log.read_text().endswith("\n")))
        self.shell, self.child = map(int, log.read_text().split())

    def require_end_of(self, *pids: int) -> None:
        self.assertTrue(comes_true(lambda: not any(map(is_running, pids))), "something goes on")

    def test_ends_what_runs_when_it_is_told_to_end(self):
        self.starter.terminate()
        self.assertEqual(self.starter.wait(20), 143)
        self.require_end_of(self.shell, self.child)

    def test_leaves_nothing_when_it_is_killed(self):
        self.starter.kill()
        self.assertEqual(self.starter.wait(20), -signal.SIGKILL)
        self.require_end_of(self.shell, self.child)

    def test_leaves_nothing_when_its_group_is_killed(self):
        os.killpg(self.starter.pid, signal.SIGKILL)
        self.assertEqual(self.starter.wait(20), -signal.SIGKILL)
        self.require_end_of(self.shell, self.child)

    def test_leaves_no_program_without_the_warden(self):
        warden, = [pid for pid in children_of(self.starter.pid) if pid != self.shell]
        os.kill(warden, signal.SIGKILL)
        self.require_end_of(warden)
        self.starter.kill()
        self.require_end_of(self.shell)
        os.kill(self.child, signal.SIGKILL)  # what the warden is for

    def test_has_its_programs_in_its_session(self):
        self.assertEqual(os.getsid(self.shell), self.starter.pid)
        self.assertEqual(os.getpgid(self.child), self.shell)


if __name__ == "__main__":
    unittest.main()
