# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/lab run: hosts, ranks, exit status, and leftovers after every kind of end."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

import lab_case

TWO = ["run", "--hosts", "2", "--rate", "1gbit", "--grace", "0.3"]
TELL = """
import json, os, socket, stat, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
         "ONEBIT_HOST", "ONEBIT_RENDEZVOUS", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
facts = {name: os.environ.get(name) for name in names}
secret = os.environ["ONEBIT_SECRET_FILE"]
facts["secret"] = open(secret).read()
facts["secret_mode"] = stat.S_IMODE(os.stat(secret).st_mode)
facts["host"] = socket.gethostname()
facts["devices"] = [name for _, name in socket.if_nameindex()]
facts["shared_memory"] = os.listdir("/dev/shm")
sys.stdout.write(json.dumps(facts) + "\\n")
"""


class LabTest(lab_case.LabTestCase):
    def facts(self, lab: subprocess.Popen) -> list[dict]:
        """What ranks of TELL say, by rank."""
        result = self.finish(lab)
        self.assertEqual(result.returncode, 0, result)
        ranks = [json.loads(line) for line in result.stdout.splitlines()]
        return sorted(ranks, key=lambda rank: int(rank["RANK"]))

    def test_every_rank_knows_its_place(self):
        self.environment |= {"RANK": "7", "OMPI_COMM_WORLD_RANK": "3", "SLURM_PROCID": "1",
                             "ONEBIT_HOST": "one", "ONEBIT_RENDEZVOUS": "elsewhere:1", "MASTER_PORT": "1"}
        ranks = self.facts(self.start("run", "--hosts", "3", "--rate", "none", "--",
                                      "python3", "-c", TELL))
        self.assertEqual([rank["RANK"] for rank in ranks], ["0", "1", "2"])
        self.assertEqual(len({rank["host"] for rank in ranks}), 3)
        first = ranks[0]
        self.assertRegex(first["MASTER_ADDR"], r"^10\.\d+\.\d+\.1$")
        self.assertEqual(first["ONEBIT_RENDEZVOUS"],
                         f"{first['MASTER_ADDR']}:{int(first['MASTER_PORT']) + 1}")
        self.assertGreaterEqual(len(first["secret"].strip()), 32)
        for rank in ranks:
            self.assertEqual((rank["WORLD_SIZE"], rank["LOCAL_RANK"], rank["LOCAL_WORLD_SIZE"]),
                             ("3", "0", "1"))
            self.assertEqual((rank["OMPI_COMM_WORLD_RANK"], rank["SLURM_PROCID"]), (None, None))
            self.assertEqual((rank["secret_mode"], rank["shared_memory"]), (0o600, []))
            self.assertEqual(rank["devices"], ["lo", "eth0"])
            self.assertEqual(rank["ONEBIT_HOST"], rank["host"])
            for name in ("MASTER_ADDR", "ONEBIT_RENDEZVOUS", "secret"):
                self.assertEqual(rank[name], first[name])

    def test_ranks_of_a_host_have_numbers_in_a_row(self):
        path = self.folder / "lab.json"
        ranks = self.facts(self.start(*TWO, "--ranks-per-host", "1,3", "--json", str(path), "--", "python3", "-c",
                                      TELL))
        self.assertEqual([(rank["LOCAL_RANK"], rank["LOCAL_WORLD_SIZE"]) for rank in ranks],
                         [("0", "1"), ("0", "3"), ("1", "3"), ("2", "3")])
        hosts = [rank["host"] for rank in ranks]
        self.assertEqual([host.split("-")[0] for host in hosts], ["host0", "host1", "host1", "host1"])
        self.assertEqual([rank["ONEBIT_HOST"] for rank in ranks], hosts)
        self.assertEqual(json.loads(path.read_text())["ranks_per_host"], [1, 3])

    def test_two_labs_at_once_do_not_meet(self):
        labs = [self.start(*TWO, "python3", "-c", TELL + "import time; time.sleep(0.5)")  # both run at once
                for _ in range(2)]
        hosts, secrets = set(), set()
        for lab in labs:
            for rank in self.facts(lab):
                hosts.add(rank["host"])
                secrets.add(rank["secret"])
        self.assertEqual((len(hosts), len(secrets)), (4, 2))

    def test_output_passes_unchanged(self):
        script = 'if [ $RANK = 0 ]; then seq 1 50000; printf "no end"; else echo other >&2; fi'
        result = self.run_lab(*TWO, "sh", "-c", script)
        expected = "".join(f"{number}\n" for number in range(1, 50001)) + "no end"
        self.assertEqual(result.stdout, expected)
        self.assertIn("other\n", result.stderr)

    def test_closed_streams_stay_out_of_the_way(self):
        result = subprocess.run(["sh", "-c", f"exec {lab_case.LAB} {' '.join(TWO)} true <&- 2>&-"],
                                stdout=subprocess.PIPE, text=True, env=self.environment, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, ""), result)

    def test_arguments_are_the_programs(self):
        result = self.run_lab("run", "--hosts", "1", "--rate", "none", "printf", "%s.",
                              "--hosts", "a b", "--", "--json")
        self.assertEqual(result.stdout, "--hosts.a b.--.--json.")

    def test_status_is_that_of_the_first_that_failed(self):
        for script, status, text in (
                ("[ $RANK = 1 ] && exit 5; sleep 60", 5, "rank 1 (pid"),
                ("[ $RANK = 1 ] && kill -9 $$; sleep 60", 137, "was killed by signal 9"),
                ("trap '' TERM; [ $RANK = 0 ] && exit 3; sleep 60", 3, "killing rank 1")):
            with self.subTest(script=script):
                path = self.folder / "lab.json"
                result = self.run_lab(*TWO, "--json", str(path), "sh", "-c", script)
                self.assertEqual(result.returncode, status, result)
                self.assertIn(text, result.stderr)
                self.assertEqual(json.loads(path.read_text())["status"], status)
                self.assertEqual(self.leftovers(), [])
        self.assertEqual(self.run_lab(*TWO, "/no/such/program").returncode, 127)

    def start_waiting(self, *script: str, grace: str = "0.3") -> subprocess.Popen:
        """Starts a lab whose ranks wait, together with processes they have started in a new session."""
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        lab = self.start(*TWO, "--grace", grace, "sh", "-c", ";".join(
            [*script, "setsid sleep 60 &", f"[ $RANK = 1 ] && touch {ready}", "wait", "sleep 60"]
        ).replace("&;", "& "))
        self.wait_for_file(ready)
        return lab

    def test_nothing_is_left_after_a_signal(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number):
                lab = self.start_waiting()
                lab.send_signal(number)
                result = self.finish(lab)
                self.assertEqual(result.returncode, 128 + number, result)
                self.assertEqual(self.leftovers(), [])

    def test_a_signal_while_the_lab_is_made_ends_it_as_any_other(self):
        for hosts_made in (1, 8):
            lab = subprocess.Popen([lab_case.LAB, "run", "--hosts", "16", "--rate", "1gbit", "--grace",
                                    "0.3", "sleep", "60"], stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=self.environment, process_group=0)
            self.owners.append(lab.pid)
            while len(list(pathlib.Path("/run/netns").glob(f"onebit-lab-{lab.pid}-*"))) <= hosts_made:
                self.assertIsNone(lab.poll())
            os.killpg(lab.pid, signal.SIGINT)  # as a terminal does
            result = self.finish(lab)
            self.assertEqual(result.returncode, 128 + signal.SIGINT, result)

    def test_a_second_signal_means_now(self):
        lab = self.start_waiting("trap '' TERM", grace="600")
        # One that comes before the lab has taken the one before counts as the same.
        while lab.poll() is None:
            lab.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        self.assertEqual(self.finish(lab).returncode, 128 + signal.SIGTERM)

    def test_nothing_is_left_after_the_death_of_the_lab(self):
        lab = self.start_waiting()
        lab.kill()
        lab.wait()
        for stream in (lab.stdout, lab.stderr):
            stream.close()
        # tearDown looks for what is left.

    def test_an_output_that_nobody_reads_ends_the_job(self):
        lab = self.start(*TWO, "sh", "-c", "while echo line; do sleep 0.01; done")
        self.assertEqual(lab.stdout.readline(), "line\n")
        lab.stdout.close()
        self.assertEqual(lab.wait(30), 128 + signal.SIGPIPE)
        lab.stderr.close()

    def test_clean_removes_only_what_has_no_owner(self):
        dead = subprocess.Popen(["true"])
        dead.wait()
        abandoned = f"onebit-lab-{dead.pid}-1-0000"
        self.owners.append(dead.pid)
        subprocess.run(["ip", "netns", "add", f"{abandoned}-host0"], check=True)
        self.addCleanup(subprocess.run, ["ip", "netns", "delete", f"{abandoned}-host0"],
                        stderr=subprocess.DEVNULL, check=False)
        (self.folder / abandoned).mkdir()
        lab = self.start_waiting()
        result = self.run_lab("clean")
        self.assertEqual(result.returncode, 0, result)
        # Labs that other tests have killed may be among them.
        removed = re.findall(r"^removed (onebit-lab-(\d+)-.+)$", result.stdout, re.MULTILINE)
        self.assertEqual(len(removed), result.stdout.count("\n"), result)
        self.assertIn((abandoned, str(dead.pid)), removed)
        self.assertEqual([name for name, owner in removed if os.path.exists(f"/proc/{owner}")], [])
        self.assertFalse((self.folder / abandoned).exists())
        self.assertIsNone(lab.poll())
        lab.terminate()
        self.finish(lab)

    def test_bad_usage_is_said(self):
        for arguments, text in (
                (["run", "--hosts", "0", "--rate", "none", "true"], "1 ... 64"),
                (["run", "--hosts", "2", "--rate", "1gb", "true"], "1gb"),
                (["run", "--hosts", "2", "--rate", "0gbit", "true"], "0gbit"),
                (["run", "--hosts", "2", "--rate", "1gbit"], "PROGRAM"),
                (["run", "--rate", "1gbit", "true"], "--hosts"),
                (["mpirun", "--hosts", "2", "--rate", "1gbit", "--mpi", "x", "true"], "--mpi"),
                ([*TWO, "--ranks-per-host", "0", "true"], "0: a host may have 1 ... 64 ranks"),
                ([*TWO, "--ranks-per-host", "2,2,2", "true"], "3 numbers for 2 hosts"),
                (["mpirun", *TWO[1:], "--ranks-per-host", "1,x", "true"], "1,x: a host may have"),
                ([], "COMMAND")):
            with self.subTest(arguments=arguments):
                result = self.run_lab(*arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""), result)
                self.assertIn(text, result.stderr)
        for arguments in (["--help"], ["run", "--help"], ["mpirun", "--help"]):
            result = self.run_lab(*arguments)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("usage: lab", result.stdout)

    def test_a_report_that_cannot_be_written_is_said_before_the_run(self):
        result = self.run_lab(*TWO, "--json", "/nonexistent/lab.json", "echo", "ran")
        self.assertEqual((result.returncode, result.stdout), (2, ""), result)
        self.assertIn("/nonexistent/lab.json", result.stderr)

    def test_without_root_or_tools_it_is_unavailable(self):
        command = [lab_case.LAB, *TWO, "true"]
        del self.environment["TMPDIR"]  # only root may enter it
        as_user = ["setpriv", "--reuid", "65534", "--clear-groups"]
        # A clone below a folder of mktemp's is for its owner alone.
        if subprocess.run([*as_user, "test", "-r", lab_case.LAB], check=False).returncode == 0:
            user = subprocess.run([*as_user, *command], capture_output=True, text=True,
                                  env=self.environment, check=False)
            self.assertEqual((user.returncode, user.stdout), (77, ""), user)
            self.assertIn("root", user.stderr)
        (self.folder / "bin").mkdir()
        os.symlink("/usr/bin/python3", self.folder / "bin" / "python3")
        bare = subprocess.run(["/usr/bin/env", *command], capture_output=True, text=True, check=False,
                              env=self.environment | {"PATH": str(self.folder / "bin")})
        self.assertEqual((bare.returncode, bare.stdout), (77, ""), bare)
        self.assertIn("iproute2", bare.stderr)


if __name__ == "__main__":
    lab_case.skip_without_lab()
    unittest.main()
