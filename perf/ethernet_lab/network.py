# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts in network namespaces, each with one cable to a switch, and their removal."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
import time

from ethernet_lab import namespaces
from ethernet_lab.errors import LabError, Unavailable
from ethernet_lab.names import LabName
from ethernet_lab.rates import Rate

BRIDGE = "switch"
# Linux's default, whatever this machine uses. BBR, for one, paces each stream at a rate it learns
# slowly, which would distort all systems that are compared.
CONGESTION_CONTROL = "cubic"
SECONDS_UNTIL_UP = 10
# A chain of programs that exec each other, so it stays one process: it ends with the lab, is in the
# host's network, and has the host's name.
NAME_ITSELF = 'hostname "$1" && shift && exec "$@"'
# Private shared memory: otherwise libraries would communicate through that of the machine.
TAKE_MEMORY = ["unshare", "--ipc", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]


class Host:
    """A host and its cable."""

    def __init__(self, lab: LabName, index: int, role: str):
        self.index = index
        self.namespace = f"{lab.text}-{role}"
        self.name = f"{role}-{lab.token}"
        self.port = f"port{index}"  # the end at the switch
        # Namespaces keep the networks of two labs apart; different addresses keep their logs apart.
        token = int(lab.token, 16)
        network = f"10.{64 + (token >> 8) % 64}.{token & 255}"
        self.address = f"{network}.{index + 1}"
        self.subnet = f"{network}.0/24"

    def enter_as_rank(self) -> list[str]:
        """The command line that runs what follows on this host, as a rank of a job. All hosts are one
        machine, so ranks need a word to tell hosts apart."""
        return self.enter(["env", f"ONEBIT_HOST={self.name}"])

    def enter(self, command: list[str], shares_memory: bool = False) -> list[str]:
        """The command line that runs `command` on this host.

        The host has memory of its own, or shares that of the machine.
        """
        return ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.namespace,
                "unshare", "--uts", "sh", "-c", NAME_ITSELF, "sh", self.name,
                *([] if shares_memory else TAKE_MEMORY), *command]


class Network:
    """Hosts and switch. Leaving the block removes them with every process in them.

    On request there is an additional host, from which a launcher starts programs on the others.
    """

    def __init__(self, hosts: int, rate: Rate, has_launcher: bool = False):
        self.name = LabName.of_this_process()
        self.rate = rate
        self.hosts = [Host(self.name, index, f"host{index}") for index in range(hosts)]
        self.launcher = Host(self.name, hosts, "launcher") if has_launcher else None
        self.switch = f"{self.name.text}-switch"
        self.folder = pathlib.Path(tempfile.gettempdir()) / self.name.text

    def __enter__(self) -> Network:
        try:
            self.folder.mkdir(mode=0o700)
            namespaces.add(self.switch)
            self._add_switch()
            for host in self._all_hosts():
                namespaces.add(host.namespace)
                self._connect(host)
            self._wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        remove(self.name, self._namespaces())

    def kill_processes(self) -> None:
        """Kills all processes on the hosts, whoever started them."""
        namespaces.kill_processes_in(self._namespaces())

    def _namespaces(self) -> list[str]:
        return [host.namespace for host in self._all_hosts()] + [self.switch]

    def _all_hosts(self) -> list[Host]:
        return self.hosts if self.launcher is None else [*self.hosts, self.launcher]

    def _add_switch(self) -> None:
        self._build("ip", "-n", self.switch, "link", "add", BRIDGE, "type", "bridge",
                    "mcast_snooping", "0")
        self._keep_quiet(self.switch, BRIDGE)
        self._build("ip", "-n", self.switch, "link", "set", BRIDGE, "up")

    def _connect(self, host: Host) -> None:
        self._build("ip", "link", "add", "eth0", "netns", host.namespace, "type", "veth",
                    "peer", "name", host.port, "netns", self.switch)
        for namespace, device in ((host.namespace, "eth0"), (self.switch, host.port)):
            on = ("-n", namespace)
            self._build("ip", *on, "link", "set", device,
                        "gso_max_size", str(self.rate.super_packet_bytes()))
            self._keep_quiet(namespace, device)
            self._build("tc", *on, "qdisc", "add", "dev", device, "root", *self.rate.discipline())
        self._build("ip", "-n", self.switch, "link", "set", host.port, "master", BRIDGE, "up")
        self._build("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self._build("ip", "-n", host.namespace, "link", "set", device, "up")
        self._build("ip", "-n", host.namespace, "route", "replace", host.subnet, "dev", "eth0",
                    "proto", "kernel", "scope", "link", "src", host.address,
                    "congctl", CONGESTION_CONTROL)

    def _keep_quiet(self, namespace: str, device: str) -> None:
        """Disables IPv6 addresses and the messages that come with them, so counters show the job alone."""
        self._build("ip", "-n", namespace, "link", "set", device, "addrgenmode", "none")

    @staticmethod
    def _build(*command: str) -> None:
        try:
            namespaces.call(*command)
        except LabError as error:
            raise Unavailable(f"this kernel cannot make the lab's network: {error}") from error

    def _wait_until_up(self) -> None:
        """Waits until the kernel reports links as up: TCP works a little earlier, but UCX looks only
        once."""
        deadline = time.monotonic() + SECONDS_UNTIL_UP
        waiting = self._all_hosts()
        while waiting:
            waiting = [host for host in waiting if "state UP" not in namespaces.call(
                "ip", "-n", host.namespace, "link", "show", "eth0")]
            if waiting and time.monotonic() > deadline:
                raise Unavailable(f"the link of host {waiting[0].index} does not come up")
            if waiting:
                time.sleep(0.02)


def remove(name: LabName, of_lab: list[str]) -> None:
    """Removes a lab: processes, namespaces, folder."""
    namespaces.kill_processes_in(of_lab)
    for namespace in of_lab:
        namespaces.delete(namespace)
    shutil.rmtree(pathlib.Path(tempfile.gettempdir()) / name.text, ignore_errors=True)


def remove_abandoned() -> list[str]:
    """Removes labs whose owners have ended without doing it; returns their names."""
    abandoned: dict[LabName, list[str]] = {}
    folders = [path.name for path in pathlib.Path(tempfile.gettempdir()).iterdir()]
    for text in namespaces.names() + folders:
        name = LabName.parse(text)
        if name is not None and not name.has_owner:
            abandoned.setdefault(name, [])
            if text != name.text:
                abandoned[name].append(text)
    for name, of_lab in abandoned.items():
        remove(name, of_lab)
    return [name.text for name in abandoned]
