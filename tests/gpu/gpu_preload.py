# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The part of tests/gpu/run for the interposer and the drop-in: a program of NCCL with and without them."""

import json
import re

import processes
from gpu_parts import Failure, Run, nccl_environment, rank_variables, require

INTERPOSER = "src/libonebit-nccl-preload.so"
DROP_IN = "src/onebit/nccl/libnccl.so.2"
WAYS = ("alone", "interposer", "drop-in")
CALLS = 3 * 40  # of preload_ranks

# An average of all ranks may be wrong by so much. Sums in another order differ by less, 4 bits per element by more.
MOST_EXACT = 1e-5
LEAST_COMPRESSED = 1e-3
MOST_COMPRESSED = 0.3
# Later calls make up for what earlier ones lost.
MOST_OF_MEAN = 0.05


def start(run: Run, way: str, ranks: int, is_shared: bool) -> list[dict]:
    """What each rank has found."""
    environment = nccl_environment(run)
    library = environment["ONEBIT_NCCL_LIB"]
    if way != "alone":
        environment |= {"ONEBIT_NCCL_RULES": "default", "ONEBIT_NCCL_STATS": "stderr"}
    if way == "interposer":
        environment["LD_PRELOAD"] = str(run.build / INTERPOSER)
    if way == "drop-in":
        library = str(run.build / DROP_IN)
    command = [str(run.build / "tests/gpu/preload_ranks"), library]
    ended = run.ended(processes.run_ranks(ranks, command, environment, run.log(f"preload-{ranks}-{way}"),
                                          run.limit(), rank_variables(is_shared)))
    what = f"{ranks} ranks, {way}"
    require(run, ended, what)
    rows = []
    for log in ended.logs:
        text = log.read_text(errors="replace")
        found = re.search(r"^preload_ranks: (\{.*\})$", text, re.MULTILINE)
        if found is None:
            raise Failure(f"{what}: preload_ranks printed no figures: {log.name}")
        rows.append(json.loads(found[1]) | {"calls": calls_in(text)})
        if way != "alone" and sum(rows[-1]["calls"].values()) != CALLS:
            run.problems.append(f"{what}: calls that were seen: {rows[-1]['calls']}, not {CALLS}: {log.name}")
    run.figures[f"{way}_{ranks}_ranks_ms"] = max(row["step_ms"] for row in rows)
    return rows


def calls_in(text: str) -> dict[str, int]:
    """The calls by outcome, in the table of ONEBIT_NCCL_STATS."""
    counts: dict[str, int] = {}
    for calls, outcome in re.findall(r"^\S+ +\d+  allreduce +float32 +(\d+) +\d+  (.*)$", text, re.MULTILINE):
        counts[outcome] = counts.get(outcome, 0) + int(calls)
    return counts


def one_rank(run: Run) -> None:
    """A communicator of one rank has nothing to compress: results are those of NCCL, bit by bit."""
    digests = {way: start(run, way, 1, False)[0]["digest"] for way in WAYS}
    run.problems += [f"1 rank: results of the {way} differ from NCCL's" for way in WAYS
                     if digests[way] != digests["alone"]]


def check_errors(run: Run, what: str, row: dict, is_compressed: bool) -> None:
    if row["exact_error"] > MOST_EXACT:
        run.problems.append(f"{what}: calls that nothing compresses miss by {row['exact_error']:.2g}")
    if not is_compressed:
        if row["last_error"] > MOST_EXACT:
            run.problems.append(f"{what}: NCCL misses by {row['last_error']:.2g}")
    elif not LEAST_COMPRESSED < row["last_error"] < MOST_COMPRESSED:
        run.problems.append(f"{what}: calls to be compressed miss by {row['last_error']:.2g}")
    elif row["mean_error"] > MOST_OF_MEAN:
        run.problems.append(f"{what}: the mean of compressed calls misses by {row['mean_error']:.2g}")


def several_ranks(run: Run, ranks: int, is_shared: bool) -> None:
    for way in WAYS:
        rows = start(run, way, ranks, is_shared)
        what = f"{ranks} ranks, {way}"
        if len({row["digest"] for row in rows}) > 1:
            run.problems.append(f"{what}: ranks have different results")
        check_errors(run, what, rows[0], way != "alone")
        run.table.append(f"{what}: {run.figures[f'{way}_{ranks}_ranks_ms']:.3f} ms a step, a compressed call "
                         f"misses by {rows[0]['last_error']:.2g}, their mean by {rows[0]['mean_error']:.2g}")


def preload(run: Run) -> None:
    one_rank(run)
    several_ranks(run, 2, is_shared=True)
    gpus = min(len(run.machine["gpus"]), 8)
    if gpus > 1:
        several_ranks(run, gpus, is_shared=False)
