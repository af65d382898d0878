# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Does 1-bit Adam learn like Adam, and is it the error feedback that does it?

    convergence_study.py TRAIN_TEXT [--steps N]

Trains the default model on the default text and compares held-out losses at equal steps, for three
seeds:

  * Adam against 1-bit Adam: within 2 %, in the mean and for every seed;
  * without error feedback (plain signs): at least 5 % worse than Adam, or diverged;
  * with error feedback on the workers' side only: misses the 2 %.

Prints a table; exits with 1 if one of these does not hold.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

SEEDS = (0, 1, 2)
CLOSE = 0.02
CLEARLY_WORSE = 0.05


def train(tool: str, *options: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        subprocess.run([tool, "--json", str(report), *options], check=True, stdout=subprocess.DEVNULL)
        return json.loads(report.read_text())


def loss_text(run: dict) -> str:
    if run["heldout_loss"] is None:
        return f"diverged at {run['diverged_at']}"
    return f"{run['heldout_loss']:.4f}"


def excess(run: dict, baseline: dict) -> float:
    """Returns how much worse a loss is, relative to the baseline; infinite if diverged."""
    if run["heldout_loss"] is None:
        return float("inf")
    return run["heldout_loss"] / baseline["heldout_loss"] - 1


def print_row(name: str, seed: int, run: dict, baseline: dict) -> None:
    seconds = run["seconds"]
    difference = f"{excess(run, baseline):+.2%}" if run is not baseline else ""
    print(f"{name:<28} {seed:>4}  {loss_text(run):>15}  {difference:>8}  "
          f"{run['bytes_sent_per_rank'] / 1e6:>9.1f}  {seconds['total']:>7.1f}  "
          f"{seconds['compute']:>7.1f}  {seconds['codec']:>6.1f}  {seconds['wire']:>6.1f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tool")
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()

    def run(seed: int, *options: str) -> dict:
        return train(arguments.tool, "--steps", str(arguments.steps), "--seed", str(seed), *options)

    print(f"{'optimizer':<28} seed    held-out loss      diff    MB sent  seconds  compute   codec    wire")
    adam, onebit, sign, one_sided = {}, {}, {}, {}
    for seed in SEEDS:
        adam[seed] = run(seed, "--optimizer", "adam")
        print_row("adam", seed, adam[seed], adam[seed])
        onebit[seed] = run(seed, "--optimizer", "onebit-adam", "--mode", "ef")
        print_row("1-bit adam", seed, onebit[seed], adam[seed])
        sign[seed] = run(seed, "--mode", "sign", "--scale", "l1")
        print_row("1-bit adam, plain sign l1", seed, sign[seed], adam[seed])
        one_sided[seed] = run(seed, "--no-server-residual")
        print_row("1-bit adam, one-sided", seed, one_sided[seed], adam[seed])

    differences = [excess(onebit[seed], adam[seed]) for seed in SEEDS]
    claims = {
        "1-bit Adam is within 2 % of Adam for every seed": max(map(abs, differences)) <= CLOSE,
        "1-bit Adam is within 2 % of Adam in the mean": abs(statistics.mean(differences)) <= CLOSE,
        "plain signs are at least 5 % worse for every seed":
            min(excess(sign[seed], adam[seed]) for seed in SEEDS) >= CLEARLY_WORSE,
        "one-sided error feedback misses the 2 % for every seed":
            min(excess(one_sided[seed], adam[seed]) for seed in SEEDS) > CLOSE,
    }
    print()
    for claim, holds in claims.items():
        print(f"{'holds' if holds else 'FAILS'}  {claim}")
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
