# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The runs of the study, in results.json, and the README.md that is made of them."""

from __future__ import annotations

import json
import math
import pathlib
import statistics
import sys
import textwrap

from reporting.markdown import table

FILE, README = "results.json", "README.md"
# Ways to average, if not by the hook with a codec: DDP over Gloo; none, though DDP has its buckets; 1-bit Adam.
DENSE, NOTHING, ONEBIT_ADAM = "dense", "nothing", "onebit-adam"
# Bits of an element, elements that share a scale, and bytes of a scale.
CODECS = {"fp4": (4, 128, 2), "int8": (8, 256, 2), "int2": (2, 4096, 2), "sign": (1, 4096, 4)}
AVERAGES = (DENSE, ONEBIT_ADAM, *CODECS)
# Those of models that are sharded inside of hosts: fully_shard over Gloo, compress_replicas, the backend onebit.
HSDP, HSDP_FP4, HSDP_BACKEND = SHARDED = ("hsdp", "hsdp-fp4", "hsdp-backend")
# Hosts of the parts that take a lab.
HOSTS = {"lab": 4, "hsdp": 2}
NAMES = {DENSE: "DDP over Gloo, AdamW", NOTHING: "DDP with a hook that sends nothing, AdamW",
         ONEBIT_ADAM: "1-bit Adam after the freeze", HSDP: "HSDP over Gloo",
         HSDP_FP4: "`compress_replicas`, fp4", HSDP_BACKEND: "HSDP, backend onebit, int8",
         **{codec: f"DDP with onebit's hook, {codec}, AdamW" for codec in CODECS}}

HEAD = """<!-- SPDX-FileCopyrightText: The onebit authors
     SPDX-License-Identifier: Apache-2.0 -->
# A GPT under DistributedDataParallel and HSDP

Written by `perf/studies/ddp/study`, which trains the GPT of `bindings/python/examples` by torchrun. PyTorch's
DistributedDataParallel over Gloo is compared with the same program plus one line, the hook of
`onebit.torch`, and with 1-bit Adam, which averages by itself; and HSDP, `fully_shard` with replicas across hosts,
with `compress_replicas` and with the backend `onebit`. Run it again with

```sh
perf/studies/ddp/study learn --python PYTHON   # one with PyTorch and onebit
perf/studies/ddp/study lab --python PYTHON     # as root
perf/studies/ddp/study hsdp --python PYTHON    # as root; PyTorch 2.14 or newer
```
"""


class Results:
    """The runs of one part of a study, `learn`, `lab` or `hsdp`."""

    def __init__(self, folder: pathlib.Path, part: str, contents: dict):
        self._folder = folder
        self._part = part
        self._contents = contents

    @classmethod
    def read(cls, folder: pathlib.Path, part: str, setting: dict) -> Results:
        """The runs so far. Ends the program if they had another setting."""
        contents = read_file(folder)
        former = contents.setdefault(part, {"setting": setting, "runs": []})["setting"]
        if former != setting:
            sys.exit(f"{folder / FILE} has runs with {former}, not {setting}: remove it, or give --out")
        return cls(folder, part, contents)

    def averages_of(self, seed: int) -> list:
        """The ways to average of which there is a run."""
        return [run["average"] for run in self._runs() if run["seed"] == seed]

    def add(self, runs: list) -> None:
        """Takes runs over, in the place of former ones, and writes the file: a line for each run."""
        if self._part == "learn":  # ranks shared the cores with whatever else ran
            runs = [{name: value for name, value in run.items() if not name.endswith("seconds")} for run in runs]
        added = [(run["average"], run["seed"]) for run in runs]
        kept = [run for run in self._runs() if (run["average"], run["seed"]) not in added]
        self._contents[self._part]["runs"] = kept + runs
        parts = []
        for name, part in self._contents.items():
            runs = ",\n".join(json.dumps(each) for each in part["runs"])
            parts.append(f'"{name}": {{"setting": {json.dumps(part["setting"])},\n"runs": [\n{runs}]}}')
        (self._folder / FILE).write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")

    def _runs(self) -> list:
        return self._contents[self._part]["runs"]

    @staticmethod
    def write_readme(folder: pathlib.Path) -> None:
        """Writes README.md."""
        (folder / README).write_text(readme(read_file(folder)), encoding="utf-8")


def read_file(folder: pathlib.Path) -> dict:
    """What results.json has; nothing if there is none."""
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def readme(contents: dict) -> str:
    """The text of README.md."""
    text = HEAD
    if _has(contents, "learn", DENSE):
        text += "\n## Learning\n\n" + _setting(contents["learn"]) + _learning(contents["learn"])
    if _has(contents, "lab", DENSE, NOTHING):
        text += "\n## Waiting\n\n" + _setting(contents["lab"]) + _waiting(contents["lab"])
    if _has(contents, "hsdp", HSDP):
        text += "\n## Sharded inside of hosts\n\n" + _setting(contents["hsdp"]) + _sharded(contents["hsdp"])
    return text


def _has(contents: dict, name: str, *averages: str) -> bool:
    """Tells if a part has the runs that others are compared with."""
    return name in contents and set(averages) <= {run["average"] for run in contents[name]["runs"]}


def _setting(part: dict) -> str:
    run, setting = part["runs"][0], part["setting"]
    parameters = sum(run["matrices"]) + sum(run["vectors"])
    freeze = f"; 1-bit Adam freezes at step {setting['freeze_step']}" if setting["freeze_step"] else ""
    return _filled(f"{parameters} parameters (width {setting['width']}, {setting['layers']} layers), "
            f"{setting['ranks']} ranks x {setting['batch']} sequences of {setting['context']} bytes, "
            f"{setting['steps']} steps at rate {setting['lr']:g}, clipped at norm 1{freeze}. "
            f"PyTorch {run['torch']}, {setting['cpu']}.") + "\n"


def _by_average(runs: list) -> dict:
    found: dict = {}
    for run in runs:
        found.setdefault(run["average"], {})[run["seed"]] = run
    return found


def _losses(found: dict, dense: dict) -> list:
    """Cells of a way to average: losses with each seed, and how they differ from those in full precision."""
    seeds = sorted(dense)
    losses = {seed: run["held_out_loss"] for seed, run in found.items()}
    paired = [losses[seed] / dense[seed]["held_out_loss"] - 1 for seed in seeds if seed in found]
    return [*(f"{losses[seed]:.4f}" if seed in found else "" for seed in seeds),
            "" if found is dense else mean_with_error(paired)]


def _about_losses(runs: list, against: str) -> str:
    alike, steps = (sum(run[name] for run in runs) for name in ("steps_alike", "steps"))
    return (f"Losses are nats per byte on held-out text. \"{against}\" is the mean of the differences of runs with the "
            "same seed, and its standard error. Parameters were equal on all ranks, byte for byte, after "
            f"{alike} of {steps} steps.")


def _learning(part: dict) -> str:
    by_average = _by_average(part["runs"])
    dense = by_average[DENSE]
    rows = [["", *(f"seed {seed}" for seed in sorted(dense)), "against dense", "bytes", "by formula"]]
    for average, found in by_average.items():
        run = next(iter(found.values()))
        rows.append([NAMES[average], *_losses(found, dense), "" if found is dense else str(run["bytes_of_last_step"]),
                     str(wire_bytes(run, average, part["setting"]["ranks"]))])
    return _lines(rows) + _filled(
            _about_losses(part["runs"], "against dense") + " \"bytes\" are what rank 0 sent in the last step, headers "
            "included; \"by formula\" counts codes, scales, and vectors in full precision.")


def _first_timed(part: dict) -> int:
    """Earlier steps set up buckets, send full precision, or come before the freeze."""
    return part["setting"]["freeze_step"] + 2


def _median(found: dict, name: str, first: int) -> float:
    return statistics.median(sum((run[name][first:] for run in found.values()), []))


def _sharded(part: dict) -> str:
    by_average, first = _by_average(part["runs"]), _first_timed(part)
    dense = by_average[HSDP]
    seconds = {average: _median(found, "seconds", first) for average, found in by_average.items()}
    sent = {average: next(iter(found.values()))["bytes_of_last_step"] for average, found in by_average.items()}
    rows = [["", "a step, s", "of HSDP's", "bytes", "of HSDP's", *(f"seed {seed}" for seed in sorted(dense)),
             "against HSDP"]]
    for average, found in by_average.items():
        shares = [f"{seconds[average] / seconds[HSDP]:.2f}", f"1/{sent[HSDP] / sent[average]:.1f}"]
        shares = ["", ""] if found is dense else shares
        rows.append([NAMES[average], f"{seconds[average]:.3f}", shares[0], str(sent[average]), shares[1],
                     *_losses(found, dense)])
    hosts, ranks = HOSTS["hsdp"], part["setting"]["ranks"]
    return _lines(rows) + _filled(
            f"{hosts} hosts of `perf/lab` on one machine with {ranks // hosts} ranks each, links of "
            f"{part['setting']['rate']}. `fully_shard` shards the model inside of a host. The ways took turns, and a "
            "step is timed on its slowest rank: medians of all steps with all seeds, without the first "
            f"{first} of each. \"bytes\" are what the link of a host sent in the last step, headers included. "
            + _about_losses(part["runs"], "against HSDP"))


def _waiting(part: dict) -> str:
    by_average, first = _by_average(part["runs"]), _first_timed(part)

    def differences(average: str) -> list:
        """To the turn that sent nothing, within the same turn."""
        return [mine - nothing
                for seed, run in by_average[average].items()
                for mine, nothing in zip(run["seconds"][first:], by_average[NOTHING][seed]["seconds"][first:])]

    found = {average: differences(average) for average in by_average}
    exposed = {average: statistics.median(values) for average, values in found.items()}
    error = max(statistics.stdev(values) / math.sqrt(len(values)) for values in found.values())
    rows = [["", "a step, s", "after the backward pass, s", "exposed communication, s", "less than Gloo"]]
    for average in by_average:
        less = ""
        if average not in (NOTHING, DENSE):
            less = f"{exposed[DENSE] / exposed[average]:.1f}x" if exposed[average] > 0 else "none is left"
        medians = [_median(by_average[average], name, first) for name in ("seconds", "update_seconds")]
        rows.append([NAMES[average], *(f"{median:.3f}" for median in medians),
                     "" if average == NOTHING else f"{exposed[average]:.3f}", less])
    dense_bits = 8 * wire_bytes(part["runs"][0], DENSE, part["setting"]["ranks"])
    return _lines(rows) + _filled(
            f"Hosts of `perf/lab` on one machine, links of {part['setting']['rate']}, medians of the "
            f"steps from {first} on with seeds {', '.join(map(str, by_average[DENSE]))}, which took turns, each timed "
            "on its slowest rank. Exposed communication is how much longer a step takes than with a hook that sends "
            "nothing, the median of the differences within a turn; the standard error of their mean is "
            f"{error:.3f} s at most. 1-bit Adam sends and computes all of its step after the backward pass; where that "
            "takes less than AdamW's clipping and step, and DDP's copies, nothing is exposed. "
            f"For the dense average alone a link of 1 Gbit/s needs {dense_bits / 1e9:.3f} s.")


def mean_with_error(values: list) -> str:
    """A mean in percent, with its standard error if there are several values."""
    mean = f"{100 * statistics.mean(values):+.2f}"
    if len(values) < 2:
        return mean + " %"
    return f"{mean} ± {100 * statistics.stdev(values) / math.sqrt(len(values)):.2f} %"


def wire_bytes(run: dict, average: str, ranks: int) -> int:
    """What a rank sends for the gradients of a step, without headers."""
    codec = CODECS.get("sign" if average == ONEBIT_ADAM else average, (32, 1, 0))
    vectors = CODECS["sign"] if average == ONEBIT_ADAM else (32, 1, 0)
    total = sum(_packed(count, codec) for count in run["matrices"])
    total += sum(_packed(count, vectors) for count in run["vectors"])
    return round(2 * (ranks - 1) / ranks * total)


def _packed(count: int, codec: tuple) -> float:
    bits, block, scale_bytes = codec
    return count * bits / 8 + math.ceil(count / block) * scale_bytes


def _lines(rows: list) -> str:
    return "\n".join([*table(rows, text_columns=1), "", ""])


def _filled(text: str) -> str:
    return textwrap.fill(text, 115, break_on_hyphens=False) + "\n"
