# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of tests/gpu/run: what each runs, for how long at most, and what it makes of it."""

import dataclasses
import json
import math
import os
import pathlib
import re
import shutil
import time
from collections.abc import Callable

import machine
import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Nothing starts with less time than this.
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
    """A part cannot go on."""


@dataclasses.dataclass
class Run:
    """One run of a part: what it is given, and what it has found so far."""
    build: pathlib.Path
    logs: pathlib.Path
    environment: dict[str, str]
    machine: dict
    call_end: float
    part_end: float
    is_quick: bool = False
    figures: dict = dataclasses.field(default_factory=dict)
    table: list[str] = dataclasses.field(default_factory=list)  # lines for the reader
    problems: list[str] = dataclasses.field(default_factory=list)
    written: list[pathlib.Path] = dataclasses.field(default_factory=list)  # output of programs

    def log(self, name: str) -> pathlib.Path:
        return self.logs / name

    def limit(self, seconds: float = math.inf) -> float:
        """Time for a program: at most `seconds`, and what is left to the part and to the call."""
        now = time.monotonic()
        if self.call_end - now < LEAST_S:
            raise NoTime("no time left")
        if self.part_end - now < LEAST_S:
            raise Failure("the part's limit is over")
        return min(seconds, self.part_end - now, self.call_end - now)

    def ended(self, ended: processes.Ended) -> processes.Ended:
        self.written += ended.logs
        return ended


@dataclasses.dataclass
class Part:
    name: str
    programs: dict[str, str]  # the file in the build folder of each target
    run: Callable[[Run], None]
    limit_s: float
    quick_s: float | None = None  # the limit in a quick call, if that has the part


def first_failures(text: str) -> str:
    """The lines that say what went wrong, of the output of a test or of another program."""
    lines = text.splitlines()
    marks = [i for i, line in enumerate(lines)
             if re.search(r"Failure$|\[  FAILED  \]|[Ee]rror|ERROR|WARN", line)]
    chosen = [line for i in marks[:4] for line in lines[i:i + 4]] or lines[-8:]
    return "\n".join(dict.fromkeys(line for line in chosen if line.strip()))


def require(run: Run, ended: processes.Ended, what: str) -> None:
    is_cut_short = ended.is_late and time.monotonic() >= run.call_end
    if is_cut_short and "[  FAILED  ]" not in ended.text():
        raise NoTime(f"no time left: {what} was {ended.problem}")
    if ended.problem:
        raise Failure(f"{what}: {ended.problem}\n{first_failures(ended.text())}")


def tests_in(ended: processes.Ended) -> int:
    """How many tests every rank passed. None is a failure: then a filter names what is not there."""
    numbers = [sum(map(int, re.findall(r"^\[  PASSED  \] (\d+) tests?\.", log.read_text(errors="replace"),
                                       re.MULTILINE))) for log in ended.logs]
    if min(numbers) == 0:
        raise Failure(f"no test ran: {ended.logs[0].name}")
    return min(numbers)


def gtest(run: Run, program: str, name: str, filters: str = "*", wrapper: list[str] | None = None,
          **variables: str) -> int:
    command = [*(wrapper or []), str(run.build / program), f"--gtest_filter={filters}"]
    ended = run.ended(processes.run(command, {**run.environment, **variables}, run.log(name), run.limit()))
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


def nccl_ranks(run: Run, name: str, ranks: int, filters: str, is_shared: bool = True,
               **variables: str) -> int:
    command = [str(run.build / "tests/gpu/nccl_ranks"), f"--gtest_filter={filters}"]
    ended = run.ended(processes.run_ranks(ranks, command, {**nccl_environment(run), **variables},
                                          run.log(name), run.limit(), rank_variables(is_shared)))
    require(run, ended, f"{ranks} ranks, {name}")
    return tests_in(ended)


def kernels(run: Run) -> None:
    # The long cases resemble others.
    filters = "-*EveryPosition*:*AllMagnitudes*:*AllShortCounts*:*AtAllCounts*:*AroundBlocks*"
    run.figures["tests"] = gtest(run, "tests/kernels/cuda_kernels_gpu_test", "kernels",
                                 filters if run.is_quick else "*")


# What a process does in the driver behind its own calls while their peer is late, or dead.
HELD = ["free", "free_host", "load", "allocate", "nothing"]
HOLD_S = 25  # of one program; it needs about 10


def hold_one(run: Run, connections: str, priority: str, peer: str) -> None:
    environment = {**run.environment, "CUDA_MODULE_LOADING": "LAZY",
                   "ONEBIT_COLLECTIVE_TIMEOUT_MS": "15000" if peer == "late" else "1500"}
    if connections:
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = connections
    what = f"{peer} peer, {priority} priority, {connections or 'default'} connections"
    left, seconds = list(HELD), run.figures.setdefault(what, {})
    try:
        while left:
            name = "-".join(["hold", peer, priority, connections or "default", left[0]])
            command = [str(run.build / "tests/cuda/cuda_late_peer"), priority, peer, *left]
            ended = run.ended(processes.run_ranks(2, command, environment, run.log(name),
                                                  run.limit(HOLD_S)))
            text = ended.logs[0].read_text(errors="replace")
            seconds |= {held: float(taken) for held, taken in
                        re.findall(r"late_peer: (\w+) took ([\d.]+) s", text)}
            if not ended.problem:
                break
            # Others are tried without the one that it ended with.
            begun = re.findall(r"late_peer: (\w+) \.\.\.", text)[-1:] or left[:1]
            run.problems.append(f"{begun[0]}, {what}: {ended.problem}\n{first_failures(ended.text())}")
            left = left[left.index(begun[0]) + 1:]
    finally:
        run.table.append(f"{what}: " + ", ".join(f"{held} {taken:.3f} s" for held, taken in seconds.items()))


def hold(run: Run) -> None:
    if run.is_quick:
        cases = [("", "least", "late"), ("1", "greatest", "late"), ("1", "greatest", "dead")]
    else:
        cases = [(connections, priority, peer) for peer in ("late", "dead") for connections in ("", "1")
                 for priority in ("least", "greatest")]
    for case in cases:
        hold_one(run, *case)


def staged(run: Run) -> None:
    # Streams that wait for the host must not hold up those of other ranks, so each needs its own
    # queue. By default a device has 8. Ranks of several hosts join one by one, and may allocate while the
    # streams of others wait; part nccl has such hosts.
    run.figures["tests"] = gtest(run, "tests/gpu/staged_ranks", "staged", "*/local:-*TwoLevels*",
                                 CUDA_DEVICE_MAX_CONNECTIONS="32", ONEBIT_COLLECTIVE_TIMEOUT_MS="30000")


def nccl(run: Run) -> None:
    cases = "NcclRanksTest.*:NcclFailureTest.*:NcclJoinTest.*"
    few = ("NcclRanksTest.EveryCollective*:*OneExchange*:*Nonfinite*:*TwoLevels*:NcclFailureTest.*:NcclJoinTest.*")
    run.figures["tests_2_ranks"] = nccl_ranks(run, "nccl-2", 2, cases)
    run.figures["tests_4_ranks"] = nccl_ranks(run, "nccl-4", 4, few)
    run.figures["tests_3_ranks"] = nccl_ranks(run, "nccl-3", 3, "NcclRanksTest.*TwoLevels*")
    run.figures["tests_native_dense"] = nccl_ranks(run, "nccl-native", 2, "NcclNativeTest.*",
                                                   ONEBIT_NCCL_NATIVE_DENSE="1")
    gpus = min(len(run.machine["gpus"]), 8)
    if gpus > 1:
        run.figures[f"tests_{gpus}_gpus"] = nccl_ranks(run, f"nccl-{gpus}-gpus", gpus, cases,
                                                       is_shared=False)


def graph(run: Run) -> None:
    run.figures["tests"] = nccl_ranks(run, "graph", 2, "NcclGraphTest.*")


def torch(run: Run) -> None:
    """Two processes on one device. PyTorch is none of the project's dependencies, so it may be missing."""
    python = shutil.which(os.environ.get("TORCH_PYTHON", "python3"))
    if python is None:
        raise Skip("there is no python3: name one that has PyTorch with CUDA in TORCH_PYTHON")
    has_cuda = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    ended = run.ended(processes.run([python, "-c", has_cuda], run.environment, run.log("torch-found"), run.limit()))
    if ended.is_late:
        require(run, ended, "PyTorch's first look at CUDA")
    if ended.problem:
        raise Skip(f"{python} has no PyTorch with CUDA: name one that has in TORCH_PYTHON")
    # The modules are those of the sources, but for the one that is generated.
    package = run.logs / "torch-package" / "onebit"
    shutil.copytree(ROOT / "bindings/python/onebit", package, dirs_exist_ok=True)
    shutil.copy(run.build / "bindings/python/onebit/_native.py", package)
    environment = {**run.environment, "PYTHONPATH": str(package.parent),
                   "ONEBIT_LIBRARY": str(run.build / "src/libonebit.so.0")}
    command = [str(run.build / "perf/onebit_run"), "-n", "2", "--", python, "-B",
               str(ROOT / "tests/gpu/torch_ranks.py"), "cuda"]
    ended = run.ended(processes.run(command, environment, run.log("torch"), run.limit()))
    require(run, ended, "torch_ranks")
    found = re.search(r"^torch_ranks: (.*)$", ended.text(), re.MULTILINE)
    if found is None:
        raise Failure("torch_ranks printed no figures")
    run.figures |= json.loads(found[1])
    run.table.append(f"PyTorch {run.figures['torch']}, a step: " + ", ".join(
        f"{way} {run.figures[way]['step_ms']} ms" for way in ("dense", "fp4", "sign")))


def sanitizer(run: Run) -> None:
    """Not racecheck, which sees shared memory alone: the kernels use none."""
    program = machine.find_tool("compute-sanitizer")
    if program is None:
        raise Skip("there is no compute-sanitizer")
    pieces = "CudaPiecesTest.*"
    filters = {
        "memcheck": f"{pieces}:Cuda*Test.*:*InPlace*:*AnyAlignment*-CudaStageTest.*:CudaScaleTest.*",
        "synccheck": "CudaPiecesTest.*:CudaCheckTest.*",
        "initcheck": "CudaPiecesTest.*",
    }
    for tool, tests in filters.items():
        log = run.log(f"sanitizer-{tool}")
        log.unlink(missing_ok=True)
        wrapper = [program, "--tool", tool, "--error-exitcode", "86"]
        if tool == "memcheck":  # the library asks about pointers that CUDA need not know
            wrapper += ["--report-api-errors", "no"]
        try:
            run.figures[tool] = gtest(run, "tests/kernels/cuda_kernels_gpu_test", log.name, tests, wrapper,
                                      CUDA_TEST_EXACT_MEMORY="1")
        except Failure:
            if log.exists() and "Device not supported" in log.read_text(errors="replace"):
                raise Skip("compute-sanitizer does not support this device") from None
            raise
