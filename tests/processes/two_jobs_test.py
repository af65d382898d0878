# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Two jobs that meet at one place: none becomes a communicator with ranks of both.

    two_jobs_test.py RANK_LOOP ONEBIT_RUN              rules, and a few pairs
    two_jobs_test.py RANK_LOOP ONEBIT_RUN WORD PAIRS   so many at a file and at a port; prints what became of them

WORD is the variable that tells the jobs apart, "onebit_run", or "none"."""

import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import random
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import job  # noqa: E402
from waiting import comes_true  # noqa: E402

JOINED = re.compile(r"communicator ([0-9a-f]{8}): rank (\d+) of 2, ")
SECRET = "a secret of both jobs"
PORTS = itertools.count(20000 + os.getpid() * 7 % 9000)
BY_HAND = {"WORLD_SIZE": "2"}
# What the ranks of job "a" or "b" have.
WORDS = {
    "ONEBIT_JOB": lambda name, rank: BY_HAND | {"RANK": rank, "ONEBIT_JOB": name},
    "TORCHELASTIC_RUN_ID": lambda name, rank: BY_HAND | {"RANK": rank, "TORCHELASTIC_RUN_ID": name},
    "SLURM_STEP_ID": lambda name, rank: {
        "SLURM_PROCID": rank, "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": str(ord(name))},
    "PMIX_NAMESPACE": lambda name, rank: {
        "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": name},
    "none": lambda name, rank: BY_HAND | {"RANK": rank},
}


def inherited() -> dict[str, str]:
    launchers = ("ONEBIT_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "MASTER_")
    return {name: value for name, value in os.environ.items()
            if not name.startswith(launchers) and name not in ("RANK", "WORLD_SIZE")
            or name == "ONEBIT_PLUGIN_PATH"}


@contextlib.contextmanager
def meeting(kind: str, timeout_ms: int):
    """The variables of a place for both jobs."""
    with tempfile.TemporaryDirectory(prefix="onebit-test-") as folder:
        place = f"{folder}/meet" if kind == "file" else f"127.0.0.1:{next(PORTS)}"
        yield inherited() | {"ONEBIT_RENDEZVOUS": place, "ONEBIT_SECRET": SECRET, "ONEBIT_DEBUG": "INFO",
                             "ONEBIT_CONNECT_TIMEOUT_MS": str(timeout_ms)}


class Pair:
    """Starts ranks of the jobs "a" and "b", and ends them when the block is left."""

    def __init__(self, program: str, word: str, place: dict[str, str]):
        self._command = [program, "1", "1000", "dense"]
        self._word, self._place = word, place
        self.ranks: dict[str, job.Rank] = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks.values():
            rank.process.kill()
            rank.process.wait()

    def start(self, *names: str):
        """ "a0" is rank 0 of job "a"."""
        for name in names:
            variables = WORDS[self._word](name[0], name[1])
            self.ranks[name] = job.Rank(self._command, self._place | variables)

    def expect_end(self, name: str):
        """It has joined and made its call."""
        result, _, text = self.ranks[name].ended(job.PATIENCE_SECONDS)
        assert result == 0, text

    def error(self, name: str) -> str:
        return self.ranks[name].wait_for("onebitCommInitEnv: ", job.PATIENCE_SECONDS)


def joined(lines: list[str]) -> list[str]:
    return [match[1] for line in lines if (match := JOINED.search(line))]


def race(program: str, launcher: str, word: str, kind: str) -> tuple[bool, int]:
    """Starts both jobs at once. Returns whether ranks of both are in one communicator, and how many jobs went on."""
    with meeting(kind, 2000) as place:
        if word == "onebit_run":
            command = [launcher, "--grace", "0", "-n", "2", program, "1", "1000", "dense"]
            jobs = [job.Rank(command, place) for _ in range(2)]
            for one in jobs:
                one.exit_status()
            found = [joined(one.lines) for one in jobs]
        else:
            with Pair(program, word, place) as pair:
                names = ["a0", "a1", "b0", "b1"]
                random.shuffle(names)
                pair.start(*names)
                for rank in pair.ranks.values():
                    rank.exit_status()
                found = [joined(pair.ranks[f"{name}0"].lines) + joined(pair.ranks[f"{name}1"].lines)
                         for name in "ab"]
    return bool(set(found[0]) & set(found[1])), sum(len(ids) == 2 and len(set(ids)) == 1 for ids in found)


def races(program: str, launcher: str, word: str, kind: str, count: int) -> int:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: race(program, launcher, word, kind), range(count)))
    mixed = sum(is_mixed for is_mixed, _ in results)
    went_on = [sum(jobs == number for _, jobs in results) for number in (0, 1, 2)]
    print(f"{word}, {kind}: {mixed} of {count} pairs mixed; none of the jobs went on {went_on[0]} times, one "
          f"{went_on[1]}, both {went_on[2]}", flush=True)
    return mixed


def check_first_job_goes_on(program: str, kind: str):
    """Ranks of another job that come between its ranks do not disturb it, and learn why they were turned away."""
    with meeting(kind, 1000 * job.PATIENCE_SECONDS) as place, Pair(program, "ONEBIT_JOB", place) as pair:
        pair.start("a0")
        await_rank_0(pair, place)
        pair.start("b0", "b1")
        for name in ("b0", "b1"):
            error = pair.error(name)
            assert re.search(rf":\d+, rank {name[1]} of the job ONEBIT_JOB=b, came to where the job ONEBIT_JOB=a meets",
                             error), error
            assert "ONEBIT_RENDEZVOUS" in error, error
        pair.start("a1")
        for name in ("a0", "a1"):
            pair.expect_end(name)
        assert any("turned away: this is where the job ONEBIT_JOB=a meets" in line for line in pair.ranks["a0"].lines), pair.ranks["a0"].lines


def check_missing_rank_of_other_word(program: str):
    """A rank that has another word by mistake is named by those that wait for it."""
    with meeting("file", 5000) as place, Pair(program, "ONEBIT_JOB", place) as pair:
        pair.start("a0", "b1")
        error = pair.error("a0")
        assert re.search(r"rank 1 missing \(1 of 2\), but \S+:\d+, rank 1 of the job ONEBIT_JOB=b, was turned away, after",
                         error), error


def check_second_claimant(program: str, kind: str, second: str):
    """Without a word for its job a rank that comes twice fails both jobs, with the name of the variable."""
    with meeting(kind, 1000 * job.PATIENCE_SECONDS) as place, Pair(program, "none", place) as pair:
        pair.start("a0")
        await_rank_0(pair, place)
        pair.start("b0")
        for name in ("a0", "b0"):
            error = pair.error(name)
            assert "rank 0 joined twice: " in error and "ONEBIT_JOB" in error, error


def await_rank_0(pair: Pair, place: dict[str, str]):
    """Until rank 0 of job "a" waits at the place."""
    at = place["ONEBIT_RENDEZVOUS"]

    def is_waiting() -> bool:
        if at.startswith("/"):
            return os.path.exists(at)
        local = f"0100007F:{int(at.rsplit(':', 1)[1]):04X} 00000000:0000 0A"  # it listens
        return local in pathlib.Path("/proc/net/tcp").read_text()

    assert comes_true(is_waiting, job.PATIENCE_SECONDS), pair.ranks["a0"].lines


def check_restart_counts(program: str):
    """After a restart of torchrun's workers its agents on several hosts have counted differently."""
    with meeting("file", 1000 * job.PATIENCE_SECONDS) as place:
        common = place | BY_HAND | {"TORCHELASTIC_RUN_ID": "run"}
        ranks = [job.Rank([program, "1", "1000", "dense"],
                          common | {"RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(rank)}) for rank in range(2)]
        for rank in ranks:
            result, _, text = rank.ended(job.PATIENCE_SECONDS)
            assert result == 0, text
            rank.exit_status()


def main() -> int:
    program, launcher, *rest = sys.argv[1:]
    if rest:
        mixed = [races(program, launcher, rest[0], kind, int(rest[1])) for kind in ("file", "port")]
        return int(any(mixed) and rest[0] != "none")
    for kind in ("file", "port"):
        check_first_job_goes_on(program, kind)
        check_second_claimant(program, kind, "b0")
    check_missing_rank_of_other_word(program)
    check_restart_counts(program)
    for word in ("ONEBIT_JOB", "onebit_run"):
        for kind in ("file", "port"):
            assert races(program, launcher, word, kind, 4) == 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
