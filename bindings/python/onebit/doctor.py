# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Reports what is installed and what is missing, and whether compression pays: python -m
onebit.doctor

The measurement takes a few seconds. Alone, the doctor starts two processes on this host, whose
memory is faster than most networks. To measure a network, start it as a job on its hosts, by
torchrun, mpirun or srun.
"""

from __future__ import annotations

import argparse
import array
import collections
import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import random
import re
import shutil
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import onebit
from onebit import _native
from onebit._job import run_processes
from onebit._library import lib

ARRAY_PACKAGES = ("numpy", "torch", "cupy", "jax", "ml_dtypes", "mpi4py")
LAUNCHER_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
WAYS = ("dense", "fp4", "sign")
CALLS = 5  # the median counts


class Place(NamedTuple):
    """Where a rank is."""

    host: int  # number in the communicator
    machine: int  # the same for ranks on one machine


@dataclass
class Cost:
    """Costs of one way's calls: times of a rank, and bytes on the link of a host."""

    seconds: float
    codec_seconds: float  # of them in compression, reduction and decoding
    link_bytes: int  # that all ranks of a host send to other hosts, of the host that sends the most


def transports() -> Iterator[str]:
    name = ctypes.c_char_p()
    for index in range(1000):
        try:
            lib.onebitGetTransport(index, name)
        except onebit.InvalidArgument:  # past the last one
            return
        yield (name.value or b"").decode()


def settings() -> Iterator[_native.Setting]:
    for index in range(1000):
        setting = _native.Setting()
        try:
            lib.onebitGetSetting(index, setting)
        except onebit.InvalidArgument:
            return
        yield setting


def log_of_settings() -> Tuple[List[_native.Setting], List[str]]:
    """All settings, and what the library logs while it opens its plugins for theirs."""
    lines: List[str] = []
    callback = _native.LogCallback(lambda _level, text, _argument: lines.append(text.decode()))
    lib.onebitSetLogCallback(callback, None)
    try:
        return list(settings()), lines
    finally:
        lib.onebitSetLogCallback(_native.LogCallback(), None)


def can_open(library: str) -> str:
    try:
        ctypes.CDLL(library)
        return "found"
    except OSError as error:
        return f"missing ({error})"


def obstacles_of_ddp(value: str) -> Iterator[str]:
    """Why ONEBIT_TORCH_DDP has no effect in programs of this Python, or of the torchrun on PATH."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        yield "PyTorch is not installed for this Python"
    else:
        if [int(number) for number in re.findall(r"\d+", version)[:2]] < [2, 5]:
            yield f"PyTorch {version} loads no entry points; 2.5 and newer do"
        yield from mistakes_in(value)
    autoload = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    if autoload != "1":
        yield f"TORCH_DEVICE_BACKEND_AUTOLOAD={autoload} turns entry points off"
    try:
        found = importlib.metadata.distribution("onebit").entry_points
    except importlib.metadata.PackageNotFoundError:
        found = []
    if not any(each.group == "torch.backends" for each in found):
        yield "this onebit is not installed, so it has no entry point: install the wheel"
    torchrun = shutil.which("torchrun")
    interpreter = None if torchrun is None else interpreter_of(pathlib.Path(torchrun))
    if interpreter is not None and interpreter.parent.resolve() != pathlib.Path(sys.executable).parent.resolve():
        yield f"{torchrun} starts {interpreter}, which is another Python: start python -m torch.distributed.run"


def interpreter_of(script: pathlib.Path) -> Optional[pathlib.Path]:
    """The Python that a script's first line names by its path; None if there is no such line."""
    try:
        with script.open("rb") as file:
            line = os.fsdecode(file.readline().strip())
    except OSError:
        return None
    found = pathlib.Path(line[2:].strip())
    return found if line.startswith("#!/") and found.name.startswith("python") else None


def mistakes_in(value: str) -> Iterator[str]:
    """Why a model's constructor refuses the variable; it needs PyTorch, as that does."""
    try:
        from onebit.torch import _ddp_variable
    except ImportError as error:
        yield f"PyTorch cannot be imported: {error}"
        return
    try:
        _ddp_variable.options_of(value)
    except onebit.InvalidArgument as error:
        yield str(error)


def inventory() -> Iterator[str]:
    """Lists what this host has and lacks."""
    yield f"onebit      {onebit.__version__}, {onebit.library_path()}"
    yield f"Python      {platform.python_version()}, {sys.executable}; {os.cpu_count()} processors"
    found = [name for name in ARRAY_PACKAGES if importlib.util.find_spec(name) is not None]
    yield f"packages    {', '.join(found) or 'no NumPy, PyTorch or CuPy; arrays of module array work'}"
    all_settings, log = log_of_settings()
    yield f"transports  {', '.join(transports())}"
    yield f"CUDA driver {can_open('libcuda.so.1')}"
    yield from (f"            {line}" for line in log)
    for setting in all_settings:
        if setting.source == b"environment":
            yield f"setting     {setting.name.decode()}={setting.value.decode()}"
            if setting.name == b"ONEBIT_TORCH_DDP":
                reasons = list(obstacles_of_ddp(setting.value.decode()))
                yield from (f"            trainers fail or ignore it: {reason}" for reason in reasons)
                if not reasons:
                    yield "            it takes effect where DistributedDataParallel wraps a model"


def places(comm: onebit.Communicator) -> List[Place]:
    """Where the ranks are, by rank."""
    machine = pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes()
    digest = int.from_bytes(hashlib.blake2b(machine, digest_size=7).digest(), "big")
    gathered = array.array("q", [0, 0] * comm.size)
    comm.all_gather(array.array("q", [comm.stats().host, digest]), out=gathered)
    return [Place(*pair) for pair in zip(gathered[::2], gathered[1::2])]


def hosts(found: Sequence[Place], variable: str) -> Iterator[str]:
    """The hosts with their ranks, and where they are not machines. `variable` tells them apart; "" is
    none."""
    ranks = [count for _, count in sorted(collections.Counter(place.host for place in found).items())]
    if len(set(ranks)) == 1:
        each = " each" if len(ranks) > 1 else ""
        text = f"{len(ranks)}, with {ranks[0]} {'rank' if ranks[0] == 1 else 'ranks'}{each}"
    else:
        text = f"{len(ranks)}, with {', '.join(map(str, ranks[:-1]))} and {ranks[-1]} ranks"
    yield f"hosts       {text}{f' ({variable})' if variable else ''}"
    machines: Dict[int, Set[int]] = collections.defaultdict(set)
    parts: Dict[int, Set[int]] = collections.defaultdict(set)
    for place in found:
        machines[place.host].add(place.machine)
        parts[place.machine].add(place.host)
    for host, merged in sorted(machines.items()):
        if len(merged) > 1:
            line = f"puts {len(merged)} machines into host {host}: do they share a link?"
            yield f"            {variable} {line}"
    for split in parts.values():
        if len(split) > 1:
            line = f"splits one machine into {len(split)} hosts: does each have a link of its own?"
            yield f"            {variable} {line}"


def variable_of_hosts() -> str:
    """The variable that tells hosts apart; "" if machines are hosts."""
    values = {setting.name: setting.value for setting in settings()}
    if values[b"ONEBIT_HOST"]:
        return "ONEBIT_HOST"
    return "" if values[b"ONEBIT_HOST_RANKS"] == b"0" else "ONEBIT_HOST_RANKS"


def links(found: Sequence[Place]) -> List[int]:
    """For each rank the number of the link on which it sends: that of its host, or if there is only
    one host a link of its own, as if each rank had a host."""
    by_host = [place.host for place in found]
    return by_host if len(set(by_host)) > 1 else list(range(len(found)))


def busiest(sent: Sequence[int], link_by_rank: Sequence[int]) -> int:
    """The bytes on the link that carries the most, of those that each rank has sent."""
    totals: Dict[int, int] = collections.defaultdict(int)
    for count, link in zip(sent, link_by_rank):
        totals[link] += count
    return max(totals.values())


def bytes_on_link(stats: _native.CommStats) -> int:
    """The bytes that a rank has sent to other hosts; if there is only one host, all of them."""
    return stats.bytes_sent if stats.hosts == 1 else stats.network_bytes


def measure(comm: onebit.Communicator, count: int, link_by_rank: Sequence[int]) -> Dict[str, Cost]:
    """Measures calls on `count` floats: medians over calls, the slowest rank's time."""
    draw = random.Random(comm.rank)
    pattern = array.array("f", (draw.gauss(0, 1) for _ in range(min(count, 1 << 14))))
    gradient = (pattern * (count // len(pattern) + 1))[:count]
    costs = {}
    for way in WAYS:
        compressor = None if way == "dense" else onebit.Compressor(comm, count, codec=way)
        rows = []
        for _ in range(CALLS + 1):
            comm.barrier()
            before, begin = comm.stats(), time.perf_counter()
            comm.all_reduce(gradient, op="avg", compressor=compressor)
            seconds, after = time.perf_counter() - begin, comm.stats()
            row = array.array("d", [seconds, (after.codec_ns - before.codec_ns) * 1e-9])
            comm.all_reduce(row, op="max")
            sent = array.array("q", [0] * comm.size)
            own = array.array("q", [bytes_on_link(after) - bytes_on_link(before)])
            comm.all_gather(own, out=sent)
            rows.append((*row, busiest(sent, link_by_rank)))
        seconds, codec_seconds, link_bytes = (
            statistics.median(column) for column in zip(*rows[1:])
        )
        costs[way] = Cost(seconds, codec_seconds, int(link_bytes))
        if compressor is not None:
            compressor.close()
    return costs


def examine(comm: onebit.Communicator, count: int) -> Tuple[List[Place], Dict[str, Cost]]:
    found = places(comm)
    return found, measure(comm, count, links(found))


def verdict(costs: Dict[str, Cost], count: int, found: Sequence[Place]) -> Iterator[str]:
    """The costs, and for which links of hosts compression pays."""
    ranks = len(found)
    if ranks == 1:
        yield "There is only one rank, which sends nothing: start more."
        return
    is_one_host = len({place.host for place in found}) == 1
    dense = costs["dense"]
    size = f"{count} floats ({4 * count / 2**20:.0f} MiB)"
    sent = f"sent per {'rank' if is_one_host else 'host'}"
    yield f"{ranks} ranks average {size}, medians of {CALLS} calls:"
    yield f"  {'':6} {'time':>10} {sent:>15} {'computing':>10} {'speed-up':>9}"
    for way, cost in costs.items():
        yield (
            f"  {way:6} {cost.seconds * 1e3:>7.2f} ms {cost.link_bytes / 2**20:>11.2f} MiB "
            f"{cost.codec_seconds * 1e3:>7.2f} ms {dense.seconds / cost.seconds:>8.2f}x"
        )
    case = ", with one rank on each host" if is_one_host else ""
    for way, cost in costs.items():
        if way == "dense":
            continue
        # On a slow link a call takes bytes / rate beside its computing.
        saved, computing = (
            dense.link_bytes - cost.link_bytes,
            cost.codec_seconds - dense.codec_seconds,
        )
        if saved <= 0:
            limit = "on no link of a host, because it saves no bytes"
        elif computing > 0:
            limit = f"if the link of a host is below about {8e-9 * saved / computing:.1f} Gbit/s"
        else:
            limit = "on any link of a host"
        here = "pays here" if cost.seconds < dense.seconds else "does not pay here"
        yield f"{way} {here}. With computing as above it pays {limit}{case}."


def main(arguments: Optional[Sequence[str]] = None) -> None:
    summary, details = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m onebit.doctor", description=f"{summary}. {details}"
    )
    parser.add_argument("--mebibytes", type=int, default=16, help="size of the tensor (16)")
    parser.add_argument("--no-measurement", action="store_true", help="report what is installed, without measuring")
    given = parser.parse_args(arguments)
    if given.mebibytes < 1:
        parser.error("the tensor must have at least 1 MiB")
    count = given.mebibytes << 18
    is_job = any(name in os.environ for name in LAUNCHER_VARIABLES)
    rank = 0
    if is_job and not given.no_measurement:
        with onebit.init() as comm:
            rank, (found, costs) = comm.rank, examine(comm, count)
    elif not given.no_measurement:
        (found, costs), *_ = run_processes(2, examine, count)
    if rank != 0:
        return
    print("\n".join(inventory()))
    if not given.no_measurement:
        print(*hosts(found, variable_of_hosts()), sep="\n")
        print("", *verdict(costs, count, found), sep="\n")
        if not is_job:
            print(
                "This measured the memory of this host. To measure a network, start a job on its hosts."
            )


if __name__ == "__main__":
    main()
