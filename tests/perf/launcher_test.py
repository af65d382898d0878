# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebit_run starts, watches and ends the ranks of a job: launcher_test.py ONEBIT_RUN"""

import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import marked_processes  # noqa: E402
from waiting import comes_true  # noqa: E402

TOOL = ""
OTHERS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "ONEBIT_RENDEZVOUS", "ONEBIT_JOB",
          "OMP_NUM_THREADS")


class LauncherTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        (self.path / "tmp").mkdir()
        # Everything a rank starts inherits this variable and can be found by it.
        self.mark = f"LAUNCHER_TEST_MARK={self.path}"
        name, value = self.mark.split("=")
        self.environment = {key: text for key, text in os.environ.items() if key not in OTHERS}
        self.environment |= {name: value, "TMPDIR": str(self.path / "tmp")}

    def tearDown(self) -> None:
        # Killed processes are gone as soon as the kernel has cleaned up.
        self.assertTrue(comes_true(lambda: not self.leftover()), self.leftover())

    def leftover(self) -> list[str]:
        """Returns the living processes of this test."""
        return marked_processes.living(self.mark)

    def start(self, *arguments: str, **options) -> subprocess.Popen:
        options = {"stdin": subprocess.DEVNULL, "env": self.environment, **options}
        return subprocess.Popen([TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, **options)

    def run_tool(self, *arguments: str, standard_input: str = "", **environment: str):
        return subprocess.run([TOOL, *arguments], input=standard_input, capture_output=True,
                              text=True, timeout=60, env={**self.environment, **environment})

    def shell(self, script: str, *options: str, ranks: int = 3, **environment: str):
        return self.run_tool("-n", str(ranks), *options, "sh", "-c", script, **environment)

    def wait_for_files(self, *names: str) -> None:
        self.assertTrue(comes_true(lambda: all((self.path / name).exists() for name in names)),
                        f"{names} did not appear")

    def wait_for_no_folder(self) -> None:
        self.assertTrue(comes_true(lambda: not list((self.path / "tmp").iterdir())),
                        "the folder did not go away")

    def assert_no_folder_left(self) -> None:
        self.assertEqual(list((self.path / "tmp").iterdir()), [])

    def test_every_job_has_a_word_of_its_own(self):
        def words(**environment: str) -> list[str]:
            return self.shell("echo $ONEBIT_JOB", **environment).stdout.split()

        first, second = words(), words()
        for word in (first[0], second[0]):
            self.assertRegex(word, "^onebit_run-[0-9a-f]{16}$")
        self.assertEqual([first, second], [[first[0]] * 3, [second[0]] * 3])
        self.assertNotEqual(first, second)
        self.assertEqual(words(ONEBIT_JOB="mine"), ["mine"] * 3)
        # A job that a rank starts is another one.
        inner = words(ONEBIT_JOB="outer", RANK="0", WORLD_SIZE="1")
        self.assertEqual(inner, [inner[0]] * 3)
        self.assertNotIn(inner[0], ("outer", first[0]))

    def test_tells_every_rank_who_it_is(self):
        result = self.shell("echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE")
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(sorted(result.stdout.split("\n")),
                         ["", "0 3 0 3", "1 3 1 3", "2 3 2 3"])
        self.assertEqual(result.stderr, "")

    def test_ranks_meet_in_a_private_folder_that_goes_away(self):
        result = self.shell('echo $ONEBIT_RENDEZVOUS; stat -c %a "${ONEBIT_RENDEZVOUS%/*}"; '
                            'echo secret >"$ONEBIT_RENDEZVOUS.$RANK"')
        lines = result.stdout.split()
        self.assertEqual(lines.count("700"), 3, result)
        self.assertEqual(len(set(lines)), 2, result)
        self.assertIn(f"{self.path}/tmp/onebit_run-", lines[0])
        self.assert_no_folder_left()

    def test_a_meeting_place_of_the_user_is_kept(self):
        result = self.shell("echo $ONEBIT_RENDEZVOUS; ls $TMPDIR", ONEBIT_RENDEZVOUS="host:1")
        self.assertEqual(result.stdout, "host:1\n" * 3)

    def test_jobs_within_a_job_have_meeting_places_of_their_own(self):
        result = self.run_tool("-n", "2", TOOL, "-n", "2", "sh", "-c", "echo $ONEBIT_RENDEZVOUS",
                               ONEBIT_RENDEZVOUS="host:1")
        places = result.stdout.split()
        self.assertEqual(sorted(places.count(place) for place in set(places)), [2, 2], result)
        self.assertNotIn("host:1", places)
        self.assert_no_folder_left()

    def test_pytorch_finds_a_place_to_meet(self):
        place = "echo $MASTER_ADDR:$MASTER_PORT"
        first, *others = self.shell(place).stdout.split()
        self.assertRegex(first, r"^127\.0\.0\.1:[1-9][0-9]+$")
        self.assertEqual(others, [first, first])
        result = self.shell(place, MASTER_ADDR="host", MASTER_PORT="5")
        self.assertEqual(result.stdout, "host:5\n" * 3)
        # A rank's own place is that of its job.
        result = self.shell(place, RANK="0", MASTER_ADDR="host", MASTER_PORT="5")
        self.assertNotIn("host", result.stdout)

    def test_several_ranks_do_not_each_take_all_cores(self):
        threads = "echo threads=$OMP_NUM_THREADS"
        self.assertEqual(self.shell(threads).stdout, "threads=1\n" * 3)
        self.assertEqual(self.shell(threads, OMP_NUM_THREADS="4").stdout, "threads=4\n" * 3)
        self.assertEqual(self.shell(threads, ranks=1).stdout, "threads=\n")

    def test_ranks_are_told_what_to_compress(self):
        name = "echo ${ONEBIT_TORCH_DDP-none}"
        self.assertEqual(self.shell(name).stdout, "none\n" * 3)
        self.assertEqual(self.shell(name, ONEBIT_TORCH_DDP="sign").stdout, "sign\n" * 3)
        self.assertEqual(self.shell(name, "--ddp", "fp4,k=8", ONEBIT_TORCH_DDP="sign").stdout, "fp4,k=8\n" * 3)
        result = self.run_tool("--hosts", "127.0.0.1:3", "--ddp", "fp4", "sh", "-c", name)
        self.assertEqual((result.stdout, result.stderr), ("fp4\n" * 3, ""))

    def test_other_launchers_ranks_are_not_passed_on(self):
        result = self.shell("echo $PMI_RANK$OMPI_COMM_WORLD_SIZE$RANK", ranks=1, RANK="7",
                            PMI_RANK="8", OMPI_COMM_WORLD_SIZE="9")
        self.assertEqual(result.stdout, "0\n", result)

    def test_arguments_arrive_as_they_are(self):
        for separator in ([], ["--"]):
            result = self.run_tool("-n", "1", *separator, "printf", "<%s>", "-n", "a b", "--", "",
                                   "--help")
            self.assertEqual(result.stdout, "<-n><a b><--><><--help>", result)

    def test_input_is_for_rank_0(self):
        result = self.run_tool("-n", "3", "sh", "-c", "sed s/^/$RANK:/", standard_input="a\nb\n")
        self.assertEqual(result.stdout, "0:a\n0:b\n")

    def test_a_terminal_is_relayed_to_rank_0(self):
        terminal, ours = pty.openpty()
        job = self.start("-n", "2", "sh", "-c", "sed s/^/$RANK:/", stdin=ours)
        os.write(terminal, b"typed\n\x04")
        self.assertEqual(job.communicate(timeout=30), ("0:typed\n", ""))
        os.close(terminal)
        os.close(ours)

    def test_tags_whole_lines(self):
        result = self.shell("printf 'one '; sleep 0.1; echo line; printf end; echo oops >&2",
                            "--tag-output")
        self.assertEqual(sorted(result.stdout.splitlines()),
                         sorted(f"[{rank}] {text}" for rank in range(3)
                                for text in ("one line", "end")))
        self.assertEqual(sorted(result.stderr.splitlines()), [f"[{r}] oops" for r in range(3)])

    def test_output_that_nobody_reads_ends_the_job(self):
        job = self.start("-n", "2", "--tag-output", "yes")
        job.stdout.readline()
        job.stdout.close()
        self.assertEqual(job.wait(timeout=30), 128 + signal.SIGPIPE)
        job.stderr.close()
        self.assert_no_folder_left()

    def test_a_reader_that_stalls_does_not_keep_the_job_from_ending(self):
        for stream, name in (("stdout", "TERM"), ("stderr", "INT"), ("stdout", "HUP")):
            with self.subTest(stream=stream, signal=name):
                redirection = ">&2" if stream == "stderr" else ""
                number = getattr(signal, "SIG" + name)
                read_end, write_end = os.pipe()
                other_stream = "stdout" if stream == "stderr" else "stderr"
                job = subprocess.Popen(
                    [TOOL, "-n", "2", "--tag-output", "sh", "-c", f"yes {redirection}"],
                    stdin=subprocess.DEVNULL, env=self.environment,
                    **{stream: write_end, other_stream: subprocess.DEVNULL})
                os.read(read_end, 4)
                time.sleep(0.5)  # by now every pipe is full
                self.assertTrue(os.get_blocking(write_end))  # it is ours, too
                job.send_signal(number)
                try:
                    self.assertEqual(job.wait(timeout=10), 128 + number)
                finally:
                    job.kill()
                    job.wait()
                    os.close(read_end)
                    os.close(write_end)
                self.assert_no_folder_left()

    def test_a_dead_rank_ends_a_job_whose_reader_stalls(self):
        job = self.start("-n", "2", "--tag-output", "--grace", "0.1", "sh", "-c",
                         f"if [ $RANK = 0 ]; then until [ -e {self.path}/pid ]; do sleep 0.05; done; exit 7; fi; "
                         "trap '' TERM; "
                         f"echo $$ >{self.path}/new; mv {self.path}/new {self.path}/pid; yes")
        self.wait_for_files("pid")
        pid = int((self.path / "pid").read_text())
        stat = pathlib.Path(f"/proc/{pid}/stat")
        self.assertTrue(comes_true(lambda: ") Z " in stat.read_text()), "rank 1 is still there")
        self.assertIsNone(job.poll())  # what was written before is not lost on a slow reader
        stdout, stderr = job.communicate(timeout=30)
        self.assertEqual(job.returncode, 7)
        self.assertEqual(set(stdout.splitlines()[:-1]), {"[1] y"})
        self.assertIn("ended with status 7", stderr)

    def test_a_slow_reader_gets_everything(self):
        job = self.start("-n", "2", "--tag-output", "seq", "400000")
        time.sleep(0.5)  # the reader is slow
        stdout, stderr = job.communicate(timeout=60)
        self.assertEqual((job.returncode, stderr), (0, ""))
        lines = stdout.splitlines()
        for rank in range(2):
            self.assertEqual([line[4:] for line in lines if line.startswith(f"[{rank}] ")],
                             [str(number) for number in range(1, 400001)])

    def test_lines_of_both_streams_stay_whole_in_one_file(self):
        result = subprocess.run(
            [TOOL, "-n", "3", "--tag-output", "sh", "-c", "seq 30000 & seq 30000 >&2; wait"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=60, env=self.environment)
        self.assertEqual(sorted(result.stdout.splitlines()),
                         sorted(f"[{rank}] {number}" for rank in range(3)
                                for number in range(1, 30001) for _ in range(2)))

    def test_input_that_nobody_reads_does_not_keep_the_job_from_ending(self):
        terminal, ours = pty.openpty()
        self.addCleanup(os.close, ours)
        self.addCleanup(os.close, terminal)
        job = self.start("-n", "1", "sleep", "600", stdin=ours)
        os.set_blocking(terminal, False)
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:  # more than a pipe holds
            try:
                os.write(terminal, b"typed\n" * 100)
            except BlockingIOError:
                time.sleep(0.01)
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=10)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)

    def test_status_is_that_of_the_first_failure(self):
        result = self.shell("if [ $RANK = 1 ]; then exit 7; fi; trap 'exit 9' TERM; "
                            "sleep 60 & wait; exit 9")
        self.assertEqual(result.returncode, 7, result)
        self.assertRegex(result.stderr, r"^onebit_run: rank 1 \(pid \d+\) ended with status 7\n"
                                        r"onebit_run: terminating rank 0, 2\n$")

    def test_a_signal_is_the_cause_of_a_status(self):
        # Rank 1 saw rank 0 hang up and exited before rank 0 was dead.
        result = self.shell("if [ $RANK = 1 ]; then exit 1; fi; sleep 0.3; "
                            "if [ $RANK = 0 ]; then kill -9 $$; fi")
        self.assertEqual(result.returncode, 128 + 9, result)
        self.assertRegex(result.stderr, r"^onebit_run: rank 0 \(pid \d+\) was killed by signal 9")
        self.assertEqual(result.stderr.count("onebit_run"), 1)

    def test_survivors_may_speak_before_they_are_ended(self):
        begin = time.monotonic()
        result = self.shell("if [ $RANK = 0 ]; then kill -9 $$; fi; sleep 0.3; echo rank $RANK; "
                            "trap '' TERM; sleep 60", "--grace", "3")
        self.assertEqual(result.returncode, 128 + 9, result)
        self.assertEqual(sorted(result.stdout.splitlines()), ["rank 1", "rank 2"])
        self.assertRegex(result.stderr, r"rank 0 \(pid \d+\) was killed by signal 9 \(Killed\)\n"
                                        r"onebit_run: terminating rank 1, 2\n"
                                        r"onebit_run: killing rank 1, 2\n")
        self.assertGreater(time.monotonic() - begin, 4.9)  # 3 s of grace, 2 s to terminate
        self.assert_no_folder_left()

    def test_what_ranks_started_is_ended_too(self):
        result = self.shell("sleep 600 & sleep 601 & echo $RANK", "--tag-output", ranks=2)
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] 0", "[1] 1"])

    def test_signals_are_forwarded(self):
        for name in ("INT", "TERM", "HUP"):
            with self.subTest(name):
                script = (f"trap 'echo got {name}; exit 5' {name}; "
                          f"touch {self.path}/{name}$RANK; while :; do sleep 0.05; done")
                job = self.start("-n", "2", "sh", "-c", script)
                self.wait_for_files(f"{name}0", f"{name}1")
                job.send_signal(getattr(signal, "SIG" + name))
                stdout, _ = job.communicate(timeout=30)
                self.assertEqual(stdout, f"got {name}\n" * 2)
                self.assertEqual(job.returncode, 5)
                self.assert_no_folder_left()

    def test_an_interrupted_job_is_no_success(self):
        job = self.start("-n", "2", "sh", "-c",
                         f"trap 'exit 0' INT; touch {self.path}/$RANK; while :; do sleep 0.05; done")
        self.wait_for_files("0", "1")
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=30)
        self.assertEqual(job.returncode, 128 + signal.SIGINT)

    def test_ignored_signals_stay_ignored(self):
        for name in ("INT", "TERM", "HUP"):
            with self.subTest(name):
                number = getattr(signal, "SIG" + name)
                job = self.start("-n", "2", "sh", "-c",
                                 f"touch {self.path}/{name}$RANK; "
                                 f"until [ -e {self.path}/{name}-go ]; do sleep 0.05; done; echo on",
                                 preexec_fn=lambda: signal.signal(number, signal.SIG_IGN))
                self.wait_for_files(f"{name}0", f"{name}1")
                job.send_signal(number)
                time.sleep(0.2)  # in which it would end
                (self.path / f"{name}-go").touch()
                self.assertEqual(job.communicate(timeout=30), ("on\n" * 2, ""))
                self.assertEqual(job.returncode, 0)

    def test_a_second_signal_does_not_wait(self):
        job = self.start("-n", "2", "--grace", "600", "sh", "-c",
                         f"trap 'touch {self.path}/told$RANK' INT; touch {self.path}/$RANK; "
                         "while :; do sleep 0.05; done")
        self.wait_for_files("0", "1")
        job.send_signal(signal.SIGINT)
        # A signal that came before the launcher has taken the first would count as the same, and one that comes
        # when it has ended the job would end the launcher.
        self.wait_for_files("told0", "told1")
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=30)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)

    def test_everything_dies_with_the_launcher(self):
        # This includes processes of wrapper scripts, and the folder.
        job = self.start("-n", "2", "sh", "-c", f"sleep 600 & touch {self.path}/$RANK; sleep 601")
        self.wait_for_files("0", "1")
        job.kill()
        job.communicate(timeout=30)
        self.wait_for_no_folder()  # and tearDown looks for processes

    def test_ranks_die_with_their_launcher_and_its_guard(self):
        job = self.start("-n", "2", sys.executable, "-c",
                         f"import os, pathlib, time; pathlib.Path('{self.path}', os.environ['RANK'])"
                         ".touch(); time.sleep(600)")
        self.wait_for_files("0", "1")
        children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        self.assertEqual(len(children), 3)
        os.kill(int(children[0]), signal.SIGKILL)
        job.kill()
        job.communicate(timeout=30)  # tearDown looks for them

    def test_runs_without_standard_streams(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"):
            for options in ([], ["--tag-output"]):
                with self.subTest(closed=closed, options=options):
                    result = subprocess.run(
                        ["sh", "-c", f'exec "$@" {closed}', "sh", TOOL, "-n", "2", *options, "sh",
                         "-c", f"ls /proc/$$/fd >{self.path}/$RANK; exit 7"],
                        env=self.environment, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL, timeout=60)
                    self.assertEqual(result.returncode, 7)
                    self.assert_no_folder_left()

    def test_programs_that_cannot_run(self):
        script = self.path / "script"
        script.write_text("#!/nonexistent/interpreter\n")
        script.chmod(0o755)
        for program, status, text in (("/nonexistent/program", 127, "No such file or directory"),
                                      ("nonexistent_program", 127, "cannot start nonexistent_program"),
                                      ("/etc/passwd", 126, "Permission denied"),
                                      (str(self.path), 126, "Permission denied"),
                                      (str(script), 127, "No such file or directory")):
            result = self.run_tool("-n", "2", program)
            self.assertEqual(result.returncode, status, result)
            self.assertIn(text, result.stderr)
            self.assert_no_folder_left()
        result = self.run_tool("-n", "2", "true", TMPDIR="/nonexistent/folder")
        self.assertEqual(result.returncode, 1, result)
        self.assertIn("/nonexistent/folder", result.stderr)

    def test_wrong_command_lines(self):
        for arguments, text in (([], "-n N says how many"), (["true"], "-n N says how many"),
                                (["-n", "2"], "no program"),
                                (["--hosts", "a:2"], "no program"),
                                (["--hosts", "a:2,", "true"], '"" has no host'),
                                (["--hosts", "a:0", "true"], '"a:0" has no number of ranks'),
                                (["--hosts", "a:2x", "true"], '"a:2x" has no number of ranks'),
                                (["--hosts", "::1", "true"], "no brackets around the address"),
                                (["--hosts", "a,b:2,a:3", "true"], "a is given twice"),
                                (["--hosts", "127.0.0.1,127.0.1.1", "true"], "127.0.1.1 are both this host"),
                                (["--hosts", "-oProxyCommand=x:1", "true"], "begins with a dash"),
                                (["--hosts", "a:1000,b:1000", "true"], "2000 ranks"),
                                (["--hosts", "a:2,b", "-n", "4", "true"], "--hosts has 3 ranks"),
                                (["--hosts", "a", "-x", "NO_SUCH", "true"], "-x NO_SUCH=VALUE"),
                                (["--hosts", "a", "-x", "=VALUE", "true"], '"=VALUE" does not name a variable'),
                                (["--hosts", "a", "-x", "", "true"], '"" does not name a variable'),
                                (["--hosts", "a", "--rsh", " ", "true"], "--rsh: the command is empty"),
                                (["-n", "2", "-x", "HOME", "true"], "are for --hosts"),
                                (["-n", "2", "--rsh", "ssh", "true"], "are for --hosts"),
                                (["-n", "2", "--ddp", "", "true"], "give a codec"),
                                (["-n", "2", "--"], "no program"), (["-n", "0", "true"], "--np"),
                                (["-n", "1025", "true"], "--np"), (["-n", "x", "true"], "--np"),
                                (["-n", "2", "--nonsense", "true"], "--nonsense"),
                                (["-n", "2", "--grace", "-1", "true"], "--grace"),
                                (["-n", "2", "--grace", "nan", "true"], "--grace")):
            result = self.run_tool(*arguments)
            self.assertEqual(result.returncode, 2, result)
            self.assertIn(text, result.stderr)
            self.assertEqual(result.stdout, "")
        result = self.run_tool("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("Usage: onebit_run -n N", result.stdout)
        self.assertNotIn("--agent", result.stdout)

    def test_this_host_needs_no_ssh(self):
        script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE"
        result = self.run_tool("--hosts", "127.0.0.1:3", "--rsh", "/nonexistent/ssh", "sh", "-c", script)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(sorted(result.stdout.split("\n")), ["", "0 3 0 3", "1 3 1 3", "2 3 2 3"])
        self.assert_no_folder_left()
        for host in ("localhost", "127.0.1.1"):  # the second is that of Debian for its own name
            result = self.run_tool("--hosts", f"{host}:3", "-n", "2", "--rsh", "/nonexistent/ssh", "sh", "-c", script)
            self.assertEqual(sorted(result.stdout.split("\n")), ["", "0 2 0 2", "1 2 1 2"])

    def test_hosts_stay_even_if_ranks_must_be_quick(self):
        # An agent and its caller need not show as often as ranks that they live.
        result = self.run_tool("--hosts", "127.0.0.1:1", "sh", "-c", "sleep 1.5; echo done",
                               ONEBIT_LOSS_TIMEOUT_MS="200", ONEBIT_HEARTBEAT_MS="50")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "done\n", ""))

    def test_ranks_start_in_the_folder_that_the_shell_names(self):
        (self.path / "target").mkdir()
        (self.path / "link").symlink_to("target")
        for name, expected in ((self.path / "link", "link"), ("/", "target"), ("target", "target")):
            result = subprocess.run([TOOL, "--hosts", "127.0.0.1", "sh", "-c", "echo $PWD"], cwd=self.path / "target",
                                    env=self.environment | {"PWD": str(name)}, stdin=subprocess.DEVNULL,
                                    capture_output=True, text=True, timeout=60)
            self.assertEqual((result.stdout, result.stderr), (f"{self.path / expected}\n", ""))

    def test_input_and_output_pass_an_agent_unchanged(self):
        text = "".join(f"{number}\n" for number in range(300000)) + "no end"
        for options in ([], ["--tag-output"]):
            result = self.run_tool("--hosts", "127.0.0.1:2", *options, "sh", "-c",
                                   "if [ $RANK = 0 ]; then cat; else cat >&2; fi", standard_input=text)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            expected = text if not options else "".join(f"[0] {line}\n" for line in text.split("\n"))
            self.assertTrue(result.stdout == expected, f"{len(result.stdout)} of {len(expected)} bytes")

    def test_input_that_a_rank_behind_an_agent_does_not_read(self):
        result = self.run_tool("--hosts", "127.0.0.1:2", "sh", "-c", "exec <&-; sleep 0.5; echo $RANK",
                               standard_input="line\n" * 100000)
        self.assertEqual((result.returncode, sorted(result.stdout.split())), (0, ["0", "1"]), result)

    def test_a_slow_reader_of_an_agents_ranks_gets_everything(self):
        job = self.start("--hosts", "127.0.0.1:2", "--tag-output", "seq", "400000",
                         env=self.environment | {"ONEBIT_LOSS_TIMEOUT_MS": "2000"})
        time.sleep(4)  # longer than the agent may be silent
        stdout, stderr = job.communicate(timeout=60)
        self.assertEqual((job.returncode, stderr), (0, ""))
        self.assertEqual(len(stdout.splitlines()), 800000)


if __name__ == "__main__":
    TOOL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
