# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts of the lab that are reached by ssh, each with a real sshd.

Everything that they need is in the folder given: host keys, the key of the user, the configurations of
ssh, sshd and the shell, /etc/hosts. Nothing of the machine is read or changed. The hosts share its files, except for
/run, which each has of its own.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "perf"))

from ethernet_lab import namespaces  # pylint: disable=wrong-import-position
from ethernet_lab.errors import Unavailable  # pylint: disable=wrong-import-position
from ethernet_lab.lab_guard import Guard  # pylint: disable=wrong-import-position
from ethernet_lab.network import Host, Network  # pylint: disable=wrong-import-position
from ethernet_lab.rates import Rate  # pylint: disable=wrong-import-position

PORT = 2222
HAS_IPV6 = os.path.exists("/proc/net/if_inet6")
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
# sshd wants a folder in /run, which a machine without an init has not.
OWN_FILES = """
mount --bind "$1" /etc/hosts && mount -t tmpfs tmpfs /run && mkdir /run/sshd && shift || exit 1
[ ! -e ~/.bashrc ] || mount --bind /dev/null ~/.bashrc || exit 1
exec "$@"
"""
COVERED = 'mount -t tmpfs tmpfs "$1" && shift && exec "$@"'

SSHD_CONFIG = """
Port {port}
{listen_addresses}
HostKey {folder}/{name}.key
AuthorizedKeysFile {folder}/user.key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv TMPDIR={folder}/tmp BASH_ENV={folder}/bash_env
"""
SSH_CONFIG = """
Port {port}
User root
IdentityFile {folder}/user.key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
GlobalKnownHostsFile /dev/null
"""


def problem() -> str:
    """Why there can be no such hosts here, or ""."""
    try:
        namespaces.require_support()
    except Unavailable as error:
        return str(error)
    if not os.access(SSHD, os.X_OK):
        return "there is no sshd here: install openssh-server"
    if shutil.which("ssh") is None:
        return "there is no ssh here: install openssh-client"
    return ""


class SshHosts:
    """Hosts a, b, ... and one from which jobs are started."""

    def __init__(self, folder: pathlib.Path, names: str, covered: dict[str, pathlib.Path] | None = None):
        """covered: folders of the machine that a host has not; it has an empty one of that name."""
        self.folder = folder
        self._names = names
        self._covered = covered or {}
        self._network = Network(len(names), Rate.parse("none"), has_launcher=True)
        self._guard = Guard()
        self.hosts = dict(zip(names, self._network.hosts))
        self.launcher = self._network.launcher

    def __enter__(self) -> "SshHosts":
        self._guard.__enter__()
        try:
            self._network.__enter__()
            if HAS_IPV6:
                for host in (*self.hosts.values(), self.launcher):
                    namespaces.call("ip", "-n", host.namespace, "address", "add", f"{self.ipv6(host)}/64", "dev",
                                    "eth0", "nodad")
            self._write_files()
            for name, host in self.hosts.items():
                self._start_sshd(name, host)
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        self._network.__exit__()
        self._guard.__exit__()

    def on(self, host: Host, *command: str) -> list[str]:
        """The command line that runs a command on a host, as if somebody were logged in there."""
        return host.enter(["sh", "-c", OWN_FILES, "sh", str(self.folder / "etc_hosts"), *command])

    @staticmethod
    def ipv6(host: Host) -> str:
        """The host's other address, if HAS_IPV6."""
        return f"fd00::{host.index + 1}"

    def environment(self) -> dict[str, str]:
        """The environment of somebody there: `ssh` is the one with our configuration."""
        foreign = ("RANK", "WORLD_SIZE", "OMPI_", "PMI_", "SLURM_", "ONEBIT_", "MASTER_", "LOCAL_", "SSH_")
        mine = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return mine | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(self.folder / "tmp"),
                       "HOME": str(self.folder)}

    def ssh(self, name: str, command: str) -> str:
        """The output of a command on a host."""
        return subprocess.run(self.on(self.launcher, "ssh", name, command), env=self.environment(), text=True,
                              capture_output=True, check=True, timeout=30).stdout

    def left_on(self, name: str) -> list[str]:
        """Processes on a host that are no sshd."""
        found = []
        for pid in namespaces.processes_in([self.hosts[name].namespace]):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                # A process that is about to end has no words any more.
                if words and "sshd" not in words:
                    found.append(words)
            except OSError:
                pass  # it has ended
        return found

    def set_link(self, name: str, state: str) -> None:
        namespaces.call("ip", "-n", self.hosts[name].namespace, "link", "set", "eth0", state)

    def _write_files(self) -> None:
        folder = self.folder
        for sub in ("bin", "tmp"):
            (folder / sub).mkdir()
        for name in (*self._names, "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", f"{folder}/{name}.key"],
                           check=True)
        places = {**self.hosts, "launcher": self.launcher}
        (folder / "etc_hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{host.address} {name} {host.name}\n" for name, host in places.items()))
        (folder / "known_hosts").write_text("".join(
            f"[{host.address}]:{PORT},[{self.ipv6(host)}]:{PORT},[{name}]:{PORT} "
            f"{(folder / f'{name}.key.pub').read_text()}"
            for name, host in self.hosts.items()))
        (folder / "ssh_config").write_text(SSH_CONFIG.format(port=PORT, folder=folder))
        (folder / "bash_env").write_text("echo Welcome\nunset BASH_ENV\n")
        ssh = folder / "bin" / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
        ssh.chmod(0o755)

    def _start_sshd(self, name: str, host: Host) -> None:
        config = self.folder / f"{name}.sshd"
        addresses = [host.address, *([self.ipv6(host)] if HAS_IPV6 else [])]
        listen = "\n".join(f"ListenAddress {address}" for address in addresses)
        config.write_text(SSHD_CONFIG.format(port=PORT, listen_addresses=listen, folder=self.folder, name=name))
        daemon = [SSHD, "-D", "-E", str(self.folder / f"{name}.log"), "-f", str(config)]
        if name in self._covered:
            daemon = ["sh", "-c", COVERED, "sh", str(self._covered[name]), *daemon]
        # It dies with its host.
        subprocess.Popen(self.on(host, *daemon), stdin=subprocess.DEVNULL)  # pylint: disable=consider-using-with

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 30
        for name in self._names:
            while True:
                try:
                    self.ssh(name, "true")
                    break
                except subprocess.CalledProcessError as error:
                    if time.monotonic() > deadline:
                        log = self.folder / f"{name}.log"
                        words = log.read_text() if log.exists() else ""
                        raise RuntimeError(f"no sshd on {name}: {error.stderr}{words}") from error
                    time.sleep(0.1)
