# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""4 ranks on two hosts: hosts_test.py RANK_RESULTS RANK_LOOP [ucx].

They meet at host:port with a secret, share memory within a host and use TCP between hosts, come to
the results of threads, and name the way to a rank that is lost. An interface that does not exist is
refused, and the error says which there are. A name service that never answers costs no more than the
connect time-out. Neither a link that goes down nor packets that vanish keep a rank waiting, and both may last for most
of the loss time-out without any harm. Where only large packets vanish, the error says so. Where the
first address of a host leads nowhere, ranks try the next.
"""

import re
import signal
import subprocess
import sys
import tempfile
import time

import hosts
import job

SECRET = "a secret of this test only"


def start(two: hosts.TwoHosts, command: list[str], **variables: str) -> job.Job:
    place = {"ONEBIT_RENDEZVOUS": f"{two.addresses[0]}:45871", "ONEBIT_SECRET": SECRET}
    commands = [two.on_as_rank(rank // 2, command) for rank in range(4)]
    return job.Job(commands, **(place | variables))


def check_results(two: hosts.TwoHosts, program: str, **variables: str):
    expected = job.results_of_threads(program, 4, host_ranks=2)
    with start(two, [program], **variables) as running:
        for rank in running.ranks:
            assert rank.exit_status() == 0, rank.lines
        assert running.ranks[0].lines == expected, running.ranks[0].lines
    print("4 ranks on two hosts give the bytes of 4 threads")


def check_loss(two: hosts.TwoHosts, program: str, how: signal.Signals):
    seconds = 2 if how == signal.SIGSTOP else job.NO_SILENCE_SECONDS
    times = {"ONEBIT_LOSS_TIMEOUT_MS": str(1000 * seconds), "ONEBIT_HEARTBEAT_MS": "250"}
    with start(two, [program, "0", "1000000", "ef"], **times) as running:
        running.wait_until_ready()
        running.hurt(3, how)
        for rank in range(3):
            result, _, text = running.ranks[rank].ended(job.PATIENCE_SECONDS)
            assert result in (6, 102) and "rank 3 is gone" in text, text
            if how == signal.SIGSTOP:
                # Ranks 0 and 1 wait for a rank of the other host, or for each other because of that. Rank 2
                # waits for rank 3.
                found = re.search(r"waiting for rank (\d) \([^()]*, ([^(),]+)\)", text)
                assert found, text
                is_near = int(found[1]) // 2 == rank // 2
                assert found[2] == ("shared memory" if is_near else "tcp over eth0"), text
                assert rank != 2 or is_near, text
    print(f"{how.name} of a rank on another host is known to all")


def check_outage(two: hosts.TwoHosts, program: str, what: str):
    """Silence between the hosts: each rank names one of the other host, after twice the loss time-out. Where only what
    host 0 sends is lost, host 1 may give up first, and host 0 still hears it say so."""
    with start(two, [program, "0", "1000000", "ef"], ONEBIT_LOSS_TIMEOUT_MS="2000",
               ONEBIT_HEARTBEAT_MS="250") as running:
        running.wait_until_ready()
        if what == "link down":
            two.set_link(1, "down")
        else:
            two.lose_packets()
        for rank in range(4):
            result, _, text = running.ranks[rank].ended(job.PATIENCE_SECONDS)
            others = (2, 3) if rank < 2 else (0, 1)
            assert result in (6, 102), text
            assert re.search(f"rank [{others[0]}{others[1]}] (is gone|has aborted its endpoint)", text), (rank, text)
            hears = what == "blackhole" and rank < 2
            assert "twice ONEBIT_LOSS_TIMEOUT_MS" in text or hears and "has aborted its endpoint" in text, text
    print(f"{what}: all ranks know")


def check_narrow_path(two: hosts.TwoHosts, program: str):
    """Heartbeats pass and large messages do not: the errors say so, and do not ask what the program does."""
    two.send_no_super_packets()
    with start(two, [program, "0", "1000000", "ef"], ONEBIT_LOSS_TIMEOUT_MS="2500", ONEBIT_HEARTBEAT_MS="250",
               ONEBIT_COLLECTIVE_TIMEOUT_MS="8000") as running:
        running.wait_until_ready()
        two.narrow_path(1200)
        for rank in running.ranks:
            result, _, text = rank.ended(job.PATIENCE_SECONDS)
            assert result in (6, 8), text
            assert "do not arrive, though small ones do" in text and "path MTU" in text, text
            assert "not acknowledged" in text and "in packets of up to 1500 bytes" in text, text
            assert "does every rank make this call" not in text, text
    two.narrow_path(1500)
    print("a path that drops large packets is an error that names its MTU")


def check_short_outage(two: hosts.TwoHosts, program: str, rounds: int, how: str):
    """The network is away for 0.8 of the loss time-out, and the ranks go on as if nothing had been."""
    loss_seconds = 2.0
    with start(two, [program, "0", "1000", "ef"], ONEBIT_LOSS_TIMEOUT_MS=str(int(1000 * loss_seconds)),
               ONEBIT_HEARTBEAT_MS="250") as running:
        running.wait_until_ready()
        judged = 0
        for tried in range(5 * rounds):
            if judged == rounds:
                break
            if how == "link down":
                away = two.take_link_down(0.8 * loss_seconds)
            else:
                away = two.interrupt(0.8 * loss_seconds)
            time.sleep(2 * loss_seconds)  # room for ranks to be given up
            ended = [line for rank in running.ranks for line in rank.lines if line.startswith("ended")]
            if ended and away > 0.9 * loss_seconds:
                print(f"the outage took {away:.2f} s, which proves nothing: the machine is too busy")
                return
            assert not ended, (tried, away, ended)
            judged += away <= 0.9 * loss_seconds
        # The calls still end when a rank does.
        running.hurt(3, signal.SIGKILL)
        for rank in running.ranks[:3]:
            result, _, text = rank.ended(job.PATIENCE_SECONDS)
            assert result in (6, 102) and "rank 3 is gone" in text and "silent" not in text, text
    print(f"{judged} outages of 0.8 of the loss time-out ({how}): nobody is lost", flush=True)


def check_ucx(two: hosts.TwoHosts, results: str, loop: str):
    """The same bytes, from ports at the interface that leads to rank 0 and no other."""
    check_results(two, results, ONEBIT_TRANSPORT="ucx")
    with start(two, [loop, "0", "1000", "ef"], ONEBIT_TRANSPORT="ucx") as running:
        running.wait_until_ready()
        for index, address in enumerate(two.addresses):
            shown = subprocess.run(two.on(index, ["ss", "-H", "-l", "-n", "-t"]), check=True,
                                   capture_output=True, text=True).stdout
            places = [line.split()[3].rsplit(":", 1)[0] for line in shown.splitlines()]
            assert len(places) >= 4 and set(places) == {address}, (index, shown)
    print("over ucx ranks of two hosts listen at one interface")


def check_interface(two: hosts.TwoHosts, program: str):
    with start(two, [program, "1", "1000", "ef"], ONEBIT_SOCKET_IFNAME="eht0",
               ONEBIT_RENDEZVOUS="/tmp/onebit-hosts-test") as running:
        line = running.ranks[0].wait_for("onebitCommInitEnv", 10)
        assert "eht0" in line and f"eth0 ({two.addresses[0]})" in line, line
    with start(two, [program, "3", "1000", "ef"], ONEBIT_SOCKET_IFNAME="=eth0") as running:
        for rank in running.ranks:
            result, _, text = rank.ended(20)
            assert result == 0, text
    print("interfaces are chosen by name, and a wrong name is refused")


def check_name_service(two: hosts.TwoHosts, program: str):
    """The system's look-up would take 150 s; the connect time-out ends it on both sides."""
    with tempfile.TemporaryDirectory(prefix="onebit-test-") as folder:
        command = two.without_names(1, folder, [program, "1", "1000", "ef"])
        place = {"ONEBIT_RENDEZVOUS": "rank0.example:45871", "ONEBIT_SECRET": SECRET,
                 "ONEBIT_CONNECT_TIMEOUT_MS": "500"}
        with job.Job([command, command], **place) as running:
            for rank in running.ranks:
                line = rank.wait_for("onebitCommInitEnv", job.PATIENCE_SECONDS)
                assert 'host "rank0.example": no name service has answered in time' in line, line
    print("a name service that does not answer is a time-out")


def check_dead_address(two: hosts.TwoHosts, program: str):
    """Ranks find each other, though the first address of rank 0 leads nowhere, and nothing tells which one does."""
    two.add_dead_address()
    with tempfile.TemporaryDirectory() as folder:
        with start(two, [program], ONEBIT_RENDEZVOUS=f"{folder}/meeting") as running:
            for rank in running.ranks:
                assert rank.exit_status() == 0, rank.lines
    print("ranks try the addresses of rank 0 in turn")


def main() -> int:
    results, loop = sys.argv[1:3]

    def check(two: hosts.TwoHosts) -> None:
        check_results(two, results)
        check_loss(two, loop, signal.SIGKILL)
        check_loss(two, loop, signal.SIGSTOP)
        check_interface(two, loop)
        check_narrow_path(two, loop)
        check_name_service(two, loop)
        if "ucx" in sys.argv[3:]:
            check_ucx(two, results, loop)
        check_short_outage(two, loop, 1, "packets lost")
        check_short_outage(two, loop, 1, "link down")
        check_outage(two, loop, "link down")
        two.set_link(1, "up")
        check_outage(two, loop, "blackhole")

    return hosts.run(check) or hosts.run(lambda two: check_dead_address(two, results))


if __name__ == "__main__":
    sys.exit(main())
