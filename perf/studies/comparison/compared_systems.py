# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The systems that are compared, and the command lines that run them.

With more ranks than cores a rank that waits must let the others run: Open MPI and MPICH are told so. In
the lab they could not know by themselves that all hosts share the cores of one machine. MPICH's rendezvous
over TCP is left out in the lab: with it 1 MiB took four times as long.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import pathlib
import shlex

from comparison.links import Cell


DEFAULT_BUILD = pathlib.Path("build/release")
NEW_FOLDER = "NEW_FOLDER"  # stands in commands that are shown for a folder of each run's own


@dataclasses.dataclass(frozen=True)
class Checkout:
    """The facts about this machine and checkout that commands need."""

    root: pathlib.Path   # of the checkout; commands run there
    build: pathlib.Path  # with the tools, absolute or relative to root
    cores: int
    is_root: bool

    def tool(self, name: str) -> str:
        """The path of a program of the build."""
        return str(self.build / "perf" / name)


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of one command: its report, the lab's counters, and a folder in which ranks meet."""

    report: pathlib.Path
    lab: pathlib.Path
    store: pathlib.Path


# The largest error of a call relative to the exact sum. Sums in fp32 are good to 1e-7. With one bit and a scale 0.7
# to 0.95 was seen, and signs unrelated to the tensor would give 1.4; codes of four bits lose 0.15 in each of two
# exchanges.
MAX_DENSE_ERROR, MAX_ONE_BIT_ERROR, MAX_FOUR_BIT_ERROR = 1e-5, 1.2, 0.5


class Route(enum.Enum):
    """The way of large tensors where hosts have several ranks. It decides how often a host's link carries them."""

    TWO_LEVELS = "inside hosts and then between them, or by halves from neighbours on, as Open MPI's default"
    RING = "around all ranks, host by host"
    FLAT = "from every rank to every other"


@dataclasses.dataclass(frozen=True)
class System:
    """One row of the table below."""

    name: str
    launcher: str  # onebit, openmpi, mpich or gloo
    program: str   # in the perf folder of the build
    package: str   # what a build without the program lacks
    route: Route
    options: tuple[str, ...] = ()      # of the program
    mpi_options: tuple[str, ...] = ()  # of its launcher
    element_bits: float = 32  # sent for each element, with its share of scales and headers
    max_error: float = MAX_DENSE_ERROR

    @property
    def is_dense(self) -> bool:
        """True if it sends full precision."""
        return self.element_bits == 32

    @property
    def may_hang(self) -> bool:
        """True if the program may hang after its work is done; see runner.py."""
        return self.launcher == "mpich"


BASELINES = "studies/baselines/"
RING = ("--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "4")
SYSTEMS = {system.name: system for system in (
    System("openmpi", "openmpi", BASELINES + "allreduce_openmpi", "libopenmpi-dev, openmpi-bin", Route.TWO_LEVELS),
    System("openmpi-ring", "openmpi", BASELINES + "allreduce_openmpi", "libopenmpi-dev, openmpi-bin", Route.RING,
           mpi_options=RING),
    System("mpich", "mpich", BASELINES + "allreduce_mpich", "libmpich-dev, mpich", Route.TWO_LEVELS),
    System("gloo", "gloo", BASELINES + "allreduce_gloo", "libgloo-dev", Route.RING),
    System("multipass", "openmpi", BASELINES + "allreduce_multipass", "libopenmpi-dev, openmpi-bin", Route.FLAT,
           element_bits=1.03, max_error=MAX_ONE_BIT_ERROR),
    System("onebit-dense", "onebit", "all_reduce_perf", "libcli11-dev, nlohmann-json3-dev", Route.TWO_LEVELS),
    System("onebit-ef", "onebit", "all_reduce_perf", "libcli11-dev, nlohmann-json3-dev", Route.TWO_LEVELS,
           options=("--mode", "ef", "--no-dense"), element_bits=1.03, max_error=MAX_ONE_BIT_ERROR),
    System("onebit-fp4", "onebit", "all_reduce_perf", "libcli11-dev, nlohmann-json3-dev", Route.TWO_LEVELS,
           options=("--codec", "fp4", "--no-dense"), element_bits=4.15, max_error=MAX_FOUR_BIT_ERROR),
)}


def command(system: System, cell: Cell, sweep: list[str], checkout: Checkout, files: Files | None) -> list[str]:
    """The command that runs a sweep of the system with the flags `sweep`. Without files it writes no
    report, as a reader would run it."""
    program = [checkout.tool(system.program), *sweep, *system.options]
    if system.launcher == "gloo":
        program += ["--interface", "lo" if cell.link.rate is None else "eth0"]
        program += ["--store", str(files.store) if files else NEW_FOLDER]
    if files:
        program += ["-J", str(files.report)]
    launch = _on_one_host if cell.link.rate is None else _on_the_lab
    return launch(system, cell, program, checkout, files)


def shell_text(arguments: list[str]) -> str:
    """A command without files, for a reader to paste into a shell."""
    return " ".join('"$(mktemp -d)"' if argument == NEW_FOLDER else shlex.quote(argument)
                    for argument in arguments)


def _on_one_host(system: System, cell: Cell, program: list[str], checkout: Checkout,
                 _: Files | None) -> list[str]:
    ranks = str(cell.ranks)
    if system.launcher == "onebit":
        return [program[0], "--procs", ranks, *program[1:]]
    if system.launcher == "gloo":
        return [checkout.tool("onebit_run"), "-n", ranks, *program]
    if system.launcher == "mpich":
        return ["mpirun.mpich", *_polite(system, cell, checkout), "-n", ranks, *program]
    as_root = ["--allow-run-as-root"] if checkout.is_root else []
    return ["mpirun.openmpi", *as_root, "--oversubscribe", "--bind-to", "none",
            *_polite(system, cell, checkout), *system.mpi_options, "-n", ranks, *program]


def _on_the_lab(system: System, cell: Cell, program: list[str], checkout: Checkout,
                files: Files | None) -> list[str]:
    several = ["--ranks-per-host", str(cell.ranks_per_host)] if cell.ranks_per_host > 1 else []
    lab = ["--hosts", str(cell.hosts), *several, "--rate", cell.link.rate, *lab_build(checkout)]
    if files:
        lab += ["--json", str(files.lab)]
    if system.launcher in ("onebit", "gloo"):
        transport = ["--transport", "socket"] if system.launcher == "onebit" else []
        return ["perf/lab", "run", *lab, "--", *program, *transport]
    arguments = [*_polite(system, cell, checkout), *system.mpi_options]
    if system.launcher == "mpich":
        arguments += ["-genv", "UCX_RNDV_THRESH", "inf"]
    return ["perf/lab", "mpirun", "--mpi", system.launcher, *lab,
            *(f"--mpi-arg={argument}" for argument in arguments), "--", *program]


def lab_build(checkout: Checkout) -> list[str]:
    """The option of perf/lab that names the build: without it, one that is installed comes first."""
    return ["--build", str(checkout.build)]


def _polite(system: System, cell: Cell, checkout: Checkout) -> list[str]:
    """Flags that make a waiting rank yield to the others on shared cores."""
    if cell.ranks <= checkout.cores:
        return []
    if system.launcher == "openmpi":
        return ["--mca", "mpi_yield_when_idle", "1"]
    return ["-genv", "MPIR_CVAR_POLLS_BEFORE_YIELD", "1"]


def missing(system: System, checkout: Checkout) -> str | None:
    """Why the system cannot be run, or None if it can."""
    path = checkout.root / checkout.tool(system.program)
    if os.access(path, os.X_OK):
        return None
    studies = " with -DONEBIT_BUILD_STUDIES=ON" if system.program.startswith(BASELINES) else ""
    return f"{checkout.tool(system.program)} is not built: install {system.package}, then build everything{studies}"
