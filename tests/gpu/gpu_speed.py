# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of tests/gpu/run that measure: kernels against a copy, and calls over sizes."""

import json

import processes
from gpu_parts import Failure, Run, nccl_environment, rank_variables, require

# The least share of the speed of a copy on the device, for kernels whose speed is promised.
CODEC_LIMITS = {
    "EfCompress/fp32/block4096": 0.9,
    "Decode/fp32": 0.85,
    "DecodeAverage/ranks8": 0.8,
}
CODEC_TRIES = 3


def measure_kernels(run: Run, log_name: str, names: str, rows: dict[str, dict]) -> None:
    """Runs the benchmarks that `names` matches, and keeps the best row of each in `rows`."""
    log = run.log(f"{log_name}.json")
    command = [str(run.build / "perf/codec_perf"), "--device", "cuda", "--benchmark_min_time=0.1",
               "--benchmark_out_format=json", f"--benchmark_out={log}", f"--benchmark_filter={names}"]
    ended = run.ended(processes.run(command, run.environment, run.log(log_name), run.limit()))
    require(run, ended, "codec_perf")
    for row in json.loads(log.read_text())["benchmarks"]:
        if "ceiling_share" not in row:
            run.problems.append(f"{row['name']}: {row.get('error_message', 'not measured')}")
            continue
        best = rows.setdefault(row["name"], row)
        if row["ceiling_share"] > best["ceiling_share"]:
            rows[row["name"]] = row


def codec(run: Run) -> None:
    """Kernels with a limit come first, and once more at the end if they missed it, so that whatever stops
    this part on its way leaves the figures that matter most."""
    rows: dict[str, dict] = {}

    def missed() -> list[str]:
        return [name for name, least in CODEC_LIMITS.items()
                if name not in rows or rows[name]["ceiling_share"] < least]

    def any_of(names: list[str]) -> str:
        return f"^({'|'.join(names)})$"

    try:
        measure_kernels(run, "codec-limits", any_of(list(CODEC_LIMITS)), rows)
        measure_kernels(run, "codec-others", "-" + any_of(list(CODEC_LIMITS)), rows)
        for retry in range(1, CODEC_TRIES):
            if missed():
                measure_kernels(run, f"codec-retry-{retry}", any_of(missed()), rows)
    finally:
        run.figures |= {"shares": {name: row["ceiling_share"] for name, row in rows.items()},
                        "gbps": {name: row["gbps"] for name, row in rows.items()},
                        "copy_gbps": max((row["copy_gbps"] for row in rows.values()), default=None),
                        "limits": CODEC_LIMITS}
        for name, row in rows.items():
            limit = f", limit {CODEC_LIMITS[name]}" if name in CODEC_LIMITS else ""
            run.table.append(f"{name:34} {row['gbps']:8.1f} GB/s {row['ceiling_share']:6.3f} of a copy{limit}")
        for name in missed():
            share = f"{rows[name]['ceiling_share']:.3f}" if name in rows else "no figure"
            run.problems.append(f"{name}: {share} of a copy, not {CODEC_LIMITS[name]}")


# Results are checked up to a size at which the scalar model still takes a second.
SWEEPS = {
    "small": ["-b", "4K", "-e", "16M", "-f", "4", "-n", "50", "-c", "1"],
    "large": ["-b", "64M", "-e", "256M", "-f", "4", "-n", "10", "-c", "0"],
}
QUICK_SWEEPS = {
    "small": ["-b", "4K", "-e", "16M", "-f", "16", "-n", "20", "-c", "1"],
    "large": ["-b", "256M", "-e", "256M", "-n", "5", "-c", "0"],
}


def sweep_rows(run: Run, transport: str, name: str, sizes: list[str]) -> list[dict]:
    """Two ranks, a process each, with compressed and dense calls in turns. Rank 0 counts launches. A wrong
    result fails the program."""
    report, counts = run.log(f"{name}.json"), run.log(f"{name}.launches")
    report.unlink(missing_ok=True)
    counts.unlink(missing_ok=True)
    command = [str(run.build / "perf/all_reduce_perf"), "--device", "cuda", "--transport", transport,
               "--mode", "ef", "--no-in-place", "--row-seconds", "1", "-w", "2", *sizes, "-J", str(report)]
    counter = {"LD_PRELOAD": str(run.build / "tests/gpu/launch_counter.so"),
               "LAUNCH_COUNTER_OUTPUT": str(counts)}
    variables = rank_variables(is_shared=True) if transport == "nccl" else lambda rank: {}
    environment = nccl_environment(run) if transport == "nccl" else run.environment
    ended = run.ended(processes.run_ranks(2, command, environment, run.log(name), run.limit(),
                                          lambda rank: {**variables(rank), **(counter if rank == 0 else {})}))
    require(run, ended, name)
    launches = {(line["mode"], line["bytes"]): line
                for line in map(json.loads, counts.read_text().splitlines())}
    rows = []
    for row in json.loads(report.read_text())["results"]:
        us = row["out_of_place"]["time"]
        ef, dense = launches["compressed", row["size"]], launches["dense", row["size"]]
        rows.append({"bytes": row["size"], "ef_us": us,
                     "dense_us": us * row["speedup_vs_dense"],
                     "ef_kernels": ef["kernels"], "ef_others": ef["other_operations"],
                     "ef_host_us": ef["host_us"], "dense_kernels": dense["kernels"],
                     "dense_others": dense["other_operations"], "dense_host_us": dense["host_us"]})
    if not rows:
        raise Failure(f"{name}: no row")
    return rows


def sweep(run: Run) -> None:
    run.table.append("Two ranks on one GPU: times of a call; kernels and other operations that the library "
                     "enqueues for it, counted")
    run.table.append("in cuLaunchKernel and others by a preloaded library (NCCL's own are not); and the time "
                     "in which the call returns.")
    run.table.append(f"{'':6} {'bytes':>10} {'ef us':>10} {'kernels':>8} {'others':>7} {'host us':>8} "
                     f"{'dense us':>10} {'kernels':>8} {'others':>7} {'host us':>8}")
    for transport in ("socket", "nccl") if run.machine["nccl"] else ("socket",):
        for size, options in (QUICK_SWEEPS if run.is_quick else SWEEPS).items():
            rows = sweep_rows(run, transport, f"sweep-{transport}-{size}", options)
            run.figures.setdefault(transport, []).extend(rows)
            for row in rows:
                run.table.append(
                    f"{transport:6} {row['bytes']:10} {row['ef_us']:10.1f} {row['ef_kernels']:8} "
                    f"{row['ef_others']:7} {row['ef_host_us']:8.1f} {row['dense_us']:10.1f} "
                    f"{row['dense_kernels']:8} {row['dense_others']:7} {row['dense_host_us']:8.1f}")
