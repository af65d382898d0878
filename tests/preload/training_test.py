# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A training by four processes with the interposer in front of NCCL, on the stand-ins:

    training_test.py PRELOAD TRAINER

TRAINER is nccl_trainer.cc. Each test prints the figures that it has compared.
"""

import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import typing
import unittest

PRELOAD, TRAINER = sys.argv[1:]
sys.argv[1:] = []

RANKS = 4
STEPS = 120
COMPRESSED_FROM = 22
FEW_STEPS = 32  # are enough where nothing may be compressed: a mistake shows once others would be
TIMEOUT_SECONDS = 150
ABORTED = 3  # status of a trainer whose watchdog has ended the communicators
LINE = re.compile(r"rank \d: loss (\S+), parameters (\w+), bytes (\d+) to (\d+), all-reduces (\d+)")


class Rank(typing.NamedTuple):
    """What a rank prints at its end."""

    loss: float
    parameters: str
    bytes_before: int
    bytes: int
    all_reduces: int


class Job:
    """The processes of a training."""

    def __init__(self, arguments: list, preload: bool = True, **variables: str):
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("LD_", "ONEBIT_"))
        }
        environment |= {"WORLD_SIZE": str(RANKS), "CUDA_STAND_IN_DEVICES": str(RANKS), **variables}
        if preload:
            environment["LD_PRELOAD"] = PRELOAD
        self._folder = tempfile.TemporaryDirectory()
        command = [TRAINER, f"{self._folder.name}/id", *map(str, arguments)]
        self._processes = [
            subprocess.Popen(command, env=environment | {"RANK": str(rank)}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for rank in range(RANKS)
        ]

    def finish(self, seconds: float = TIMEOUT_SECONDS) -> list:
        """The status and the output of each rank."""
        deadline = time.monotonic() + seconds
        try:
            outputs = [process.communicate(timeout=max(0, deadline - time.monotonic()))[0]
                       for process in self._processes]
        finally:
            for process in self._processes:
                process.kill()
            self._folder.cleanup()
        return [(process.wait(), output) for process, output in zip(self._processes, outputs)]


def train(mode: str, steps: int = STEPS, **settings) -> list:
    """The ranks of a training that succeeds, each with its output."""
    found = []
    for status, output in Job([mode, steps, steps // 2], **settings).finish():
        if status != 0 or (line := LINE.search(output)) is None:
            raise AssertionError(f"status {status}: {output}")
        loss, parameters, *counts = line.groups()
        found.append((Rank(float(loss), parameters, *map(int, counts)), output))
    return found


@functools.cache
def without(mode: str, steps: int = STEPS) -> tuple:
    """The same training without the interposer."""
    return tuple(rank for rank, _ in train(mode, steps, preload=False))


def ranks_of(trained: list) -> tuple:
    return tuple(rank for rank, _ in trained)


def outcomes(output: str) -> set:
    """What became of calls, in the table of ONEBIT_NCCL_STATS."""
    lines = [line.split() for line in output.splitlines()]
    return {" ".join(words[6:]) for words in lines if len(words) > 6 and words[3].startswith("float")}


class TrainingTest(unittest.TestCase):
    def check_compressed(self, rules: str, ratio: float, deviation: float, mode: str = "dp") -> None:
        """Traffic after the start at least `ratio` times smaller than that of mode dp in full precision,
        which that of grouped equals, and a relative loss."""
        trained = train(mode, ONEBIT_NCCL_RULES=rules, ONEBIT_NCCL_STATS="stderr")
        dense = without("dp")
        for (rank, output), reference in zip(trained, dense):
            found = (reference.bytes - reference.bytes_before) / (rank.bytes - rank.bytes_before)
            difference = rank.loss / reference.loss - 1
            print(f"{rules}: traffic 1/{found:.2f}, loss {rank.loss:.6f}, {difference:+.3%}")
            self.assertGreaterEqual(found, ratio)
            self.assertLess(abs(difference), deviation)
            self.assertIn("compressed", outcomes(output))
        told = [output.count(f"onebit VERSION in front of NCCL, to compress calls by ONEBIT_NCCL_RULES={rules}\n")
                for _, output in trained]
        self.assertEqual(told, [1, 0, 0, 0])
        self.assertEqual(len({rank.parameters for rank, _ in trained}), 1)

    def test_the_training_learns(self):
        parameters = {rank.parameters for rank in without("dp")}
        self.assertEqual(len(parameters), 1)
        # Noise alone makes 0.045, and a model that knows nothing about 0.5.
        self.assertLess(without("dp")[0].loss, 0.15)

    def test_without_rules_nothing_differs(self):
        for settings in ({}, {"ONEBIT_NCCL_RULES": "off"}):
            with self.subTest(settings):
                # Also the bytes and the calls of NCCL.
                self.assertEqual(ranks_of(train("dp", FEW_STEPS, **settings)), without("dp", FEW_STEPS))

    def test_groups_change_nothing_in_full_precision(self):
        self.assertEqual(without("grouped", FEW_STEPS), without("dp", FEW_STEPS))

    # Without error feedback the loss is 0.4 % larger.
    def test_the_default_rule(self):
        self.check_compressed("default", ratio=7, deviation=0.001)

    def test_the_default_rule_in_groups(self):
        self.check_compressed("default", ratio=7, deviation=0.001, mode="grouped")

    # Without error feedback the loss is 16 % larger.
    def test_signs(self):
        self.check_compressed("bytes>=1M:sign", ratio=28, deviation=0.01)

    def test_the_default_rule_leaves_tensor_parallelism_alone(self):
        settings = {"ONEBIT_NCCL_RULES": "default", "ONEBIT_NCCL_STATS": "stderr", "ONEBIT_DEBUG": "WARN"}
        trained = train("dptp", FEW_STEPS, **settings)
        for (rank, output), reference in zip(trained, without("dptp", FEW_STEPS)):
            self.assertEqual((rank.loss, rank.parameters), (reference.loss, reference.parameters))
            self.assertIn("no rule", outcomes(output))
            self.assertNotIn("compressed", outcomes(output))
            lines = [line for line in output.splitlines() if "the default rule compresses nothing" in line]
            self.assertEqual(len(lines), 1, output)
            self.assertIn(" onebit WARN ", lines[0])

    def test_a_rule_names_a_communicator(self):
        steps = STEPS // 2  # the first call with signs in the other communicator would already show
        trained = train("dptp", steps, ONEBIT_NCCL_RULES="comm=dp:sign", ONEBIT_NCCL_STATS="stderr")
        for (rank, output), reference in zip(trained, without("dptp", steps)):
            print(f"comm=dp:sign: loss {rank.loss:.6f}, {rank.loss / reference.loss - 1:+.3%}")
            rows = [line.split() for line in output.splitlines() if line.endswith(" compressed")]
            self.assertEqual({row[0] for row in rows}, {"dp"}, output)
            self.assertLess(abs(rank.loss / reference.loss - 1), 0.02)
        # Ranks with the same part of the layers have the same parameters.
        parameters = [rank.parameters for rank, _ in trained]
        self.assertEqual(parameters[:2], parameters[2:])

    def test_a_rank_without_rules_is_refused(self):
        ranks = []
        with tempfile.TemporaryDirectory() as folder:
            for rank, rules in enumerate(("default", "off")):
                environment = {**os.environ, "LD_PRELOAD": PRELOAD, "RANK": str(rank), "WORLD_SIZE": "2",
                               "CUDA_STAND_IN_DEVICES": "2", "ONEBIT_NCCL_RULES": rules}
                ranks.append(subprocess.Popen([TRAINER, f"{folder}/id", "dp", "1", "1"], env=environment, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
            try:
                output = ranks[1].communicate(timeout=60)[0]
            finally:
                for process in ranks:  # the other one waits for it, as in NCCL
                    process.kill()
                    process.wait()
            ranks[0].stdout.close()
        self.assertNotEqual(ranks[1].returncode, 0)
        self.assertIn("has different rules from this one", output)
        self.assertIn("ncclCommInitRank: invalid usage", output)

    # Rank 0 has the hub of the stand-in, so its end leaves the calls of all others waiting.
    def test_a_killed_rank_ends_the_others(self):
        for victim in (0, 2):
            with self.subTest(victim=victim):
                begin = time.monotonic()
                job = Job(["dp", FEW_STEPS, FEW_STEPS, victim, COMPRESSED_FROM + 4],
                          ONEBIT_NCCL_RULES="bytes>=1M:sign", ONEBIT_DEBUG="WARN")
                for rank, (status, output) in enumerate(job.finish(60)):
                    if rank == victim:
                        self.assertEqual(status, -9, output)
                        continue
                    self.assertEqual(status, ABORTED, output)
                    self.assertIn(f"rank {rank} found: remote process exited", output)
                    self.assertIn(f"rank {victim} is gone", output)
                    aborted = re.search(rf"rank {rank} aborted within (\S+) s", output)
                    print(f"rank {victim} killed: rank {rank} aborted within {aborted.group(1)} s")
                print(f"rank {victim} killed: the others have ended {time.monotonic() - begin:.1f} s "
                      "after the start of the job")


if __name__ == "__main__":
    unittest.main()
