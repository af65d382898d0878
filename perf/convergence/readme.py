# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The README.md of a study: what was trained, tables, and whether the losses are close."""

from __future__ import annotations

import shlex
import textwrap

from convergence.results import CLOSE, OPTIMIZERS, Study, compressed_calls
from reporting.markdown import table

WIDTH = 105

HEAD = """<!-- SPDX-FileCopyrightText: The onebit authors
     SPDX-License-Identifier: Apache-2.0 -->
# Do compressed optimizers learn what dense ones do?

Written by `perf/convergence/run`, which trains every optimizer of `train_text` with the same model, text,
seeds and number of steps, and needs no network: ranks are threads. Run it again with

```sh
./perf/convergence/run
```

`./perf/convergence/run --check` compares this file and the charts with `results.json`.
"""

READING = """A step of 0/1 Adam may be dense and 1-bit at once; "1-bit" has its last sync, too, which is no step.
"sent" is what rank 0 handed to its transport in all steps and in the sync that ends a run of
0/1 Adam, headers and scales included. It equals, to the byte, what follows from the kinds of the steps by the
formulas of `perf/common/wire.h`; `run` fails otherwise. "formula" leaves headers and scales out: F bits for
every dense round and 1 for every compressed one, in the two exchanges of an allreduce, 2(n-1)/n, over all
steps; F is 32 here, as gradients are fp32. Published figures have F = 16, and so half of the dense share.
"""

RATES = ("Learning rates are the defaults of train_text: for Adam and for LAMB the best of three for the dense "
         "optimizer; 1-bit LAMB diverges at dense LAMB's, unless --factor-max is 1, and has the one below.")

CURVES = """![held-out loss against steps](loss-steps.svg)

![held-out loss against bytes sent by a rank](loss-bytes.svg)

Means over the seeds, evaluated every 5 % of the steps. In the middle of an interval of 0/1 Adam each rank
evaluates its share of the held-out text with its own parameters.
"""


def _loss(loss: float | None, run: dict | None = None) -> str:
    if loss is not None:
        return f"{loss:.4f}"
    return "diverged" if run is None else f"diverged at {run['diverged_at']}"


def _loss_table(study: Study) -> list[str]:
    rows = [["optimizer", "learning rate", *(f"seed {seed}" for seed in study.seeds), "mean",
             "against dense"]]
    for name in study.optimizers:
        runs = study.runs(name)
        excess = study.mean_excess(name)
        against = "" if name == OPTIMIZERS[name] or excess is None else f"{excess:+.2%}"
        rows.append([name, f"{runs[0]['config']['lr']:g}",
                     *(_loss(run["heldout_loss"], run) for run in runs), _loss(study.mean_loss(name)),
                     against])
    return table(rows, 1)


def _bytes_table(study: Study) -> list[str]:
    rows = [["optimizer", "rounds", "dense", "1-bit", "local", "sent", "by formula", "dense sends",
             "bits counted", "formula"]]
    for name in study.optimizers:
        run = study.runs(name)[0]
        dense = study.runs(OPTIMIZERS[name])
        ratio = f"{dense[0]['bytes_sent_per_rank'] / run['bytes_sent_per_rank']:.2f}x" if dense else ""
        rows.append([name, str(run["rounds"]), str(run["dense_steps"]), str(compressed_calls(run)),
                     str(run["local_steps"]), f"{run['bytes_sent_per_rank']} B",
                     "-" if run["bytes_expected"] is None else f"{run['bytes_expected']} B", ratio,
                     f"{study.counted_bits(run):.3f}", f"{study.formula_bits(run):.3f}"])
    return table(rows, 1)


def _setting(study: Study) -> list[str]:
    results, config = study.results, study.results["runs"][0]["config"]
    extra = f", with {shlex.join(results['training_options'])}" if results["training_options"] else ""
    return textwrap.wrap(
        f"{results['parameters']} parameters, {results['steps']} steps, {results['ranks']} ranks x batch "
        f"{config['batch']}, beta2 {config['beta2']:g}, {config['warmup']} steps of learning-rate warm-up, "
        f"then half a cosine{extra}; text of {results['text']['bytes']} bytes (FNV-1a "
        f"{results['text']['fnv1a']}), of which {results['text']['heldout_bytes']} are held out. "
        f"{results['machine']['cpu']}, {results['machine']['compiler']}. {RATES}", WIDTH,
        break_on_hyphens=False)


def _claims(study: Study) -> list[str]:
    lines = []
    for name in study.compressed():
        excess = study.mean_excess(name)
        holds = excess is not None and abs(excess) <= CLOSE
        lines.append(f"* {name} {'is' if holds else 'is NOT'} within {CLOSE:.0%} of {OPTIMIZERS[name]}, in the "
                     f"mean over {len(study.seeds)} seeds.")
    return lines


def readme(study: Study) -> str:
    return "\n".join([
        HEAD, *_setting(study), "", "Held-out loss, nats per byte:", "", *_loss_table(study), "",
        *_claims(study), "", f"Rounds and bytes of rank 0, seed {study.seeds[0]}:", "", *_bytes_table(study),
        "", READING, CURVES])
