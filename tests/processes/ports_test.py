# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The listening sockets of jobs are those of the table in SECURITY.md, and strangers there change nothing:
ports_test.py RANK_LOOP SECURITY.md [ucx] [CONNECTIONS [SECONDS]]

SECONDS: how long strangers say random things at each kind of port; a study takes 600."""

import collections
import pathlib
import random
import socket
import subprocess
import sys
import time

import job

RANKS = 4
CONNECTIONS = 2000
SECONDS = 2
PER_SECOND = 200  # connections
PROTOCOL = b"onebitC6"  # how a rank begins
HELD = 200  # left open, so that they fill what is bounded
GROWTH_BYTES = 16 << 20
LISTENING = ["ss", "--no-header", "--listening", "--numeric", "--processes", "--tcp", "--udp", "--unix"]


class Listener(collections.namedtuple("Listener", "kind address")):
    """A socket that others can reach: its kind, tcp or name, and its address."""


def table_of(document: str) -> dict[str, str]:
    """What SECURITY.md says that listens, with where."""
    lines = [line.split("|") for line in pathlib.Path(document).read_text(encoding="utf-8").splitlines()
             if line.startswith("| ")]
    begin = next(i for i, cells in enumerate(lines) if cells[1].strip() == "socket")
    return {cells[1].strip(): cells[3].strip() for cells in lines[begin + 1:begin + 8]}


def listeners(ranks: list[job.Rank]) -> list[set[Listener]]:
    """By rank."""
    found = [set() for _ in ranks]
    lines = subprocess.run(LISTENING, check=True, capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        kind, state, _, _, address = line.split()[:5]
        for number, rank in enumerate(ranks):
            if f"pid={rank.process.pid}," in line and (state == "LISTEN" or kind in ("udp", "u_dgr")):
                found[number].add(Listener("name" if kind.startswith("u_") else kind, address))
    return found


def check_default(loop: str):
    """Each rank keeps its spare port; rank 0 has the rendezvous port besides, until all have come."""
    commands = [[loop, "0", "10000", "ef"]] * RANKS
    with job.Job(commands) as running:
        most = collections.Counter()
        while not all("ready" in rank.lines for rank in running.ranks):
            for number, found in enumerate(listeners(running.ranks)):
                kinds = collections.Counter(one.kind for one in found)
                most |= kinds
                allowed = {"tcp": 3 if number == 0 else 2, "name": 1}
                assert all(count <= allowed.get(kind, 0) for kind, count in kinds.items()), found
        for number, found in enumerate(listeners(running.ranks)):
            assert [one.kind for one in found] == ["tcp"], (number, found)
            host = next(iter(found)).address.rsplit(":", 1)[0]
            assert host not in ("0.0.0.0", "*", "[::]"), found
    print(f"a default job has no socket beyond the table; while it started at most {dict(most)} at once")

    with job.Job([commands[0], ["sleep", "60"]]) as running:
        deadline = time.monotonic() + job.PATIENCE_SECONDS
        while len(listeners(running.ranks)[0]) < 2:
            assert time.monotonic() < deadline
        found = listeners(running.ranks)[0]
        assert [one.kind for one in found] == ["tcp", "tcp"], found
    print("a rank that waits for others has the rendezvous port and its spare port")


def check_ucx(loop: str):
    """UCX opens no port where all ranks share a host."""
    with job.Job([[loop, "0", "10000", "ef"]] * RANKS, ONEBIT_TRANSPORT="ucx") as running:
        running.wait_until_ready()
        for number, found in enumerate(listeners(running.ranks)):
            assert collections.Counter(one.kind for one in found)["tcp"] == 1, (number, found)
            assert {one.kind for one in found} == {"tcp", "name"}, (number, found)
    print("a job over ucx on one host has its spare ports only, and UCX's wake-up names")


def memory_of(rank: job.Rank) -> int:
    """Resident bytes."""
    pages = pathlib.Path(f"/proc/{rank.process.pid}/statm").read_text(encoding="ascii").split()[1]
    return 4096 * int(pages)


def attack(addresses: list[tuple[str, int]], connections: int, seed: int) -> list[socket.socket]:
    """Connections that close at once, say garbage, or say half of what a rank says. Some stay open."""
    source = random.Random(seed)
    held = []
    for number in range(connections):
        stranger = socket.socket()
        stranger.setblocking(False)
        stranger.connect_ex(addresses[number % len(addresses)])
        try:
            if number % 4 == 1:
                stranger.send(source.randbytes(source.randrange(1, 200)))
            elif number % 4 == 2:
                stranger.send(PROTOCOL + source.randbytes(source.randrange(0, 64)))
        except OSError:
            pass  # a full queue, or one that is reset: as a stranger may find
        if len(held) < HELD:
            held.append(stranger)
        else:
            stranger.close()
        if number % 100 == 99:
            time.sleep(0.01)  # a rank has time to let them in
    return held


def check_strangers(loop: str, connections: int):
    """At every port of a running job."""
    with job.Job([[loop, "0", "10000", "ef"]] * RANKS) as running:
        running.wait_until_ready()
        addresses = [(host, int(port)) for found in listeners(running.ranks)
                     for host, port in [one.address.rsplit(":", 1) for one in found]]
        assert len(addresses) == RANKS, addresses
        time.sleep(0.5)  # after the first calls, which allocate
        before = [memory_of(rank) for rank in running.ranks]
        held = attack(addresses, connections, seed=7)
        growth = [memory_of(rank) - start for rank, start in zip(running.ranks, before)]
        assert max(growth) <= GROWTH_BYTES, growth
        for rank in running.ranks:
            assert rank.process.poll() is None and not any("ended" in line for line in rank.lines), rank.lines
        # They still work together: the loss of one is known to the others, by name.
        running.hurt(2, job.signal.SIGKILL)
        for number in (0, 1, 3):
            _, _, text = running.ranks[number].ended(job.PATIENCE_SECONDS)
            assert "rank 2 is gone" in text, text
        for stranger in held:
            stranger.close()
    print(f"{connections} strangers at the ports of a running job ended nobody; "
          f"memory grew by at most {max(growth) >> 10} KiB")


def addresses_of(found: set[Listener]) -> list[tuple[str, int]]:
    return [(host, int(port)) for one in found if one.kind == "tcp"
            for host, port in [one.address.rsplit(":", 1)]]


def fuzz(addresses: list[tuple[str, int]], seconds: float, seed: int) -> int:
    """Says random things, half of them after the beginning of a handshake, and listens. Returns how often."""
    source = random.Random(seed)
    open_ones = collections.deque()
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        stranger = socket.socket()
        stranger.setblocking(False)
        stranger.connect_ex(source.choice(addresses))
        open_ones.append(stranger)
        # The oldest have been connected, and some were answered: they say more, or leave.
        for talking in source.sample(list(open_ones), min(4, len(open_ones))):
            beginning = PROTOCOL + source.randbytes(32) if source.random() < 0.5 else b""
            try:
                talking.send(beginning + source.randbytes(source.randrange(0, 300)))
                talking.recv(4096)
            except OSError:
                pass
        if len(open_ones) > HELD:
            open_ones.popleft().close()
        count += 1
        time.sleep(1 / PER_SECOND)
    for stranger in open_ones:
        stranger.close()
    return count


def answers(address: tuple[str, int]) -> bool:
    """True if a rank behind this data port is at it now."""
    hello = PROTOCOL + bytes(32) + (RANKS - 1).to_bytes(4, "little")
    try:
        with socket.create_connection(address, 1) as stranger:
            stranger.settimeout(0.2)
            stranger.sendall(hello)
            return stranger.recv(len(PROTOCOL)) == PROTOCOL
    except OSError:
        return False


def data_ports(running: job.Job) -> list[tuple[str, int]]:
    """Of the ranks between the first and the last, which runs in short slices until they wait for it there."""
    last = running.ranks[-1].process
    spare = None
    while not any("ready" in rank.lines for rank in running.ranks):
        last.send_signal(job.signal.SIGSTOP)
        time.sleep(0.02)  # the others go as far as they can
        found = [set(addresses_of(one)) for one in listeners(running.ranks)[:-1]]
        if spare is None and all(len(one) == 1 for one in found[1:]):
            spare = found
        if spare is not None and all(len(one) == 2 for one in found[1:]):
            ports = [address for one, before in zip(found[1:], spare[1:]) for address in one - before]
            if all(map(answers, ports)):
                return ports
        last.send_signal(job.signal.SIGCONT)
        time.sleep(0.001)  # it starts a little further
    return []


def fuzz_job(kind: str, loop: str, seconds: int):
    """Strangers speak to one kind of port; then the ranks make their calls."""
    pause = seconds + 2 if kind == "spare port" else 0
    commands = [[loop, "500", "10000", "ef", "--pause", str(1000 * pause)]] * RANKS
    patience = {"ONEBIT_CONNECT_TIMEOUT_MS": "3600000", "ONEBIT_LOSS_TIMEOUT_MS": "3600000"}
    if kind == "rendezvous port":
        commands = [commands[0], *[["sh", "-c", f'sleep {seconds + 1}; exec "$@"', "sh", *commands[0]]] * (RANKS - 1)]
    for _ in range(20):
        with job.Job(commands, **patience) as running:
            if kind == "spare port":
                running.wait_until_ready()
                addresses = [one for found in listeners(running.ranks) for one in addresses_of(found)]
            elif kind == "rendezvous port":
                while len(addresses := addresses_of(listeners(running.ranks)[0])) < 2:
                    assert running.ranks[0].process.poll() is None, running.ranks[0].lines
            else:
                addresses = data_ports(running)
                if not addresses:
                    continue  # too late: the ranks had connected
            hurt = running.ranks[0] if kind == "rendezvous port" else running.ranks[1]
            before = memory_of(hurt)
            count = fuzz(addresses, seconds, seed=11)
            growth = memory_of(hurt) - before
            assert growth <= GROWTH_BYTES, growth
            running.ranks[-1].process.send_signal(job.signal.SIGCONT)
            for rank in running.ranks:
                result, _, text = rank.ended(job.PATIENCE_SECONDS)
                assert result == 0, text
            print(f"{kind}: {count} strangers in {seconds} s; memory + {max(0, growth) >> 10} KiB; the job went on")
            return
    raise AssertionError(f"no job was caught with its {kind} open")


def main() -> int:
    loop, document = sys.argv[1:3]
    names = list(table_of(document))
    assert names == ["rendezvous port", "spare port", "data port", "data name", "ports of UCX",
                     "queue pairs of UCX", "wake-up names of UCX"], names
    try:
        subprocess.run(["ss", "--version"], check=True, stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        print("there is no ss here")
        return 77
    check_default(loop)
    if "ucx" in sys.argv[3:]:
        check_ucx(loop)
    given = [int(text) for text in sys.argv[3:] if text.isdigit()]
    connections, seconds = given + [CONNECTIONS, SECONDS][len(given):]
    check_strangers(loop, connections)
    for kind in ("spare port", "rendezvous port", "data port"):
        fuzz_job(kind, loop, seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
