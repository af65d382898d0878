# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebit_run --hosts over real sshds: several_hosts_test.py ONEBIT_RUN ALL_REDUCE_PERF"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import ssh_hosts  # noqa: E402
from waiting import comes_true  # noqa: E402

ONEBIT_RUN, TOOL = "", ""
HOSTS: ssh_hosts.SshHosts
# Host c has an empty folder in its place. Its name is one that a shell must be kept from reading.
ONLY_ON_SOME = "one bit's"
# A remote shell that loses b as soon as its agent has answered, and never reaches another host.
LOSES_B = """#!/bin/sh
[ "$1" = b ] || exec sleep 600
exec 3<&0
ssh "$@" <&3 | tee marks/answer &
until [ -s marks/answer ]; do sleep 0.05; done
exit 255
"""
TELL = """
import json, os, socket, stat, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "ONEBIT_RENDEZVOUS",
         "ONEBIT_JOB", "ONEBIT_DEBUG", "ONEBIT_HOST", "ONEBIT_SECRET", "OMP_NUM_THREADS", "COLOUR", "TASTE", "SMELL")
facts = {name: os.environ.get(name) for name in names}
secret = os.environ.get("ONEBIT_SECRET_FILE")
if secret:
    facts["secret"] = open(secret).read()
    facts["modes"] = [stat.S_IMODE(os.stat(path).st_mode) for path in (secret, os.path.dirname(secret))]
facts["host"], facts["folder"] = socket.gethostname(), os.getcwd()
sys.stdout.write(json.dumps(facts) + "\\n")  # in one piece, also where Python does not buffer
"""


class SeveralHostsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = HOSTS.folder
        for path in (self.folder / "marks").glob("*"):
            path.unlink()

    def tearDown(self) -> None:
        self.assertTrue(comes_true(lambda: not self.left()), self.left())

    def left(self) -> list[str]:
        """Leftovers of jobs: processes on the hosts, folders."""
        found = [f"{name}: {words}" for name in "ab" for words in HOSTS.left_on(name)]
        return found + [path.name for path in (self.folder / "tmp").iterdir()]

    def start(self, *arguments: str, tool: str = "", at: str = "", **environment: str) -> subprocess.Popen:
        host = HOSTS.hosts[at] if at else HOSTS.launcher
        # The launcher itself and not one of the programs that lead to it is what the test can signal.
        job = subprocess.Popen(HOSTS.on(host, tool or ONEBIT_RUN, *arguments), cwd=self.folder, text=True,
                               env=HOSTS.environment() | environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(job.kill)
        return job

    def finish(self, job: subprocess.Popen) -> subprocess.CompletedProcess:
        output, errors = job.communicate(timeout=100)
        return subprocess.CompletedProcess(job.args, job.returncode, output, errors)

    def run_job(self, *arguments: str, **options: str) -> subprocess.CompletedProcess:
        return self.finish(self.start(*arguments, **options))

    def facts(self, result: subprocess.CompletedProcess) -> list[dict]:
        """The facts that ranks of TELL print, by rank."""
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return sorted((json.loads(line) for line in result.stdout.splitlines()), key=lambda rank: int(rank["RANK"]))

    def wait_for_marks(self, *names: str) -> None:
        self.assertTrue(comes_true(lambda: all((self.folder / "marks" / name).exists() for name in names)),
                        f"{names} did not appear")

    def start_waiting(self, before: str = "", grace: str = "0.5", **options: str) -> subprocess.Popen:
        """Starts a job on a and b whose ranks wait, together with processes that they have started."""
        job = self.start("--hosts", "a:2,b:2", "--grace", grace, "sh", "-c",
                         f"{before} sleep 600 & echo $$ >marks/new$RANK; mv marks/new$RANK marks/$RANK; "
                         "wait; wait; wait",
                         **options)
        self.wait_for_marks("0", "1", "2", "3")
        return job

    def test_a_collective_spans_the_hosts(self):
        result = self.run_job("--hosts", "a:2,b:2", TOOL, "-b", "64K", "-e", "256K", "-f", "4", "-n", "3", "--mode",
                              "ef", "-c", "1")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("# Out of bounds values : 0 OK", result.stdout)
        self.assertIn("transport: socket nranks: 4 ", result.stdout)

    def test_every_rank_knows_its_place(self):
        result = self.run_job("--hosts", "a:1,b:3", "-x", "COLOUR", "-x", "TASTE=sweet and sour", "python3", "-c", TELL,
                              ONEBIT_DEBUG="WARN", ONEBIT_HOST="launcher", COLOUR="red", SMELL="none", RANK="7", MASTER_PORT="1")
        ranks = self.facts(result)
        a, b = HOSTS.hosts["a"], HOSTS.hosts["b"]
        self.assertEqual([rank["host"] for rank in ranks], [a.name, b.name, b.name, b.name])
        self.assertEqual([rank["LOCAL_RANK"] for rank in ranks], ["0", "0", "1", "2"])
        self.assertEqual([rank["LOCAL_WORLD_SIZE"] for rank in ranks], ["1", "3", "3", "3"])
        self.assertEqual([rank["OMP_NUM_THREADS"] for rank in ranks], [None, "1", "1", "1"])
        for rank in ranks:
            self.assertEqual((rank["WORLD_SIZE"], rank["folder"]), ("4", str(self.folder)))
            self.assertEqual((rank["COLOUR"], rank["TASTE"], rank["SMELL"]), ("red", "sweet and sour", None))
            self.assertEqual((rank["ONEBIT_DEBUG"], rank["ONEBIT_SECRET"]), ("WARN", None))
            self.assertIsNone(rank["ONEBIT_HOST"])  # the word of one host is none of the others'
            self.assertEqual(rank["MASTER_ADDR"], a.address)
            self.assertRegex(rank["ONEBIT_RENDEZVOUS"], rf"^{a.address}:\d+$")
            self.assertNotEqual(rank["ONEBIT_RENDEZVOUS"], f"{a.address}:{rank['MASTER_PORT']}")
            self.assertEqual(rank["modes"], [0o600, 0o700])
            for name in ("MASTER_PORT", "ONEBIT_RENDEZVOUS", "ONEBIT_JOB", "secret"):
                self.assertEqual(rank[name], ranks[0][name])
        self.assertRegex(ranks[0]["ONEBIT_JOB"], "^onebit_run-[0-9a-f]{16}$")
        self.assertRegex(ranks[0]["secret"], "^[0-9a-f]{64}$")

    def test_a_meeting_place_of_the_user_is_kept(self):
        given = {"ONEBIT_RENDEZVOUS": "a:7000", "ONEBIT_JOB": "mine", "ONEBIT_SECRET": "a secret of the user",
                 "MASTER_ADDR": "b", "MASTER_PORT": "5"}
        for rank in self.facts(self.run_job("--hosts", "a,b", "python3", "-c", TELL, **given)):
            self.assertEqual({name: rank[name] for name in given}, given)
            self.assertNotIn("secret", rank)
        given["OMP_NUM_THREADS"] = "4"
        options = [word for name, value in given.items() for word in ("-x", f"{name}={value}")]
        for rank in self.facts(self.run_job("--hosts", "a:2,b:2", *options, "python3", "-c", TELL)):
            self.assertEqual({name: rank[name] for name in given}, given)
            self.assertNotIn("secret", rank)

    def test_the_secret_is_on_no_command_line(self):
        job = self.start("--hosts", "a,b", "sh", "-c", "[ $RANK = 1 ] || cat $ONEBIT_SECRET_FILE; echo; touch marks/$RANK; "
                         "sleep 600")
        self.wait_for_marks("0", "1")
        secret = (job.stdout.readline() + job.stdout.readline()).strip()
        self.assertEqual(len(secret), 64)
        lines = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # the process has ended
                lines.append(path.read_bytes())
        self.assertTrue(any(b"--agent" in line for line in lines))
        self.assertFalse(any(secret.encode() in line for line in lines))
        job.terminate()
        self.finish(job)

    def test_a_launcher_on_one_of_the_hosts(self):
        ranks = self.facts(self.run_job("--hosts", "a:2,b:2", "python3", "-c", TELL, at="a"))
        a, b = HOSTS.hosts["a"], HOSTS.hosts["b"]
        self.assertEqual([rank["host"] for rank in ranks], [a.name, a.name, b.name, b.name])
        self.assertEqual({rank["MASTER_ADDR"] for rank in ranks}, {a.address})
        result = self.run_job("--hosts", "b:2,a:2", TOOL, "-b", "4K", "-e", "4K", "-n", "2", "-c", "1", at="a")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("# Out of bounds values : 0 OK", result.stdout)

    @unittest.skipUnless(ssh_hosts.HAS_IPV6, "this kernel has no IPv6")
    def test_addresses_of_ipv6(self):
        a, b = HOSTS.hosts["a"], HOSTS.hosts["b"]
        command = ("--hosts", f"[{HOSTS.ipv6(a)}]:2,[{HOSTS.ipv6(b)}]:2")
        for rank in self.facts(self.run_job(*command, "python3", "-c", TELL)):
            self.assertEqual(rank["MASTER_ADDR"], HOSTS.ipv6(a))
            self.assertRegex(rank["ONEBIT_RENDEZVOUS"], rf"^\[{HOSTS.ipv6(a)}\]:\d+$")
        result = self.run_job(*command, TOOL, "-b", "4K", "-e", "4K", "-n", "2", "-c", "1")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("# Out of bounds values : 0 OK", result.stdout)

    def test_input_and_output(self):
        job = subprocess.run(HOSTS.on(HOSTS.launcher, ONEBIT_RUN, "--hosts", "b,a", "--tag-output", "sh", "-c",
                                      "sed s/^/$LOCAL_RANK:/; echo of $RANK >&2"), cwd=self.folder, text=True,
                             input="".join(f"{number}\n" for number in range(50000)), capture_output=True,
                             env=HOSTS.environment(), timeout=60, check=True)
        self.assertEqual(job.stdout, "".join(f"[0] 0:{number}\n" for number in range(50000)))
        self.assertEqual(sorted(job.stderr.splitlines()), ["[0] of 0", "[1] of 1"])

    def test_status_is_that_of_the_first_failure(self):
        for script, status, text in (
                ("if [ $RANK = 3 ]; then exit 7; fi; sleep 600", 7, r"rank 3 \(pid \d+ on b\) ended with status 7\n"
                 r"onebit_run: terminating rank 0, 1, 2\n$"),
                ("if [ $RANK = 1 ]; then exit 255; fi; sleep 600", 255, r"rank 1 \(pid \d+ on a\) ended with status 255"),
                ("trap '' TERM; [ $RANK = 0 ] && exit 3; sleep 600", 3, "killing rank 1, 2, 3")):
            with self.subTest(script=script):
                result = self.run_job("--hosts", "a:2,b:2", "--grace", "0.3", "sh", "-c", script)
                self.assertEqual(result.returncode, status, result)
                self.assertRegex(result.stderr, text)

    def test_a_killed_rank_ends_the_others(self):
        job = self.start_waiting()
        os.kill(self.pid_of(3), signal.SIGKILL)
        result = self.finish(job)
        self.assertEqual(result.returncode, 128 + signal.SIGKILL, result)
        self.assertRegex(result.stderr, r"rank 3 \(pid \d+ on b\) was killed by signal 9 \(Killed\)\n"
                                        r"onebit_run: terminating rank 0, 1, 2\n$")

    def pid_of(self, rank: int) -> int:
        return int((self.folder / "marks" / str(rank)).read_text())

    def test_survivors_of_a_collective_name_the_rank_that_died(self):
        job = self.start("--hosts", "a:2,b:2", "sh", "-c", f"echo $$ >marks/$RANK; exec {TOOL} -b 4K -e 4K -n 1000000")
        self.assertTrue(any("Using devices" in line for line in job.stdout))  # all ranks have joined
        os.kill(self.pid_of(2), signal.SIGKILL)
        result = self.finish(job)
        self.assertEqual(result.returncode, 128 + signal.SIGKILL, result)
        self.assertIn("rank 2 is gone", result.stderr)
        self.assertRegex(result.stderr, r"rank 2 \(pid \d+ on b\) was killed by signal 9")

    def test_nothing_is_left_after_a_signal(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number):
                self.setUp()
                job = self.start_waiting()
                job.send_signal(number)
                self.assertEqual(self.finish(job).returncode, 128 + number)
                self.tearDown()

    def test_a_second_signal_does_not_wait(self):
        job = self.start_waiting("trap '' TERM INT; [ $RANK != 0 ] || trap 'touch marks/told' INT;", grace="600")
        job.send_signal(signal.SIGINT)
        self.wait_for_marks("told")
        job.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(job).returncode, 128 + signal.SIGKILL)

    def test_nothing_is_left_after_the_death_of_the_launcher(self):
        job = self.start_waiting()
        job.kill()
        self.finish(job)  # and tearDown looks for what is left

    def test_nothing_is_left_after_the_death_of_an_agent(self):
        job = self.start_waiting()
        agent = int(pathlib.Path(f"/proc/{self.pid_of(2)}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(agent, signal.SIGKILL)
        result = self.finish(job)
        self.assertEqual(result.returncode, 1, result)
        self.assertRegex(result.stderr, r"rank 2 \(pid \d+ on b\) was lost: the connection to its host has ended\n"
                                        r"onebit_run: terminating rank 0, 1\n$")

    def test_nothing_is_left_when_the_network_fails(self):
        job = self.start_waiting(ONEBIT_LOSS_TIMEOUT_MS="4000")
        HOSTS.set_link("b", "down")
        try:
            result = self.finish(job)
            self.tearDown()
        finally:
            HOSTS.set_link("b", "up")
        self.assertEqual(result.returncode, 1, result)
        self.assertRegex(result.stderr, r"rank 2 \(pid \d+ on b\) was lost: its host was silent for 8000 ms "
                                        r"\(twice ONEBIT_LOSS_TIMEOUT_MS\)\n")

    def test_a_connection_that_ssh_loses(self):
        job = self.start_waiting()
        children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        lines = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_text() for pid in children}
        to_b = next(pid for pid, words in lines.items() if "\0b\0" in words)
        os.kill(int(to_b), signal.SIGKILL)
        result = self.finish(job)
        self.assertEqual(result.returncode, 1, result)
        self.assertRegex(result.stderr, r"rank 2 \(pid \d+ on b\) was lost: the connection to its host has ended\n")

    def test_a_host_that_is_lost_before_the_job_starts(self):
        shell = self.folder / "loses_b"
        shell.write_text(LOSES_B)
        shell.chmod(0o755)
        result = self.run_job("--hosts", "b,a", "--rsh", str(shell), "touch", "marks/started")
        self.assertEqual((result.returncode, result.stdout), (1, ""), result)
        self.assertRegex(result.stderr, "^onebit_run: host b: the connection ended before all hosts had answered")
        self.assertFalse((self.folder / "marks" / "started").exists())

    def test_a_process_that_outlives_its_rank_does_not_keep_the_job(self):
        # In a session of its own it is out of reach; it has the standard error of its rank.
        outliving = "echo $$ >marks/new; mv marks/new marks/0; exec sleep 600"
        result = self.run_job("--hosts", "a", "sh", "-c", f"setsid sh -c '{outliving}' & until [ -e marks/0 ]; "
                              "do sleep 0.05; done", ONEBIT_LOSS_TIMEOUT_MS="600000")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        os.kill(self.pid_of(0), signal.SIGKILL)

    def test_a_stopped_launcher_does_not_lose_its_job(self):
        job = self.start_waiting(ONEBIT_LOSS_TIMEOUT_MS="3000")
        job.send_signal(signal.SIGTSTP)  # as Ctrl-Z does
        time.sleep(5)  # longer than a rank may be silent
        self.assertIsNone(job.poll())
        self.assertNotEqual(HOSTS.left_on("b"), [])
        job.terminate()
        self.assertEqual(self.finish(job).returncode, 128 + signal.SIGTERM)

    def test_a_host_that_cannot_be_reached(self):
        nobody = re.sub(r"\d+$", "200", HOSTS.hosts["a"].address)
        result = self.run_job("--hosts", f"a:2,{nobody}:2", "touch", "marks/started")
        self.assertEqual((result.returncode, result.stdout), (1, ""), result)
        self.assertRegex(result.stderr, rf"^onebit_run: host {nobody}: ssh cannot connect:\n"
                                        rf"ssh: connect to host {nobody} port 2222: .*\n$")
        self.assertFalse((self.folder / "marks" / "started").exists())

    def test_a_host_that_does_not_answer(self):
        result = self.run_job("--hosts", "a", "--rsh", "sh -c cat", "true", ONEBIT_CONNECT_TIMEOUT_MS="1000")
        self.assertEqual((result.returncode, result.stderr),
                         (1, "onebit_run: host a: no answer within 1000 ms (ONEBIT_CONNECT_TIMEOUT_MS)\n"))

    def test_a_host_with_another_key(self):
        known = self.folder / "known_hosts"
        lines = known.read_text()
        key_of_a = (self.folder / "a.key.pub").read_text()
        known.write_text(lines.replace((self.folder / "b.key.pub").read_text(), key_of_a))
        self.addCleanup(known.write_text, lines)
        result = self.run_job("--hosts", "a,b", "true")
        self.assertEqual((result.returncode, result.stdout), (1, ""), result)
        self.assertIn("onebit_run: host b: ssh cannot connect:\n", result.stderr)
        self.assertIn("Host key verification failed.\n", result.stderr)

    def test_there_is_no_ssh(self):
        result = self.run_job("--hosts", "a,b", "--rsh", "/nonexistent/ssh", "true")
        self.assertEqual((result.returncode, result.stderr),
                         (1, "onebit_run: host a: cannot start /nonexistent/ssh: No such file or directory: "
                             "install an ssh client, or name another command with --rsh\n"))

    def test_another_remote_shell(self):
        result = self.run_job("--hosts", "a,b", "--rsh", f"/usr/bin/env -u TERM ssh -F {self.folder}/ssh_config",
                              "python3", "-c", TELL)
        self.assertEqual({rank["host"] for rank in self.facts(result)},
                         {HOSTS.hosts["a"].name, HOSTS.hosts["b"].name})

    def test_a_program_that_a_host_does_not_have(self):
        HOSTS.ssh("a", "printf '#!/bin/sh\nsleep 600\n' >/run/program; chmod +x /run/program")
        result = self.run_job("--hosts", "a,b", "/run/program")
        self.assertEqual((result.returncode, result.stderr),
                         (127, "onebit_run: host b: cannot start /run/program: No such file or directory\n"))

    def test_a_program_in_the_path_that_is_passed_on(self):
        HOSTS.ssh("a", "mkdir /run/programs; ln -s /bin/hostname /run/programs/program")
        path = f"/run/programs:{HOSTS.environment()['PATH']}"
        result = self.run_job("--hosts", "a", "program", PATH=path)
        self.assertEqual((result.returncode, result.stderr),
                         (127, "onebit_run: host a: cannot start program: No such file or directory\n"))
        result = self.run_job("--hosts", "a", "-x", "PATH", "program", PATH=path)
        self.assertEqual((result.stdout, result.stderr), (f"{HOSTS.hosts['a'].name}\n", ""))

    def test_a_folder_that_a_host_does_not_have(self):
        folder = self.folder / ONLY_ON_SOME / "work"
        folder.mkdir()
        self.addCleanup(folder.rmdir)
        result = subprocess.run(HOSTS.on(HOSTS.launcher, ONEBIT_RUN, "--hosts", "a,c", "true"), cwd=folder, text=True,
                                env=HOSTS.environment(), capture_output=True, timeout=60, check=False)
        self.assertEqual((result.returncode, result.stderr),
                         (1, f"onebit_run: host c: cannot start in {folder}: No such file or directory: start the job "
                             "in a folder that every host has\n"))

    def test_a_host_without_onebit_or_with_another_one(self):
        tool = str(self.folder / ONLY_ON_SOME / "onebit_run")
        result = self.run_job("--hosts", "a,c", "true", tool=tool)
        self.assertEqual(result.returncode, 1, result)
        self.assertIn(f"onebit_run: host c: there is no {tool} that can be run: install onebit at the same path on "
                      "all hosts:\n", result.stderr)
        for script, text in (
                (r"printf '\nonebit_run --agent is ready\nH\006\000\000\0000.0.1\000'; sleep 600",
                 rf"host c: {tool} there belongs to onebit 0\.0\.1, but this one to \d+\.\d+\.\d+: install the"),
                (r"printf '\nonebit_run --agent is ready\nH\001\000\000\0000'; sleep 600",
                 "host c: onebit_run and its agent do not understand each other: install the same build of onebit on"),
                ("echo no option --agent >&2; exit 2", rf"host c: {tool} ended with status 2 before it could start a "
                 r"rank: it must belong to onebit \d+\.\d+\.\d+, as this one does:\nno option --agent\n$")):
            HOSTS.ssh("c", f"cat >{shlex.quote(tool)} <<'END'\n#!/bin/sh\n{script}\nEND\nchmod +x {shlex.quote(tool)}")
            result = self.run_job("--hosts", "a,c", "true", tool=tool)
            self.assertEqual(result.returncode, 1, result)
            self.assertRegex(result.stderr, text)


if __name__ == "__main__":
    if reason := ssh_hosts.problem():
        print(reason)
        sys.exit(77)
    TOOL = os.path.abspath(sys.argv.pop())
    ONEBIT_RUN = os.path.abspath(sys.argv.pop())
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name)
        for sub in (ONLY_ON_SOME, "marks"):
            (path / sub).mkdir()
        shutil.copy(ONEBIT_RUN, path / ONLY_ON_SOME)
        with ssh_hosts.SshHosts(path, "abc", {"c": path / ONLY_ON_SOME}) as HOSTS:
            unittest.main()
