# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""perf/compare from end to end: compare_test.py ROOT BUILD fakes|shm|lab

`fakes` are tools that fail, hang or are slow as they are told, without ranks. `shm` and `lab` compare
what this build has, in seconds; 77 where there can be no lab.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from waiting import comes_true  # noqa: E402

ROOT, BUILD, WHAT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
ENTRY_KEYS = {"link", "rate", "rate_bits_per_second", "hosts", "ranks_per_host", "system", "size",
              "time_us", "time_us_min", "time_us_max", "repetitions", "calls", "wire_bytes", "link_bytes",
              "levels", "rel_error", "nwrong", "error", "state", "failed_repetitions", "failure"}
PROGRAMS = {"openmpi": "allreduce_openmpi", "openmpi-ring": "allreduce_openmpi",
            "mpich": "allreduce_mpich", "gloo": "allreduce_gloo", "multipass": "allreduce_multipass"}

# A tool that appends its arguments to a log and then does what the file beside it says of its mode.
FAKE_TOOL = """#!/usr/bin/env python3
import json, pathlib, sys, time
here = pathlib.Path(__file__).parent
arguments = sys.argv[1:]
mode = "ef" if "ef" in arguments else "dense"
if here.name == "baselines":
    here, mode = here.parents[1], "mpich"
with open(here / "log", "a") as log:
    log.write(mode + "\\n")
behaviour = json.loads((here / "behaviour").read_text()).get(mode, "good")
count = (here / "log").read_text().split().count(mode)
if behaviour == "bad" or (behaviour == "bad the second time" and count == 2):
    print("# a table", file=sys.stderr)
    print("the tool says: no good", file=sys.stderr)
    sys.exit(3)
if behaviour == "slow":
    (here / "started").touch()
    time.sleep(60)
place = {"time": 5.0, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 0 if "1" in arguments else None}
row = {"size": 1024, "out_of_place": place, "in_place": dict(place, time=None), "actual_iterations": 3,
       "untimed_calls": 1, "wire_bytes": 7, "levels": 1, "rel_error": 0.25 if mode == "ef" else 1e-8}
report = {"end_time": "now", "results": [row]}
pathlib.Path(arguments[arguments.index("-J") + 1]).write_text(json.dumps(report))
if behaviour == "hangs at the end":
    time.sleep(60)
"""


# One of MPI that starts a single process.
FAKE_LAUNCHER = """#!/bin/sh
while [ "$1" != -n ]; do shift; done
shift 2
exec "$@"
"""


def compare(*arguments: str) -> subprocess.CompletedProcess:
    """Runs it to its end."""
    print("perf/compare", *arguments, flush=True)
    return subprocess.run([ROOT / "perf/compare", *arguments], capture_output=True, text=True, timeout=120,
                          check=False)


def read(path: pathlib.Path) -> dict:
    """Reads a file and checks that its entries have what readers need."""
    content = json.loads(path.read_text())
    assert (content["format"], content["version"]) == ("onebit-compare", 1), content
    assert set(content["machine"]) == {"cpu", "cores", "kernel", "date", "commit", "compiler",
                                       "copy_gbps", "cache_bytes"}, content["machine"]
    for entry in content["results"]:
        assert set(entry) == ENTRY_KEYS, entry
        if entry["error"] is None:
            assert entry["time_us_min"] <= entry["time_us"] <= entry["time_us_max"], entry
            assert entry["repetitions"] >= 1 and entry["calls"] >= 2, entry
    return content


class Fakes:
    """Makes a build with such tools, and compares the two."""

    def __init__(self, folder: str):
        self.folder = pathlib.Path(folder)
        self.perf = self.folder / "build/perf"
        self.perf.mkdir(parents=True)
        self.output = self.folder / "compare.json"
        (self.perf / "studies/baselines").mkdir(parents=True)
        (self.folder / "bin").mkdir()
        for path, text in ((self.perf / "all_reduce_perf", FAKE_TOOL),
                           (self.perf / "studies/baselines/allreduce_mpich", FAKE_TOOL),
                           (self.folder / "bin/mpirun.mpich", FAKE_LAUNCHER)):
            path.write_text(text)
            path.chmod(0o755)
        os.environ["PATH"] = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        self.flags = ["--build", str(self.folder / "build"), "--output", str(self.output), "--links", "shm",
                      "--hosts", "2", "--sizes", "1K", "--repetitions", "2", "--systems",
                      "onebit-dense,onebit-ef"]

    def behave(self, **modes: str) -> None:
        """Sets what tools do from now on."""
        (self.perf / "behaviour").write_text(json.dumps(modes))
        (self.perf / "log").write_text("")

    def log(self) -> list[str]:
        """Returns the modes that were run, in order."""
        return (self.perf / "log").read_text().split()


def check_turns_and_resume(fakes: Fakes) -> None:
    """Systems take turns; what is done is not done again; files are not overwritten."""
    fakes.behave()
    done = compare(*fakes.flags)
    assert done.returncode == 0 and "rows: 2 measured; 0 commands failed" in done.stderr, done
    assert fakes.log() == ["dense", "ef"] * 2, fakes.log()
    content = read(fakes.output)
    assert [(entry["system"], entry["repetitions"], entry["nwrong"]) for entry in content["results"]] == [
        ("onebit-dense", 2, 0), ("onebit-ef", 2, 0)], content
    assert set(content["commands"]) == {"shm"}, content["commands"]
    assert set(content["commands"]["shm"]) == {"onebit-dense", "onebit-ef"}, content["commands"]

    before = fakes.output.read_bytes()
    again = compare(*fakes.flags)
    assert again.returncode == 2 and "--resume" in again.stderr, again
    assert fakes.output.read_bytes() == before
    fakes.behave()
    done = compare(*fakes.flags, "--resume")
    assert done.returncode == 0, done
    assert fakes.log() == [] and read(fakes.output)["results"] == content["results"]
    fakes.output.unlink()
    assert compare(*fakes.flags, "--resume").returncode == 2  # there is nothing to resume


def check_resume_with_another_budget(fakes: Fakes) -> None:
    """Another plan could divide sweeps differently and measure a row twice in a repetition."""
    fakes.behave()
    assert compare(*fakes.flags).returncode == 0
    fakes.behave()
    other = compare(*fakes.flags, "--resume", "--time-budget", "77")
    assert other.returncode == 2 and "was begun with --time-budget 1500, not 77" in other.stderr, other
    assert fakes.log() == [], fakes.log()
    fakes.output.unlink()


def check_failing_system(fakes: Fakes) -> None:
    """A failed system reports its own message as error; others are measured, and a later run makes up
    for it."""
    fakes.behave(dense="bad")
    done = compare(*fakes.flags)
    assert done.returncode == 1 and "exit status 3: the tool says: no good" in done.stderr, done
    dense, ef = read(fakes.output)["results"]
    assert dense["error"] == "exit status 3: the tool says: no good" and dense["time_us"] is None, dense
    assert ef["error"] is None and ef["repetitions"] == 2, ef
    fakes.behave()
    done = compare(*fakes.flags, "--resume")
    assert done.returncode == 0, done
    assert fakes.log() == ["dense"] * 2, fakes.log()
    assert read(fakes.output)["results"][0]["repetitions"] == 2
    fakes.output.unlink()


def check_failing_repetition(fakes: Fakes) -> None:
    """A failed repetition shows even if others are good, and a later run makes up for it."""
    fakes.behave(dense="bad the second time")
    done = compare(*fakes.flags)
    reason = "exit status 3: the tool says: no good"
    assert done.returncode == 1 and f"1 rows of onebit-dense: {reason}" in done.stderr, done
    assert "rows: 2 measured; 1 commands failed" in done.stderr, done
    dense, ef = read(fakes.output)["results"]
    assert (dense["state"], dense["error"], dense["repetitions"]) == ("measured", None, 1), dense
    assert (dense["failed_repetitions"], dense["failure"]) == (1, reason), dense
    assert (ef["failed_repetitions"], ef["failure"]) == (0, None), ef
    tables = subprocess.run([ROOT / "perf/report", fakes.output, "--markdown"], check=True, timeout=60,
                            capture_output=True, text=True).stdout
    assert f"A repetition failed of onebit dense, shared memory, 2 processes, 1 KiB: {reason}" in tables, tables
    fakes.behave()
    done = compare(*fakes.flags, "--resume")
    assert done.returncode == 0, done
    assert fakes.log() == ["dense"], fakes.log()
    assert read(fakes.output)["results"][0]["failed_repetitions"] == 0
    fakes.output.unlink()


def check_hang_at_the_end(fakes: Fakes) -> None:
    """A tool of MPICH that hangs after writing everything is ended, and counts. Another system's does
    not."""
    fakes.behave(ef="hangs at the end", mpich="hangs at the end")
    flags = [*fakes.flags, "--patience", "4"]  # a busy machine must have started the tool by then
    done = compare(*flags, "--systems", "mpich", "--repetitions", "1")
    assert done.returncode == 0 and fakes.log() == ["mpich"], done
    content = read(fakes.output)
    assert [sample["was_ended"] for sample in content["samples"]] == [True], content["samples"]
    assert content["results"][0]["failed_repetitions"] == 0, content["results"]
    fakes.output.unlink()

    done = compare(*flags)
    ends = [int(seconds) for seconds in re.findall("no end after ([0-9]+) s", done.stderr)]
    assert done.returncode == 1 and ends and max(ends) < 20, done  # 30 without the flag
    assert fakes.log() == ["mpich", "dense", "ef", "dense"], fakes.log()  # not once more
    content = read(fakes.output)
    assert {sample["was_ended"] for sample in content["samples"]} == {False}, content["samples"]
    dense, ef = content["results"]
    assert (dense["failed_repetitions"], ef["failed_repetitions"]) == (0, 1), (dense, ef)
    fakes.output.unlink()


def check_interruption(fakes: Fakes, number: signal.Signals) -> None:
    """When stopped, it ends its command and leaves a file that can be continued."""
    fakes.behave(ef="slow")
    started = fakes.perf / "started"
    started.unlink(missing_ok=True)
    with subprocess.Popen([ROOT / "perf/compare", *fakes.flags], stderr=subprocess.PIPE,
                          start_new_session=True) as process:
        assert comes_true(started.exists) and process.poll() is None, process.stderr.read()
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == 128 + number, process.returncode
    tool = str(fakes.perf / "all_reduce_perf").encode()
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert tool not in path.read_bytes(), path
        except OSError:
            pass  # it ended while we looked
    assert [entry["system"] for entry in read(fakes.output)["results"]] == ["onebit-dense"]
    fakes.behave()
    done = compare(*fakes.flags, "--resume")
    assert done.returncode == 0, done
    assert fakes.log() == ["ef", "dense", "ef"], fakes.log()
    fakes.output.unlink()


def check_missing_tool(fakes: Fakes) -> None:
    """A missing tool is recorded with its reason, and is no failure unless nothing else can run."""
    fakes.behave()
    done = compare(*fakes.flags, "--systems", "gloo,onebit-ef")
    assert done.returncode == 0 and "rows: 1 measured, 1 absent" in done.stderr, done
    gloo, ef = read(fakes.output)["results"]
    assert "allreduce_gloo is not built" in gloo["error"] and "libgloo-dev" in gloo["error"], gloo
    assert (gloo["state"], ef["state"], ef["error"]) == ("absent", "measured", None), (gloo, ef)
    fakes.output.unlink()
    assert compare(*fakes.flags, "--systems", "gloo").returncode == 1
    fakes.output.unlink()


def check_short_budget(fakes: Fakes) -> None:
    """Rows without time are left out and do not fail."""
    fakes.behave()
    done = compare(*fakes.flags, "--time-budget", "0.001")
    assert done.returncode == 1 and "rows: 2 left out; 0 commands failed" in done.stderr, done
    assert {entry["state"] for entry in read(fakes.output)["results"]} == {"left out"}
    assert fakes.log() == [], fakes.log()
    fakes.output.unlink()


def check_usage(fakes: Fakes) -> None:
    """Usage errors name the wrong word, and nothing is run."""
    fakes.behave()
    for arguments, text in {("--links", "shm,warp"): "'warp' is not a link", ("--hosts", "1"): "'1' is not a number",
                            ("--systems", "nccl"): "'nccl' is not one of", ("--sizes", "3"): "'3' is not a size",
                            ("--repetitions", "0"): "'0' is not a positive number",
                            ("--time-budget", "nan"): "'nan' is not a positive number",
                            ("--ranks-per-host", "0"): "'0' is not a number of ranks from 1 to 64",
                            ("--ranks-per-host", "2,2"): "'2,2' is not a number of ranks from 1 to 64",
                            ("--ranks-per-host", "2"): "leave out shm of --links",
                            ("--build", "/nonexistent"): "there is no build in /nonexistent"}.items():
        done = compare(*fakes.flags, *arguments)
        assert done.returncode == 2 and text in done.stderr, done
    assert fakes.log() == [] and not fakes.output.exists()


def check_dry_run(fakes: Fakes) -> None:
    """Prints commands as a reader would run them, the estimate, and nothing else."""
    fakes.behave()
    done = compare(*fakes.flags, "--dry-run", "--links", "shm,1gbit")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 2 * 2 * 2 + 1, done
    assert "about" in lines[-1] and "minutes" in lines[-1], lines[-1]
    lab = f"perf/lab run --hosts 2 --rate 1gbit --build {fakes.folder / 'build'} -- "
    assert sum(line.startswith(lab) for line in lines) == 4, lines
    shared = compare(*fakes.flags, "--dry-run", "--links", "1gbit", "--hosts", "2,3", "--ranks-per-host", "4")
    lines = shared.stdout.splitlines()
    assert lines[-1].startswith("# 8 commands for 2, 3 hosts x 4 ranks, 2 repetitions, about "), lines[-1]
    assert sum(line.startswith("perf/lab run --hosts 3 --ranks-per-host 4 ") for line in lines) == 4, lines
    default = compare(*fakes.flags[:4], "--dry-run", "--ranks-per-host", "2", "--sizes", "1K")
    assert default.returncode == 0 and " --ranks-per-host 2 --rate 2.7gbit " in default.stdout, default
    several = compare(*fakes.flags, "--dry-run", "--sizes", "1K,4K,10K").stdout.splitlines()[:-1]
    assert len(several) > 4 and all(" --buffer-bytes 10K " in line for line in several), several
    assert fakes.log() == [] and not fakes.output.exists()


def check_fakes() -> None:
    """Runs all checks with fake tools."""
    with tempfile.TemporaryDirectory() as folder:
        fakes = Fakes(folder)
        check_usage(fakes)
        check_dry_run(fakes)
        check_turns_and_resume(fakes)
        check_resume_with_another_budget(fakes)
        check_failing_system(fakes)
        check_failing_repetition(fakes)
        check_hang_at_the_end(fakes)
        check_missing_tool(fakes)
        check_short_budget(fakes)
        for number in (signal.SIGINT, signal.SIGTERM):
            check_interruption(fakes, number)


def has(system: str) -> bool:
    """True if the build has the system's program."""
    return system not in PROGRAMS or os.access(BUILD / "perf/studies/baselines" / PROGRAMS[system], os.X_OK)


def check_real(systems: list[str], sizes: str, *arguments: str) -> list[dict]:
    """Compares the available systems and returns the entries."""
    systems = [system for system in systems if has(system)]
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "c.json"
        done = compare("--build", str(BUILD), "--output", str(output), "--hosts", "2", "--sizes", sizes,
                       "--repetitions", "1", "--systems", ",".join(systems), *arguments)
        print(done.stderr)
        assert done.returncode == 0, done
        content = read(output)
    # MPICH's way around its hang needs a host for each rank.
    may_hang = {"mpich"} if "--ranks-per-host" in arguments else set()
    ended = {sample["system"] for sample in content["samples"] if sample["was_ended"]}
    assert ended <= may_hang, content["samples"]
    entries = content["results"]
    assert len(entries) == len(systems) * len(sizes.split(",")), entries
    for entry in entries:
        assert entry["error"] is None and entry["time_us"] > 0, entry
        is_onebit = entry["system"].startswith("onebit")
        assert (entry["wire_bytes"] is not None) == is_onebit, entry
        is_dense = entry["system"] not in ("onebit-ef", "onebit-fp4", "multipass")
        assert (entry["rel_error"] < 1e-6) == is_dense, entry
    return entries


def check_shm() -> None:
    """Compares all systems, with checks."""
    systems = [*PROGRAMS, "onebit-dense", "onebit-ef", "onebit-fp4"]
    for entry in check_real(systems, "4K,256K", "--links", "shm"):
        assert entry["link"] == "shm" and entry["nwrong"] == 0, entry


def lab_of(parent: int, program: str) -> int | None:
    """Finds the perf/lab process that `parent` has started to run the program."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            started_by = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended while we looked
        if started_by == parent and any(word.endswith(program) for word in words):
            return int(folder.name)
    return None


def networks_of(lab: int | None) -> list[str]:
    return [path.name for path in pathlib.Path("/run/netns").glob(f"onebit-lab-{lab}-*")]


def check_interruption_in_lab() -> None:
    """A stop in the middle of a long command leaves no network and no process."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--build", str(BUILD), "--output", f"{folder}/c.json", "--hosts", "2", "--sizes", "64M",
                 "--systems", "onebit-dense", "--links", "10mbit", "--repetitions", "1"]
        with subprocess.Popen([ROOT / "perf/compare", *flags, "--time-budget", "1e6"],
                              stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            deadline = time.monotonic() + 30
            while not networks_of(lab := lab_of(process.pid, "all_reduce_perf")):
                assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
                time.sleep(0.02)
            time.sleep(0.5)  # ranks have met
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=40)
        assert process.returncode == 128 + signal.SIGTERM, process.returncode
        assert networks_of(lab) == [] and not pathlib.Path(f"/proc/{lab}").exists(), lab
        assert read(pathlib.Path(folder) / "c.json")["results"] == []


def check_ranks_that_share_links() -> None:
    """Link counters agree with the bytes that must pass where hosts have several ranks."""
    size, ranks = 4 << 20, 4
    ring, two_levels = 2 * (ranks - 1) / ranks * size, size
    least = {"openmpi-ring": ring, "gloo": ring, "mpich": two_levels, "onebit-dense": two_levels,
             "onebit-ef": two_levels / 31.7, "onebit-fp4": two_levels * 4.125 / 32}
    for entry in check_real(list(least), str(size), "--links", "1gbit", "--ranks-per-host", "2"):
        assert (entry["hosts"], entry["ranks_per_host"]) == (2, 2), entry
        assert entry["levels"] == (2 if entry["system"].startswith("onebit") else None), entry
        payload = least[entry["system"]]
        assert payload < entry["link_bytes"] < 1.25 * payload + 40_000, entry


def check_lab() -> int:
    """Link counters agree with the bytes that must pass."""
    probe = subprocess.run([ROOT / "perf/lab", "run", "--hosts", "2", "--rate", "1gbit", "--", "true"],
                           capture_output=True, text=True, check=False)
    if probe.returncode == 77:
        print(probe.stderr)
        return 77
    size = 4 << 20
    for entry in check_real(["openmpi-ring", "mpich", "gloo", "onebit-dense", "onebit-ef"], "16K,4M",
                            "--links", "1gbit"):
        assert entry["rate"] == "1gbit" and entry["rate_bits_per_second"] == 10**9, entry
        if entry["size"] < size:
            assert entry["nwrong"] == 0, entry
            continue
        # Half of a chunk each way and back; frames, acknowledgements and the start come on top.
        payload = size / 31.7 if entry["system"] == "onebit-ef" else size
        assert payload < entry["link_bytes"] < 1.25 * payload + 20_000, entry
        if entry["system"] != "onebit-ef":
            assert entry["time_us"] > 0.9 * size * 8 / 1e9 * 1e6, entry  # the wire's own time
    check_ranks_that_share_links()
    check_interruption_in_lab()
    return 0


def main() -> int:
    if WHAT == "fakes":
        check_fakes()
    elif WHAT == "shm":
        check_shm()
    else:
        return check_lab()
    return 0


if __name__ == "__main__":
    sys.exit(main())
