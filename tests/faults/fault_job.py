# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Processes over `socket` or `ucx` of which one is killed or stopped at a chosen message."""

import dataclasses
import functools
import os
import pathlib
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "processes"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import job  # pylint: disable=wrong-import-position
from waiting import comes_true  # noqa: E402

RANKS = 4
CALLS = 5
STRUCK_CALL = 1  # the second one
COUNT = 20_000
ALIGNMENT = 64  # of the default configuration
LOSS_SECONDS = 0.5  # on an idle machine
HEARTBEAT_SECONDS = 0.1
PEER_ERRORS = {6, 102}  # onebitRemoteError, onebitPeerLost
PEERS = RANKS - 1
FIRST_CALL_AFTER = 101  # number of the first call after a recovery
CALLS_AFTER = range(FIRST_CALL_AFTER, FIRST_CALL_AFTER + 3)


@dataclasses.dataclass(frozen=True)
class Phase:
    """Where in the struck call; `message` is of the exchange, in this call."""
    name: str
    exchange: int
    message: int
    is_after: bool = False

    def words(self) -> str:
        message = STRUCK_CALL * PEERS + self.message
        return f"exchange={self.exchange} message={message} after={int(self.is_after)}"


PHASES = {
    1: (Phase("before its first message", 1, 0),
        Phase("in exchange 1", 1, 1),
        Phase("after its last message", 1, PEERS - 1, True)),
    2: (Phase("before its first message", 1, 0),
        Phase("in exchange 1", 1, 1),
        Phase("between the exchanges", 1, PEERS - 1, True),
        Phase("in exchange 2", 2, 1),
        Phase("after its last message", 2, PEERS - 1, True)),
}


@dataclasses.dataclass(frozen=True)
class Case:
    mode: str  # dense, sign, ef
    exchanges: int
    victim: int
    how: signal.Signals
    phase: Phase

    def __str__(self):
        return (f"{self.how.name} of rank {self.victim} {self.phase.name}, {self.mode}, "
                f"{self.exchanges} exchange(s)")


def all_cases() -> list[Case]:
    return [Case(mode, exchanges, victim, how, phase)
            for how in (signal.SIGKILL, signal.SIGSTOP)
            for mode, exchanges in (("dense", 2), ("sign", 2), ("sign", 1), ("ef", 2), ("ef", 1))
            for victim in (0, 2)
            for phase in PHASES[exchanges]]


class Programs:
    """The program of a rank, and what carries its messages."""

    def __init__(self, rank: str, transport: str, variables: dict[str, str]):
        self.rank = rank
        self.transport = transport
        self.variables = variables  # of the environment, for every rank
        self._references: dict[tuple[str, int], list[dict]] = {}

    def start(self, mode: str, exchanges: int, faults: list[str], victim: int = -1) -> job.Job:
        """Ranks with a fault each, of which the victim does not try to go on."""
        setting = f"ONEBIT_FAULTY{self.transport.upper()}_FAULT"
        return job.Job([["env", f"{setting}={fault}", self.rank, str(CALLS), str(COUNT),
                         mode, str(victim)] for fault in faults],
                       ONEBIT_TRANSPORT="faulty" + self.transport,
                       ONEBIT_ONE_EXCHANGE_ELEMENTS=str(COUNT if exchanges == 1 else 0),
                       ONEBIT_DEBUG="NONE",
                       ONEBIT_LOSS_TIMEOUT_MS=str(int(1000 * job.paced(LOSS_SECONDS))),
                       ONEBIT_HEARTBEAT_MS=str(int(1000 * HEARTBEAT_SECONDS)),
                       ONEBIT_SHRINK_GRACE_MS="200", **self.variables)

    def reference(self, mode: str, exchanges: int) -> list[dict]:
        """By rank: residuals by epoch and outputs by call, as they are without a fault."""
        key = (mode, exchanges)
        if key not in self._references:
            with self.start(mode, exchanges, ["none"] * RANKS) as running:
                found = []
                for rank in running.ranks:
                    result, _, text = rank.ended(20)
                    assert result == 0, f"without a fault: {text}"
                    found.append(calls_of(rank))
            self._references[key] = found
        return self._references[key]


def calls_of(rank: job.Rank) -> dict:
    """Hashes of residuals by epoch, and of outputs by call, of the calls that succeeded."""
    workers, servers, outputs = {}, {}, {}
    for line in rank.lines:
        match = re.fullmatch(r"call (\d+) (\d+) (\w+) (\w+) (\w+)", line)
        if match:
            workers[int(match[2])] = match[3]
            servers[int(match[2])] = match[4]
            outputs[int(match[1])] = match[5]
    return {"workers": workers, "servers": servers, "outputs": outputs}


def wait_for_strike(victim: job.Rank, how: signal.Signals) -> float:
    """When the victim was about to be killed or stopped, once it is."""
    since = float(victim.wait_for("struck", 20).split()[1])
    state = os.WEXITED if how == signal.SIGKILL else os.WSTOPPED
    has_happened = functools.partial(os.waitid, os.P_PID, victim.process.pid, state | os.WNOWAIT | os.WNOHANG)
    assert comes_true(has_happened, job.PATIENCE_SECONDS), "the victim lives"
    return since


def check_errors(case: Case, running: job.Job, since: float, reference: list[dict]) -> tuple:
    """Until the last survivor knew, and the highest epoch."""
    slowest, epochs = 0.0, []
    for number, rank in enumerate(running.ranks):
        if number == case.victim:
            continue
        result, when, text = rank.ended(job.PATIENCE_SECONDS)
        what = f"{case}, rank {number}: {text}"
        assert result in PEER_ERRORS, what
        assert f"rank {case.victim} is gone" in text, what
        slowest = max(slowest, when - since)
        outputs = {call: output for call, output in calls_of(rank)["outputs"].items()
                   if 0 < call < FIRST_CALL_AFTER}
        for call, output in outputs.items():
            assert output == reference[number]["outputs"][call], f"{what}: call {call}"
        match = re.fullmatch(r"state (\d+) (\w+) (\w+)", rank.wait_for("state", 5))
        epoch = int(match[1])
        assert epoch == len(outputs), f"{what}: epoch {epoch}, {rank.lines}"
        assert case.mode == "dense" or (match[2], match[3]) == (
            reference[number]["workers"][epoch], reference[number]["servers"][epoch]), \
            f"{what}: residuals are of no generation"
        epochs.append(epoch)
    assert max(epochs) - min(epochs) <= 1, f"{case}: epochs {epochs}"
    # The victim's last message may have died with it, so the call before may have failed, too.
    assert abs(min(epochs) - STRUCK_CALL) <= 1 and max(epochs) <= STRUCK_CALL + 1, \
        f"{case}: epochs {epochs}"
    return slowest, max(epochs)


def lost_elements(case: Case) -> int:
    """What the victim served: its chunk, if the server residuals are not the same on all ranks."""
    if case.mode != "ef" or case.exchanges == 1:
        return 0
    chunk = -(-COUNT // (RANKS * ALIGNMENT)) * ALIGNMENT
    return min(chunk, COUNT - case.victim * chunk)


def check_recovery(case: Case, running: job.Job, epoch: int, reference: list[dict]):
    """The survivors are a group of their own and lack nothing but what has died."""
    outputs = []
    for number, rank in enumerate(running.ranks):
        if number == case.victim:
            continue
        what = f"{case}, rank {number}"
        end = rank.wait_for("done", 20)
        assert end == "done 0 ok", f"{what}: recovery: {end}"
        match = re.fullmatch(r"recovered (\d+) (\d+) (\d+) (\d+) (\w+) \w+",
                             rank.wait_for("recovered", 5))
        new_rank = number - (number > case.victim)
        assert (int(match[1]), int(match[2])) == (new_rank, RANKS - 1), f"{what}: {match[0]}"
        calls = calls_of(rank)
        if case.mode != "dense":
            # There was no residual yet if the call before was lost, too.
            lost = lost_elements(case) if epoch > 0 else 0
            assert int(match[3]) == lost, f"{what}: {match[0]}"
            assert int(match[4]) == epoch, f"{what}: {match[0]}"
            assert match[5] == reference[number]["workers"][epoch], f"{what}: worker residual"
            assert epoch + len(CALLS_AFTER) in calls["workers"], f"{what}: {rank.lines}"
        outputs.append([calls["outputs"][call] for call in CALLS_AFTER])
        assert rank.process.wait(10) == 0, what
    assert all(one == outputs[0] for one in outputs), f"{case}: outputs differ: {outputs}"


def check_rebind(programs: Programs, exchanges: int, words: str):
    """Rank 3 is killed in a call, and rank 1 while the survivors rebind: the other two go on."""
    reference = programs.reference("ef", exchanges)
    faults = [f"kill rank=1 comm=1 {words}"] * 3 + ["kill rank=3 exchange=1 message=4"]
    what = f"rank 1 killed in a rebind ({words}), {exchanges} exchange(s)"
    with programs.start("ef", exchanges, faults) as running:
        survivors = [running.ranks[number] for number in (0, 2)]
        for number, rank in zip((0, 2), survivors):
            end = rank.wait_for("done", 20)
            assert end == "done 0 ok", f"{what}: {end}, {rank.lines}"
            assert re.search("rank 1 is gone", rank.wait_for("again", 1)), f"{what}: {rank.lines}"
            match = re.fullmatch(r"recovered (\d) 2 (\d+) (\d+) (\w+) \w+",
                                 rank.wait_for("recovered", 1))
            # Rank 3 dies in its second call. If its last messages of the first one die with it, no call
            # was completed, and there is nothing yet to lose.
            lost = 0 if int(match[3]) == 0 else sum(
                lost_elements(Case("ef", exchanges, victim, signal.SIGKILL, PHASES[1][0]))
                for victim in (1, 3))
            assert (int(match[1]), int(match[2])) == (number // 2, lost), f"{what}: {match[0]}"
            assert match[4] == reference[number]["workers"][int(match[3])], f"{what}: {match[0]}"
            assert rank.process.wait(10) == 0, what
        first, second = ([calls_of(rank)["outputs"][call] for call in CALLS_AFTER]
                         for rank in survivors)
        assert first == second, f"{what}: outputs differ"


def check(programs: Programs, case: Case) -> float:
    """Runs a case; returns in how many seconds all survivors knew."""
    reference = programs.reference(case.mode, case.exchanges)
    kind = "kill" if case.how == signal.SIGKILL else "stop"
    fault = f"{kind} rank={case.victim} {case.phase.words()}"
    with programs.start(case.mode, case.exchanges, [fault] * RANKS, case.victim) as running:
        victim = running.ranks[case.victim]
        since = wait_for_strike(victim, case.how)
        seconds, epoch = check_errors(case, running, since, reference)
        check_recovery(case, running, epoch, reference)
        if case.how == signal.SIGSTOP:
            # It continues, and learns that it was given up.
            running.hurt(case.victim, signal.SIGCONT)
            result, _, text = victim.ended(job.PATIENCE_SECONDS)
            assert result in PEER_ERRORS and re.search("silent for|stopped for", text), \
                f"{case}: the stopped rank says {result}: {text}"
            assert victim.process.wait(job.PATIENCE_SECONDS) == 0, f"{case}: {text}"
        return seconds
