# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Prints what perf/quickstart measured: quickstart_report.py text|markdown BUILD_FOLDER OUT_FOLDER"""

import json
import pathlib
import sys

from machine_facts import compiler, cores, processor

SWEEP_COLUMNS = ["ranks", "tensor", "sent dense", "sent 1-bit", "ratio", "time dense", "time 1-bit",
                 "speed-up", "pays below"]
TRAINING_COLUMNS = ["ranks", "optimizer", "steps", "held-out loss", "sent per rank", "ratio", "compute",
                    "update", "codec", "wire", "total"]
TEXT_COLUMNS = 2  # of both; the others are figures


def machine(build: pathlib.Path) -> str:
    """Processor, cores and compiler, without which a time means nothing."""
    return f"{processor()}, {cores()} core{'s' if cores() > 1 else ''}, {compiler(build)}"


def size_text(count: float) -> str:
    """Bytes with a binary unit and three digits."""
    unit = 0
    while count >= 1024 and unit < 3:
        count, unit = count / 1024, unit + 1
    digits = 0 if unit == 0 or count >= 100 or count == int(count) else 1 if count >= 10 else 2
    return f"{count:.{digits}f} {('B', 'KiB', 'MiB', 'GiB')[unit]}"


FASTEST_LINK_GIGABITS = 1000  # beyond it the difference of the times is noise


def break_even(dense_s: float, ef_s: float, dense_bytes: int, ef_bytes: int) -> str:
    """The link speed per rank at which both take equally long: time on this machine plus bytes / speed."""
    if ef_s <= dense_s:
        return "any link"
    gigabits = 8e-9 * (dense_bytes - ef_bytes) / (ef_s - dense_s)
    if gigabits > FASTEST_LINK_GIGABITS:
        return "any link"
    return f"{gigabits:.2g} Gbit/s" if gigabits < 10 else f"{gigabits:.0f} Gbit/s"


def ranks_text(report: dict) -> str:
    """Describes the ranks: processes of a launcher, or threads of one process."""
    first = report["results"][0] if "results" in report else report
    return f"{first['nranks']} {'threads' if first['transport'] == 'local' else 'processes'}"


def sweep_rows(dense: dict, ef: dict) -> list[list[str]]:
    rows = []
    for dense_row, ef_row in zip(dense["results"], ef["results"], strict=True):
        sent_dense, sent_ef = dense_row["wire_bytes"], ef_row["wire_bytes"]
        ef_us = ef_row["out_of_place"]["time"]
        dense_us = ef_us * ef_row["speedup_vs_dense"]  # both measured in the same run
        rows.append([ranks_text(ef), size_text(ef_row["size"]), size_text(sent_dense),
                     size_text(sent_ef), f"{sent_dense / sent_ef:.1f}x", f"{dense_us / 1e3:.2f} ms",
                     f"{ef_us / 1e3:.2f} ms", f"{dense_us / ef_us:.2f}x",
                     break_even(dense_us * 1e-6, ef_us * 1e-6, sent_dense, sent_ef)])
    return rows


def hosts_row(compared: dict) -> list[str]:
    """Of two hosts whose ranks share their links: what perf/compare measured of dense calls and of one bit."""
    dense, ef = compared["results"]
    rate = ef["rate_bits_per_second"] / 1e9
    return [f"{ef['hosts']} hosts x {ef['ranks_per_host']}, {rate:g} Gbit/s", size_text(ef["size"]),
            size_text(dense["link_bytes"]), size_text(ef["link_bytes"]),
            f"{dense['link_bytes'] / ef['link_bytes']:.1f}x", f"{dense['time_us'] / 1e3:.2f} ms",
            f"{ef['time_us'] / 1e3:.2f} ms", f"{dense['time_us'] / ef['time_us']:.2f}x", "-"]


def training_rows(runs: list[dict]) -> list[list[str]]:
    rows = []
    for run in runs:
        loss, seconds = run["heldout_loss"], run["seconds"]
        digits = 2 if seconds["total"] >= 1 else 3
        rows.append([ranks_text(run), run["optimizer"], str(len(run["steps"])),
                     f"diverged at step {run['diverged_at']}" if loss is None else f"{loss:.3f}",
                     size_text(run["bytes_sent_per_rank"]),
                     f"{runs[0]['bytes_sent_per_rank'] / run['bytes_sent_per_rank']:.1f}x"]
                    + [f"{seconds[part]:.{digits}f} s" for part in ("compute", "optimizer", "codec", "wire", "total")])
    return rows


def print_table(rows: list[list[str]], style: str) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for index, row in enumerate(rows):
        cells = [cell.ljust(width) if column < TEXT_COLUMNS else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        print(f"| {' | '.join(cells)} |" if style == "markdown" else "  ".join(cells))
        if index == 0:
            rule = ["-" * width if column < TEXT_COLUMNS else "-" * (width - 1) + ":"
                    for column, width in enumerate(widths)]
            print(f"| {' | '.join(rule)} |" if style == "markdown" else "-" * len("  ".join(cells)))


def main() -> None:
    style, build, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    read = lambda name: json.loads((out / f"{name}.json").read_text())
    kinds = [kind for kind in ("threads", "processes") if (out / f"sweep-{kind}-ef.json").exists()]
    sweep, training = [SWEEP_COLUMNS], [TRAINING_COLUMNS]
    for kind in kinds:
        sweep += sweep_rows(read(f"sweep-{kind}-dense"), read(f"sweep-{kind}-ef"))
        training += training_rows([read(f"train-{kind}-adam"), read(f"train-{kind}-onebit-adam")])
    has_hosts = (out / "hosts.json").exists()
    if has_hosts:
        sweep.append(hosts_row(read("hosts")))
    ranks = read("sweep-threads-ef")["results"][0]["nranks"]
    processes = "processes (socket)" if "processes" in kinds else "no processes: they did not start"

    print(f"{machine(build)}; {ranks} ranks of one host: threads (transport local), {processes}\n")
    print("Allreduce of fp32, full precision against one bit with error feedback:\n")
    print_table(sweep, style)
    print("\nTraining a byte-level language model on text, Adam against 1-bit Adam:\n")
    print_table(training, style)
    print("\nBytes sent are those of one rank. \"pays below\": link speed per rank under which one bit is faster,"
          "\nestimated as the time here plus bytes over link speed; \"any link\": it was no slower here."
          "\n\"compute\": forward and backward pass. \"update\": the optimizer, without its collectives. Time in"
          "\ncollectives: \"codec\", which compresses, adds and decodes, and \"wire\", which sends, receives and waits."
          "\n\"total\": all of it, and what lies between. 1-bit Adam is dense until its variance is frozen.")
    if has_hosts:
        print("The hosts are network namespaces of perf/lab. Their ranks share a link of this rate: times are those over"
              "\nit, and bytes those on the link of one host.")


main()
