# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that go on after several were lost: shrink_test.py SHRINK_LOOP [REPEATS [NAME...]]

4 ranks, most of them on two hosts. Each case runs REPEATS times (once by default) and prints the slowest
recovery, in seconds from the fault.
"""

import re
import signal
import sys
import time

import hosts
import job

GRACE_SECONDS = 2
SECRET = "a secret of this test only"
WENT_ON = re.compile(r"went on (\d+) ([\d.]+) (.*)")
# Silence counts as loss after this time. The longer one is for cases in which nobody may be silent so long.
SILENCE = {"ONEBIT_LOSS_TIMEOUT_MS": "2000", "ONEBIT_HEARTBEAT_MS": "250"}
NO_SILENCE = {"ONEBIT_LOSS_TIMEOUT_MS": str(1000 * job.NO_SILENCE_SECONDS)}


class Shrinking(job.Job):
    """4 ranks that run until their input ends."""

    def __init__(self, commands: list[list[str]], **variables: str):
        grace = {"ONEBIT_SHRINK_GRACE_MS": str(1000 * GRACE_SECONDS)}
        super().__init__(commands, has_input=True, **(grace | variables))

    def went_on(self, rank: int, seconds: float = 2 * job.PATIENCE_SECONDS) -> tuple[int, float, str]:
        match = WENT_ON.match(self.ranks[rank].wait_for("went on", seconds))
        return int(match[1]), float(match[2]), match[3]

    def all_ended(self, ranks=range(4)):
        for rank in ranks:
            self.ranks[rank].ended(job.PATIENCE_SECONDS)

    def expect(self, ranks, text: str, since: float, levels: int = 1) -> float:
        """These ranks went on, as the text says, with so many levels; how long it took the slowest."""
        slowest = 0.0
        for rank in ranks:
            result, when, said = self.went_on(rank)
            assert (result, said) == (0, f"{text}, levels {levels}"), (rank, result, said, self.ranks[0].lines)
            slowest = max(slowest, when - since)
        return slowest


def start(two: hosts.TwoHosts, program: str, **variables: str) -> Shrinking:
    place = {"ONEBIT_RENDEZVOUS": f"{two.addresses[0]}:45871", "ONEBIT_SECRET": SECRET}
    running = Shrinking([two.on_as_rank(rank // 2, [program]) for rank in range(4)], **(place | variables))
    return running


def kill_rank(two: hosts.TwoHosts, program: str, number: int) -> float:
    """One rank of a host is killed: the others go on in two levels, on hosts of two ranks and of one."""
    with start(two, program, **NO_SILENCE) as running:
        running.wait_until_ready()
        victim = (3, 0, 2, 1)[number % 4]
        others = [rank for rank in range(4) if rank != victim]
        since = running.hurt(victim, signal.SIGKILL)
        return running.expect(others, "{} {} {} / {}".format(*others, victim), since, levels=2)


def kill_host(two: hosts.TwoHosts, program: str, number: int) -> float:
    """Both ranks of a host are killed at once: the others go on without waiting for either."""
    with start(two, program, **NO_SILENCE) as running:
        running.wait_until_ready()
        victims = (2, 3) if number % 2 == 0 else (0, 1)
        others = [rank for rank in range(4) if rank not in victims]
        for victim in victims:
            since = running.hurt(victim, signal.SIGKILL)
        text = "{} {} / {} {}".format(*others, *victims)
        return running.expect(others, text, since)


def vanished_host(two: hosts.TwoHosts, program: str, number: int) -> float:
    """A host is gone and says nothing: the others wait for the grace, and go on. So does the host, by itself."""
    with start(two, program, **SILENCE) as running:
        running.wait_until_ready()
        two.set_link(1, "down")
        try:
            running.all_ended()
            since = time.monotonic()
            first, second = (0, 1), (2, 3)
            if number % 2 == 1:
                first, second = second, first
            slowest = running.expect(first, "{} {} / {} {}".format(*first, *second), since)
            running.expect(second, "{} {} / {} {}".format(*second, *first), since)
            assert any("go on, too" in line for rank in (0, 2) for line in running.ranks[rank].lines)
            return slowest
        finally:
            two.set_link(1, "up")


def quorum(two: hosts.TwoHosts, program: str, _number: int) -> float:
    """The network is cut in two. With a quorum, one half goes on; the other is told why it may not."""
    with start(two, program, ONEBIT_QUORUM="1", **SILENCE) as running:
        running.wait_until_ready()
        two.set_link(1, "down")
        try:
            running.all_ended()
            since = time.monotonic()
            slowest = running.expect((0, 1), "0 1 / 2 3", since)
            for rank in (2, 3):
                result, _, text = running.went_on(rank)
                assert result == 5 and "2 of 4 ranks have met" in text and "ranks 0 1 may be alive" in text, text
            return slowest
        finally:
            two.set_link(1, "up")


def outage(two: hosts.TwoHosts, program: str, _number: int) -> float:
    """Every rank has lost others, but the network is whole again before the grace ends: all go on together."""
    with start(two, program, ONEBIT_SHRINK_GRACE_MS="20000", **SILENCE) as running:
        running.wait_until_ready()
        two.set_link(1, "down")
        try:
            running.all_ended()
            time.sleep(1)  # ranks meet on each side
        finally:
            two.set_link(1, "up")
        return running.expect(range(4), "0 1 2 3 /", time.monotonic(), levels=2)


def resets(two: hosts.TwoHosts, program: str, _number: int) -> float:
    """Every connection breaks, though every rank lives: all go on together."""
    with start(two, program, **NO_SILENCE) as running:
        running.wait_until_ready()
        since = time.monotonic()
        two.reset_connections()
        return running.expect(range(4), "0 1 2 3 /", since, levels=2)


def sleeper(_two: hosts.TwoHosts, program: str, _number: int) -> float:
    """A rank that lives but does something else for longer than the grace is waited for."""
    with Shrinking([[program, "3", "6000"]] * 4, **NO_SILENCE) as running:
        running.wait_until_ready()
        since = running.hurt(1, signal.SIGKILL)
        return running.expect((0, 2, 3), "0 2 3 / 1", since)


def latecomer(_two: hosts.TwoHosts, program: str, number: int) -> float:
    """A rank that was stopped, and given up, is told that the others went on."""
    victim = (1, 0)[number % 2]
    others = [rank for rank in range(4) if rank != victim]
    with Shrinking([[program]] * 4, **SILENCE) as running:
        running.wait_until_ready()
        since = running.hurt(victim, signal.SIGSTOP)
        text = "{} {} {} / {}".format(*others, victim)
        slowest = running.expect(others, text, since)
        running.hurt(victim, signal.SIGCONT)
        result, _, text = running.went_on(victim)
        expected = "the former ranks {} {} {} went on without it".format(*others)
        assert result == 5 and expected in text, text
        return slowest


CASES = {case.__name__: case for case in
         (kill_rank, kill_host, vanished_host, quorum, outage, resets, sleeper, latecomer)}


def main() -> int:
    program = sys.argv[1]
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 1

    def check(two: hosts.TwoHosts) -> None:
        for name in sys.argv[3:] or CASES:
            times = [CASES[name](two, program, number) for number in range(repeats)]
            print(f"{name}: {repeats} of {repeats}, at most {max(times):.2f} s, grace {GRACE_SECONDS} s", flush=True)

    return hosts.run(check)


if __name__ == "__main__":
    sys.exit(main())
