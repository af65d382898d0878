# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Machines that QEMU emulates: Debian's kernel, all files of this machine, and a RoCE adapter in software.

A machine sees the files of this one read-only, with what it writes on top, so that a build is simply there. It has
one processor, an Ethernet adapter eth0 with the address 10.77.0.NUMBER, and over it rxe0, Linux's RoCE v2 without
hardware. Machines of one network reach each other and nothing else.
"""

import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time

QEMU = "qemu-system-x86_64"
PROGRAMS = (QEMU, "busybox", "cpio", "depmod", "modprobe", "rdma", "dpkg", "ssh-keygen", "/usr/sbin/sshd")
# crc32_generic: without a CRC-32 of the kernel's own, an rxe adapter cannot be made.
MODULES = ("virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "crc32_generic", "rdma_rxe", "ib_uverbs",
           "rdma_ucm")
BOOT_SECONDS = 300
COUNTERS = "/sys/class/infiniband/rxe0/ports/1/hw_counters"

INIT = """#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /lower /upper /root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read module; do insmod "/modules/$module" || echo "no $module"; done </modules/order
options=trans=virtio,version=9p2000.L,msize=524288
mount -t 9p -o $options,ro,cache=loose files /lower || echo 'no files'
mount -t tmpfs tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root
for name in proc sys dev; do mount --move /$name /root/$name; done
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec chroot /root /bin/sh -c '
  for folder in /dev/shm /run /dev/pts; do mkdir -p $folder; done
  mount -t tmpfs tmpfs /dev/shm
  mount -t tmpfs tmpfs /run
  mount -t devpts devpts /dev/pts
  mkdir /run/jobs
  mount -t 9p -o trans=virtio,version=9p2000.L,cache=none jobs /run/jobs
  number=$(sed -E "s/.* machine=([0-9]+).*/\\\\1/" /proc/cmdline)
  hostname machine$number
  ulimit -l unlimited
  ip link set lo up
  ip address add 10.77.0.$number/24 dev eth0
  ip link set eth0 up
  rdma link add rxe0 type rxe netdev eth0
  cd /run/jobs
  touch ready
  while :; do
    for job in *.job; do
      [ -e "$job" ] || continue
      name=${job%.job}
      mv "$job" "$name.sh"
      (sh "$name.sh" >"$name.out" 2>&1 </dev/null; echo $? >"$name.ended"; mv "$name.ended" "$name.status") &
    done
    sleep 0.2
  done'
"""


class Unavailable(Exception):
    """What is missing here to emulate machines."""


class Kernel:
    """Debian's kernel from its package, which is unpacked in a folder and not installed.

    Raises:
        Unavailable: the text says what is missing.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing:
            raise Unavailable(f"no {', '.join(missing)}: install group rdma of cmake/debian-packages.txt")
        tree = folder / "kernel"
        if not (tree / "complete").exists():
            _unpack(folder, tree)
        (self.image,) = (tree / "boot").glob("vmlinuz-*")
        self._version = self.image.name.removeprefix("vmlinuz-")
        self.ram_disk = folder / "ram-disk"
        self._pack_ram_disk(tree)

    def _pack_ram_disk(self, tree: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory() as work:
            root = pathlib.Path(work)
            for name in ("bin", "modules"):
                (root / name).mkdir()
            shutil.copy(shutil.which("busybox"), root / "bin" / "busybox")
            (root / "init").write_text(INIT, encoding="utf-8")
            (root / "init").chmod(0o755)
            order = []
            for module in MODULES:
                listed = subprocess.run(["modprobe", "-d", tree, "-S", self._version, "--show-depends", module],
                                        check=True, capture_output=True, text=True).stdout
                for path in re.findall(r"^insmod (\S+)", listed, re.MULTILINE):
                    if pathlib.Path(path).name not in order:
                        order.append(pathlib.Path(path).name)
                        shutil.copy(path, root / "modules")
            (root / "modules" / "order").write_text("\n".join(order) + "\n", encoding="utf-8")
            names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
            with open(self.ram_disk, "wb") as disk:
                subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names.encode(), stdout=disk,
                               check=True)


def _unpack(folder: pathlib.Path, tree: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    depends = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=False)
    package = re.search(r"Depends: (linux-image-\S+)", depends.stdout)
    if package is None:
        raise Unavailable("apt knows no package linux-image-amd64: run apt-get update, on Debian for x86-64")
    for old in folder.glob("linux-image-*.deb"):
        old.unlink()
    fetched = subprocess.run(["apt-get", "-q", "download", package.group(1)], cwd=folder, capture_output=True,
                             text=True, check=False)
    if fetched.returncode != 0:
        raise Unavailable(f"{package.group(1)} cannot be fetched: {fetched.stderr.strip()}")
    shutil.rmtree(tree, ignore_errors=True)
    (archive,) = folder.glob("linux-image-*.deb")
    subprocess.run(["dpkg", "-x", archive, tree], check=True)
    archive.unlink()
    (version,) = (path.name for path in (tree / "lib" / "modules").iterdir())
    subprocess.run(["depmod", "-b", tree, version], check=True)
    (tree / "complete").touch()


class Job:
    """A command on a machine."""

    def __init__(self, machine: "Machine", name: str) -> None:
        self._machine = machine
        self._name = name

    @property
    def path(self) -> str:
        """Of the file with its output, on the machine."""
        return f"/run/jobs/{self._name}.out"

    @property
    def output(self) -> str:
        path = self._machine.jobs / f"{self._name}.out"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def status(self) -> int | None:
        """As a shell says it; None: it runs."""
        path = self._machine.jobs / f"{self._name}.status"
        return int(path.read_text(encoding="utf-8")) if path.exists() else None

    def wait(self, seconds: float) -> int:
        """Its status. TimeoutError: there is none in that time, or the machine is off."""
        limit = time.monotonic() + seconds
        while (status := self.status) is None:
            if time.monotonic() > limit or not self._machine.is_on:
                raise TimeoutError(f"{self._machine.name} has not ended a command in {seconds:g} s; so far it wrote:\n"
                                   f"{self.output[-2000:]}\nThe machine's last lines:\n{self._machine.console[-1000:]}")
            time.sleep(0.1)
        return status


class Machine:
    """One that is on, until the block is left.

    Args:
        number: from 1 on, also the last part of its address.
        network: a folder for the sockets of the machines on one network of two.
    """

    def __init__(self, kernel: Kernel, number: int, network: pathlib.Path, megabytes: int = 2048) -> None:
        self.name = f"machine{number}"
        self.address = f"10.77.0.{number}"
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=network))
        self.jobs = self._folder / "jobs"
        self.jobs.mkdir()
        self._count = 0
        own, other = (network / f"link{n}" for n in (number, 3 - number))
        own.unlink(missing_ok=True)
        command = [
            QEMU, "-accel", "tcg", "-cpu", "max", "-m", str(megabytes), "-nodefaults", "-no-user-config",
            "-display", "none", "-no-reboot", "-kernel", kernel.image, "-initrd", kernel.ram_disk,
            "-append", f"console=ttyS0 quiet panic=0 random.trust_cpu=on machine={number} ",
            "-serial", f"file:{self._folder}/console",
            "-monitor", f"unix:{self._folder}/monitor,server=on,wait=off",
            "-virtfs", "local,path=/,mount_tag=files,security_model=none,readonly=on,multidevs=remap",
            "-virtfs", f"local,path={self.jobs},mount_tag=jobs,security_model=none",
            "-netdev", f"dgram,id=net,local.type=unix,local.path={own},remote.type=unix,remote.path={other}",
            "-device", f"virtio-net-pci,id=eth0,netdev=net,mac=52:54:00:77:00:{number:02x}",
        ]
        with open(self._folder / "qemu.log", "w", encoding="utf-8") as log:
            self._qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *_) -> None:
        self._qemu.kill()
        self._qemu.wait()

    @property
    def is_on(self) -> bool:
        return self._qemu.poll() is None

    @property
    def console(self) -> str:
        """What its kernel and QEMU have said."""
        paths = (self._folder / "console", self._folder / "qemu.log")
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())

    def boot(self) -> None:
        """Waits until it takes commands."""
        limit = time.monotonic() + BOOT_SECONDS
        while not (self.jobs / "ready").exists():
            if time.monotonic() > limit or not self.is_on:
                raise RuntimeError(f"{self.name} did not boot:\n{self.console[-3000:]}")
            time.sleep(0.1)

    def start(self, command: list, variables: dict | None = None, folder: pathlib.Path | None = None) -> Job:
        """Runs a command, beside those that run already."""
        self._count += 1
        lines = [f"export {name}={shlex.quote(value)}" for name, value in (variables or {}).items()]
        lines += [f"cd {shlex.quote(str(folder or pathlib.Path.cwd()))}", f"exec {shlex.join(map(str, command))}"]
        name = f"{self._count:04}"
        written = self.jobs / f"{name}.new"
        written.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.rename(written, self.jobs / f"{name}.job")
        return Job(self, name)

    def output_of(self, command: list, seconds: float = 60) -> str:
        job = self.start(command)
        if job.wait(seconds) != 0:
            raise RuntimeError(f"{self.name}: {shlex.join(map(str, command))} failed:\n{job.output}")
        return job.output

    def packets(self) -> dict[str, int]:
        """Of its adapter so far: "sent_pkts", "rcvd_pkts" and others."""
        text = self.output_of(["sh", "-c", f"cd {COUNTERS} && grep . *"])
        return {name: int(value) for name, value in (line.split(":") for line in text.splitlines())}

    def monitor(self, line: str) -> None:
        """Gives QEMU a command: "stop" and "cont", "set_link eth0 off"."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(self._folder / "monitor"))
            for text in (None, line):
                if text is not None:
                    connection.sendall(text.encode() + b"\n")
                heard = b""
                while not heard.endswith(b"(qemu) "):
                    heard += connection.recv(4096)
