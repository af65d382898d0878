# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: network namespaces joined by a cable, each with a host name of its own."""

import os
import shutil
import subprocess
import time


class Unavailable(Exception):
    """This machine or user cannot make namespaces."""


class TwoHosts:
    """Host 0 is 10.77.0.1, host 1 is 10.77.0.2, both on eth0; gone when the block is left."""

    def __init__(self):
        self.names = [f"onebit-{os.getpid()}-{index}" for index in range(2)]
        self.addresses = ["10.77.0.1", "10.77.0.2"]

    def __enter__(self):
        if not all(shutil.which(tool) for tool in ("ip", "unshare")):
            raise Unavailable("ip or unshare is not installed (iproute2, util-linux)")
        try:
            for name in self.names:
                self._ip("netns", "add", name)
            self._ip("link", "add", "eth0", "netns", self.names[0], "type", "veth",
                     "peer", "name", "eth0", "netns", self.names[1])
            for name, address in zip(self.names, self.addresses):
                self._ip("-n", name, "link", "set", "lo", "up")
                self._ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
                self._ip("-n", name, "link", "set", "eth0", "up")
                self._add_container_bridge(name)
            for name in self.names:
                self._wait_until_up(name)
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise Unavailable(f"no network namespaces here: {error.stderr.strip()}") from error
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def on(self, index: int, command: list[str]) -> list[str]:
        """The command line that runs `command` on a host."""
        return ["ip", "netns", "exec", self.names[index], "unshare", "--uts", "sh", "-c",
                f'hostname host{index} && exec "$@"', "sh", *command]

    def _add_container_bridge(self, name: str):
        """As Docker leaves it: the same address on every host, as fast as the network, no way out."""
        self._ip("-n", name, "link", "add", "docker0", "type", "bridge")
        self._ip("-n", name, "address", "add", "172.17.0.1/16", "dev", "docker0")
        self._ip("-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
        self._ip("-n", name, "link", "set", "veth0", "master", "docker0")
        for device in ("veth0", "veth1", "docker0"):
            self._ip("-n", name, "link", "set", device, "up")

    def _wait_until_up(self, name: str):
        """TCP works a little before the kernel calls the link up, and UCX looks once."""
        for _ in range(200):
            if "state UP" in self._ip("-n", name, "link", "show", "eth0"):
                return
            time.sleep(0.02)
        raise Unavailable("the cable between the namespaces does not come up")

    @staticmethod
    def _ip(*arguments: str) -> str:
        return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout
