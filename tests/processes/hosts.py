# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Two hosts of perf/lab for several ranks each, with a container bridge as Docker leaves it."""

import pathlib
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "perf"))

# pylint: disable=wrong-import-position
from ethernet_lab.errors import Unavailable
from ethernet_lab.namespaces import call, require_support
from ethernet_lab.network import Host, Network
from ethernet_lab.rates import Rate

__all__ = ["TwoHosts", "run"]


class TwoHosts:
    """Hosts 0 and 1, on eth0; gone when the block is left."""

    def __init__(self):
        require_support()
        self._network = Network(2, Rate.parse("none"))
        self.addresses = [host.address for host in self._network.hosts]

    def __enter__(self):
        self._network.__enter__()
        try:
            for host in self._network.hosts:
                self._add_container_bridge(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._network.__exit__()

    def on(self, index: int, command: list[str]) -> list[str]:
        """The command line that runs `command` on a host, whose ranks share memory."""
        return self._network.hosts[index].enter(command, shares_memory=True)

    def on_as_rank(self, index: int, command: list[str]) -> list[str]:
        """As `on`, for a rank. Both hosts are one machine, so ranks need a word to tell them apart."""
        return self.on(index, ["env", f"ONEBIT_HOST=host{index}", *command])

    def set_link(self, index: int, state: str):
        """Up, or down as a cable that was pulled out."""
        call("ip", "-n", self._network.hosts[index].namespace, "link", "set", "eth0", state)

    def take_link_down(self, seconds: float) -> float:
        """For a while. Returns for how long at most."""
        begin = time.monotonic()
        self.set_link(1, "down")
        time.sleep(seconds)
        self.set_link(1, "up")
        return time.monotonic() - begin

    def lose_packets(self):
        """What host 0 sends to host 1 goes nowhere from now on, and nobody tells."""
        call("ip", "-n", self._network.hosts[0].namespace, "neighbour", "replace", self.addresses[1],
             "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")

    def send_no_super_packets(self):
        """New connections hand each packet to the link by itself, as it will travel."""
        for host in self._network.hosts:
            call("ip", "-n", host.namespace, "link", "set", "eth0", "gso_max_segs", "1")

    def narrow_path(self, mtu: int):
        """The switch drops larger packets from now on, and nobody tells. The hosts send up to 1500 bytes."""
        for host in self._network.hosts:
            call("ip", "-n", self._network.switch, "link", "set", host.port, "mtu", str(mtu))

    def interrupt(self, seconds: float) -> float:
        """Packets between the hosts go nowhere for a while. Returns for how long they did at most."""
        hosts = self._network.hosts
        nowhere = ["lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent"]
        begin = time.monotonic()
        for host, other in zip(hosts, reversed(self.addresses)):
            call("ip", "-n", host.namespace, "neighbour", "replace", other, *nowhere)
        time.sleep(seconds)
        for host, other in zip(hosts, reversed(self.addresses)):
            call("ip", "-n", host.namespace, "neighbour", "delete", other, "dev", "eth0")
        return time.monotonic() - begin

    def add_dead_address(self):
        """The first address of host 0 leads nowhere from host 1, and nobody tells."""
        on = ("ip", "-n", self._network.hosts[0].namespace, "address")
        call(*on, "delete", f"{self.addresses[0]}/24", "dev", "eth0")
        for address in ("10.99.0.1", self.addresses[0]):
            call(*on, "add", f"{address}/24", "dev", "eth0")
        on = ("ip", "-n", self._network.hosts[1].namespace)
        call(*on, "link", "add", "dead0", "type", "veth", "peer", "name", "dead1")
        call(*on, "address", "add", "10.99.0.2/24", "dev", "dead0")
        for device in ("dead0", "dead1"):
            call(*on, "link", "set", device, "up")
        call(*on, "neighbour", "replace", "10.99.0.1", "lladdr", "02:00:00:00:00:99", "dev", "dead0", "nud", "permanent")

    def reset_connections(self):
        """All of host 0, which are those between the hosts and its own; ports stay open."""
        call("ip", "netns", "exec", self._network.hosts[0].namespace, "ss", "-K", "-t", "state", "established")

    def without_names(self, index: int, folder: str, command: list[str]) -> list[str]:
        """As `on`, with a name server that never answers."""
        host = self._network.hosts[index]
        call("ip", "-n", host.namespace, "neighbour", "replace", "172.17.0.9", "lladdr",
             "02:00:00:00:00:09", "dev", "docker0", "nud", "permanent")
        servers = pathlib.Path(folder) / "resolv.conf"
        servers.write_text("nameserver 172.17.0.9\noptions timeout:30 attempts:5\n")
        return self.on(index, ["unshare", "--mount", "sh", "-c",
                               'mount --bind "$0" /etc/resolv.conf && exec "$@"', str(servers),
                               *command])

    @staticmethod
    def _add_container_bridge(host: Host):
        """The same address on every host, as fast as the network, no way out."""
        on = ("ip", "-n", host.namespace)
        call(*on, "link", "add", "docker0", "type", "bridge")
        call(*on, "address", "add", "172.17.0.1/16", "dev", "docker0")
        call(*on, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
        call(*on, "link", "set", "veth0", "master", "docker0")
        for device in ("veth0", "veth1", "docker0"):
            call(*on, "link", "set", device, "up")


def run(check: Callable[[TwoHosts], None]) -> int:
    """The status of a test on two hosts: that of a skip where there can be none."""
    try:
        with TwoHosts() as two:
            check(two)
    except Unavailable as reason:
        print(reason)
        return 77
    return 0
