# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of tests/gpu/run: what each runs, for how long at most, and what it makes of it."""

import dataclasses
import json
import os
import pathlib
import re
import time
from collections.abc import Callable

import machine
import processes

# EF compression must come this close to the speed of a copy on the device, in one of this many
# attempts.
CODEC_FIGURE = "EfCompress/fp32/block4096"
CODEC_LIMIT = 0.85
CODEC_TRIES = 3

# No part starts with less time than this.
LEAST_S = 2

# Several ranks of NCCL on one GPU, a process each. Every process claims to be a separate host, so
# that NCCL accepts the shared device, and uses sockets on the loopback interface. There are few
# channels, because the processes take turns on the GPU.
SHARED_GPU = {
    "NCCL_NET": "Socket",
    "NCCL_NET_PLUGIN": "none",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "=lo",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_NET_GDR_LEVEL": "LOC",
    "NCCL_MAX_CTAS": "2",
    "NCCL_RAS_ENABLE": "0",
}


class Skip(Exception):
    """A part cannot run here."""


class NoTime(Exception):
    """The time of this call was over before a part had ended, or had begun."""


class Failure(Exception):
    """A part ran and did not pass; it may have figures all the same."""

    def __init__(self, text: str, figures: dict | None = None):
        super().__init__(text)
        self.figures = figures or {}


@dataclasses.dataclass
class Run:
    """What parts are given."""
    build: pathlib.Path
    environment: dict[str, str]
    machine: dict
    deadline: float

    def log(self, name: str) -> pathlib.Path:
        return self.build / "logs" / name

    def limit(self, seconds: float) -> float:
        left = self.deadline - time.monotonic()
        if left < LEAST_S:
            raise NoTime("no time left")
        return min(seconds, left)


@dataclasses.dataclass
class Part:
    name: str
    targets: list[str]
    run: Callable[[Run], dict]


def first_failures(text: str) -> str:
    """The lines that say what went wrong, of the output of a test or of another program."""
    lines = text.splitlines()
    marks = [i for i, line in enumerate(lines)
             if re.search(r"Failure$|\[  FAILED  \]|[Ee]rror|ERROR|WARN", line)]
    chosen = [line for i in marks[:4] for line in lines[i:i + 4]] or lines[-8:]
    return "\n".join(dict.fromkeys(line for line in chosen if line.strip()))


def require(run: Run, ended: processes.Ended, what: str) -> None:
    is_cut_short = ended.is_late and time.monotonic() >= run.deadline
    if is_cut_short and "[  FAILED  ]" not in ended.text():
        raise NoTime(f"no time left: {what} was {ended.problem}\nsee {ended.logs[0]}")
    if ended.problem:
        raise Failure(f"{what}: {ended.problem}\n{first_failures(ended.text())}\nsee {ended.logs[0]}")


def tests_in(ended: processes.Ended) -> int:
    """How many tests every rank passed. None is a failure: then a filter names what is not there."""
    numbers = [sum(map(int, re.findall(r"^\[  PASSED  \] (\d+) tests?\.", log.read_text(errors="replace"),
                                       re.MULTILINE))) for log in ended.logs]
    if min(numbers) == 0:
        raise Failure(f"no test ran; see {ended.logs[0]}")
    return min(numbers)


def gtest(run: Run, program: str, name: str, limit_s: float, filters: str = "*",
          wrapper: list[str] | None = None, **variables: str) -> int:
    command = [*(wrapper or []), str(run.build / program), f"--gtest_filter={filters}"]
    ended = processes.run(command, {**run.environment, **variables}, run.log(name), run.limit(limit_s))
    require(run, ended, name)
    return tests_in(ended)


def rank_variables(is_shared: bool) -> Callable[[int], dict[str, str]]:
    if not is_shared:
        return lambda rank: {}
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    return lambda rank: {**SHARED_GPU, "CUDA_VISIBLE_DEVICES": device,
                         "NCCL_HOSTID": f"onebit-rank-{rank}"}


def nccl_environment(run: Run) -> dict[str, str]:
    nccl = run.machine["nccl"]
    if nccl is None:
        raise Skip("there is no NCCL: name its file in ONEBIT_NCCL_LIB")
    return {**run.environment, "ONEBIT_NCCL_LIB": nccl["path"], "NCCL_DEBUG": "WARN",
            "ONEBIT_SOCKET_IFNAME": "lo", "ONEBIT_COLLECTIVE_TIMEOUT_MS": "60000"}


def nccl_ranks(run: Run, name: str, ranks: int, filters: str, limit_s: float, is_shared: bool = True,
               **variables: str) -> int:
    command = [str(run.build / "tests/gpu/nccl_ranks"), f"--gtest_filter={filters}"]
    ended = processes.run_ranks(ranks, command, {**nccl_environment(run), **variables}, run.log(name),
                                run.limit(limit_s), rank_variables(is_shared))
    require(run, ended, f"{ranks} ranks, {name}")
    return tests_in(ended)


def kernels(run: Run) -> dict:
    return {"tests": gtest(run, "tests/kernels/cuda_kernels_gpu_test", "kernels", 300)}


def staged(run: Run) -> dict:
    # Streams that wait for the host must not hold up those of other ranks, so each needs its own
    # queue. By default a device has 8.
    return {"tests": gtest(run, "tests/gpu/staged_ranks", "staged", 90, "*/local",
                           CUDA_DEVICE_MAX_CONNECTIONS="32", ONEBIT_COLLECTIVE_TIMEOUT_MS="30000")}


def nccl(run: Run) -> dict:
    cases = "NcclRanksTest.*:NcclFailureTest.*:NcclJoinTest.*"
    few = ("NcclRanksTest.EveryCollective*:*OneExchange*:*Nonfinite*:NcclFailureTest.*:NcclJoinTest.*")
    figures = {
        "tests_2_ranks": nccl_ranks(run, "nccl-2", 2, cases, 120),
        "tests_4_ranks": nccl_ranks(run, "nccl-4", 4, few, 90),
        "tests_native_dense": nccl_ranks(run, "nccl-native", 2, "NcclNativeTest.*", 40,
                                         ONEBIT_NCCL_NATIVE_DENSE="1"),
    }
    gpus = min(len(run.machine["gpus"]), 8)
    if gpus > 1:
        figures[f"tests_{gpus}_gpus"] = nccl_ranks(run, f"nccl-{gpus}-gpus", gpus, cases, 90,
                                                   is_shared=False)
    return figures


def graph(run: Run) -> dict:
    return {"tests": nccl_ranks(run, "graph", 2, "NcclGraphTest.*", 90)}


def codec(run: Run) -> dict:
    command = [str(run.build / "perf/codec_perf"), "--device", "cuda", "--benchmark_out_format=json"]
    shares, rows = [], {}
    for attempt in range(1, CODEC_TRIES + 1):
        log = run.log(f"codec-{attempt}.json")
        # All kernels once, then only the one with a required speed.
        chosen = f"--benchmark_filter={'.*' if attempt == 1 else f'^{CODEC_FIGURE}$'}"
        ended = processes.run([*command, f"--benchmark_out={log}", chosen], run.environment,
                              run.log(f"codec-{attempt}"), run.limit(120 if attempt == 1 else 30))
        require(run, ended, "codec_perf")
        found = {row["name"]: row for row in json.loads(log.read_text())["benchmarks"]}
        if broken := [name for name, row in found.items() if row.get("error_occurred")]:
            raise Failure(f"codec_perf: errors in {', '.join(broken)}; see {log}")
        if CODEC_FIGURE not in found:
            raise Failure(f"codec_perf has no {CODEC_FIGURE}; see {log}")
        rows = rows or found
        shares.append(found[CODEC_FIGURE]["ceiling_share"])
        if shares[-1] >= CODEC_LIMIT:
            break
    figures = {
        "ceiling_share": shares, "ceiling_share_limit": CODEC_LIMIT,
        "gbps": {name: row["gbps"] for name, row in rows.items() if "gbps" in row},
        "ceiling_shares": {name: row["ceiling_share"] for name, row in rows.items()
                           if "ceiling_share" in row},
    }
    if max(shares) < CODEC_LIMIT:
        raise Failure(f"{CODEC_FIGURE}: {max(shares):.3f} of the ceiling, not {CODEC_LIMIT}", figures)
    return figures


def sweep(run: Run) -> dict:
    sizes = ["-b", "1K", "-e", "64M", "-f", "16", "-n", "5", "-w", "2", "-c", "1"]
    figures = {}
    for transport in ("local", "nccl") if run.machine["nccl"] else ("local",):
        for mode in ("dense", "ef"):
            name = f"sweep-{transport}-{mode}"
            report = run.log(f"{name}.json")
            report.unlink(missing_ok=True)
            command = [str(run.build / "perf/all_reduce_perf"), "--device", "cuda", "--transport",
                       transport, "--mode", mode, *sizes, "-J", str(report)]
            if transport == "local":
                environment = {**run.environment, "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
                ended = processes.run([*command, "-t", "2"], environment, run.log(name), run.limit(60))
            else:
                ended = processes.run_ranks(2, command, nccl_environment(run), run.log(name),
                                            run.limit(90), rank_variables(is_shared=True))
            require(run, ended, name)
            content = json.loads(report.read_text())
            wrong = [row["size"] for row in content["results"]
                     for place in ("out_of_place", "in_place") if row[place]["nwrong"]]
            if wrong or not content["results"]:
                raise Failure(f"{name}: wrong results at {wrong} bytes; see {report}")
            figures[name] = content["results"]
    return figures


def sanitizer(run: Run) -> dict:
    program = machine.find_tool("compute-sanitizer")
    if program is None:
        raise Skip("there is no compute-sanitizer")
    pieces = "CudaPiecesTest.*"
    filters = {
        "memcheck": f"{pieces}:Cuda*Test.*:*InPlace*:*AnyAlignment*-CudaStageTest.*:CudaScaleTest.*",
        "synccheck": "CudaPiecesTest.*:CudaCheckTest.*",
        "initcheck": "CudaPiecesTest.*",
    }
    figures = {}
    for tool, tests in filters.items():
        wrapper = [program, "--tool", tool, "--error-exitcode", "86"]
        if tool == "memcheck":  # the library asks about pointers that CUDA need not know
            wrapper += ["--report-api-errors", "no"]
        try:
            figures[tool] = gtest(run, "tests/kernels/cuda_kernels_gpu_test", f"sanitizer-{tool}", 90,
                                  tests, wrapper, CUDA_TEST_EXACT_MEMORY="1")
        except Failure:
            if "Device not supported" in run.log(f"sanitizer-{tool}").read_text(errors="replace"):
                raise Skip("compute-sanitizer does not support this device") from None
            raise
    return figures


PARTS = [
    Part("kernels", ["cuda_kernels_gpu_test"], kernels),
    Part("staged", ["staged_ranks"], staged),
    Part("nccl", ["nccl_ranks"], nccl),
    Part("graph", ["nccl_ranks"], graph),
    Part("codec", ["codec_perf"], codec),
    Part("sweep", ["all_reduce_perf", "onebit_transport_nccl"], sweep),
    Part("sanitizer", ["cuda_kernels_gpu_test"], sanitizer),
]
