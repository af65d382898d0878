# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What papers have published, where they measured it, and how a figure here follows from measured steps.

The profiles of BERT-Large are those of 1-bit Adam's paper (arXiv 2102.02888), for as many nodes as there are hosts
here. Its compressed stages and the whole runs are from DeepSpeed's post of 2020-09-09; 0/1 Adam is arXiv 2202.06009,
1-bit LAMB 2104.06069, Streaming DiLoCo 2501.18512, SparseLoCo as Covenant-72B ran it 2603.08163, and BytePS its
docs/gradient-compression.md.
"""

from __future__ import annotations

import dataclasses
from typing import Callable

from ethernet_lab.rates import FRAME_BYTES, SEGMENT_BYTES

DENSE, ONE_BIT, FP4, TOP_K = "full precision", "one bit", "fp4", "Top-k"
CODECS = {DENSE: None, ONE_BIT: {"codec": "sign"}, FP4: {"codec": "fp4", "mode": "plain"},
          TOP_K: {"codec": "topk", "block": 4096, "k": 64, "values": "two_magnitudes", "hops": 1, "ef_decay": 0.95}}


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The steps of a training, by what they send."""

    steps: int
    dense: int
    compressed: int
    rounds: int

    @classmethod
    def dense_share(cls, percent: int) -> Schedule:
        """A share of the steps in full precision, and the others compressed."""
        return cls(100, percent, 100 - percent, 100)


ALL_DENSE, ALL_COMPRESSED = Schedule.dense_share(100), Schedule.dense_share(0)
# Options of onebit_schedule for both phases of BERT-Large, with sequences of 128 and 512 tokens.
ADAM_PHASES = ("--algorithm onebit-adam --freeze-step 23000 --steps 1:152000",
               "--algorithm onebit-adam --freeze-step 1500 --steps 1:10000")
LAMB_PHASES = ("--algorithm onebit-lamb --freeze-step 1000 --steps 1:5993",
               "--algorithm onebit-lamb --freeze-step 107 --steps 1:555")
ZERO_ONE_PHASES = ("--algorithm zero-one-adam --var-freeze-step 12500 --steps 0:161999",)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A model and a network. Here the model is `shrink` times smaller and the link as many times slower, so that
    times stay. A `hurry` above 1 divides them on top of that, and computing is not slept, but added."""

    name: str
    elements: int
    dense_type: str
    gbit: float  # what TCP has of a host's link
    computing: dict[int, float]  # seconds of a step besides its averages, by the number of hosts
    shrink: dict[int, int]  # by the ranks of a host; without an entry the setting is not re-enacted with so many
    stages: tuple[str, ...]
    averages: dict[int, float] = dataclasses.field(default_factory=dict)  # seconds in full precision, as published
    hosts: int | None = None  # if others would change what is re-enacted
    hurry: int = 1


BERT_LARGE = 336_000_000
ETHERNET = Setting(
    "BERT-Large, 4.1 Gbit/s", BERT_LARGE, "float16", 4.1, {2: 0.17144, 4: 0.17661, 8: 0.17425}, {1: 64, 4: 128},
    (DENSE, ONE_BIT, FP4), {2: 1.89721, 4: 2.13324, 8: 2.17335})
INFINIBAND = Setting(
    "BERT-Large, 32 Gbit/s", BERT_LARGE, "float16", 32, {2: 0.14795, 4: 0.14824, 8: 0.15059}, {1: 512, 4: 512},
    (DENSE, ONE_BIT), {2: 0.18374, 4: 0.29728, 8: 0.3364})
# 0/1 Adam's schedule is for batches of 4096, which 64 GPUs computed in four parts.
SLOWER_ETHERNET = Setting(
    "BERT-Large, 2.7 Gbit/s", BERT_LARGE, "float16", 2.7, dict.fromkeys((2, 4, 8), 0.45644), {1: 64, 4: 128},
    (DENSE, ONE_BIT))
# Times of BytePS at 100 Mbit/s. Its run with Top-k sends next to nothing, so the others compute as long at most.
BYTEPS_DENSE, BYTEPS_ONE_BIT, BYTEPS_COMPUTING = 518.3, 195.2, 83.9
RESNET18 = 11_220_000
RESNET18_AVERAGE = 1.5 * 32 * RESNET18 / 100e6  # seconds of one in fp32 on 4 hosts: 3/4 are sent twice
CIFAR = Setting(
    "ResNet-18, 100 Mbit/s", RESNET18, "float32", 0.1,
    dict.fromkeys((2, 4), RESNET18_AVERAGE * BYTEPS_COMPUTING / (BYTEPS_DENSE - BYTEPS_COMPUTING)), {1: 8, 4: 32},
    (DENSE, ONE_BIT), hosts=4)
# A round of 30 steps; two hosts, each of which sends its packet once, as peers do that upload it to a store.
COVENANT = Setting(
    "72.7 billion, 110 Mbit/s", 72_700_000_000, "float32", 0.11, {2: 1200}, {1: 4000}, (TOP_K,), hosts=2, hurry=40)


@dataclasses.dataclass(frozen=True)
class Stage:
    """One kind of average, per step and as published: times and bytes are multiplied by what divided them."""

    seconds: float
    link_bytes: float  # of a host
    link_seconds: float  # which these bytes take at the link's rate
    cpu_seconds: float  # of a rank, with the smaller model
    messages: float  # of a rank


@dataclasses.dataclass(frozen=True)
class Measured:
    """A setting as it was re-enacted."""

    setting: Setting
    hosts: int
    ranks_per_host: int
    stages: dict[str, Stage]

    def computing(self) -> float:
        return self.setting.computing[self.hosts]

    def mean(self, member: str, schedule: Schedule, codec: str) -> float:
        """A member of Stage, per step of a schedule."""
        dense = getattr(self.stages[DENSE], member) * schedule.dense if schedule.dense else 0
        compressed = getattr(self.stages[codec], member) * schedule.compressed if schedule.compressed else 0
        return (dense + compressed) / schedule.steps

    def step(self, schedule: Schedule, codec: str) -> float:
        return self.computing() + self.mean("seconds", schedule, codec)


@dataclasses.dataclass(frozen=True)
class Row:
    """A published figure."""

    paper: str
    what: str
    unit: str
    published: float | None  # None: seconds of the setting's averages
    setting: Setting
    here: Callable[[Row, Measured], float]
    why: Callable[[Row, Measured], str]  # a sentence for where the figures differ
    base: Schedule | None = ALL_DENSE  # None: the whole model in fp32, which nobody sends
    method: Schedule = ALL_COMPRESSED
    codec: str = ONE_BIT

    def published_on(self, hosts: int) -> float:
        return 1e3 * self.setting.averages[hosts] if self.published is None else self.published

    def sent(self, measured: Measured, schedule: Schedule | None) -> float:
        """Bytes on a host's link in a step of the base or the method."""
        if schedule is None:
            return 4 * self.setting.elements * FRAME_BYTES / SEGMENT_BYTES
        return measured.mean("link_bytes", schedule, self.codec)


def speed_up(row: Row, measured: Measured) -> float:
    return measured.step(row.base, row.codec) / measured.step(row.method, row.codec)


def volume(row: Row, measured: Measured) -> float:
    return row.sent(measured, row.base) / row.sent(measured, row.method)


def volume_saved(row: Row, measured: Measured) -> float:
    return 100 * (1 - 1 / volume(row, measured))


def rounds_saved(row: Row, _: Measured) -> float:
    return 100 * (1 - row.method.rounds / row.method.steps)


def byteps_seconds(row: Row, measured: Measured) -> float:
    return BYTEPS_DENSE / speed_up(row, measured)


def utilization(_: Row, measured: Measured) -> float:
    return 100 * measured.computing() / (measured.computing() + measured.stages[TOP_K].seconds)


def of_the_link(_: Row, measured: Measured, name: str = DENSE) -> str:
    stage, ranks = measured.stages[name], measured.hosts * measured.ranks_per_host
    return (f"the average in {name} takes {1e3 * stage.seconds:.0f} ms, and its bytes "
            f"{1e3 * stage.link_seconds:.0f} ms at the link's rate; each of {ranks} ranks needs "
            f"{1e3 * stage.cpu_seconds:.0f} ms of a core for it.")


def of_the_stage(row: Row, measured: Measured) -> str:
    full = measured.computing() + measured.setting.averages[measured.hosts]
    return (f"a published step in full precision takes {1e3 * full:.0f} ms, so {row.published:g}x leaves "
            f"{1e3 * (full / row.published - measured.computing()):.0f} ms to the average in one bit; here "
            + of_the_link(row, measured, ONE_BIT))


def of_the_parts(compressed: float) -> Callable[[Row, Measured], str]:
    """For a whole run, of whose compressed stage a speed-up was published, too."""
    def why(row: Row, measured: Measured) -> str:
        share = row.method.dense / row.method.steps
        stage = speed_up(dataclasses.replace(row, method=ALL_COMPRESSED), measured)
        return (f"with {100 * share:.0f} % of the steps in full precision the published {compressed:g}x of the others "
                f"makes {1 / (share + (1 - share) / compressed):.2f}x; here the others are {stage:.2f}x as fast.")
    return why


def of_the_steps(row: Row, measured: Measured) -> str:
    before, after = (measured.step(schedule, row.codec) for schedule in (row.base, row.method))
    return (f"a mean step takes {1e3 * before:.0f} ms with 1-bit Adam and {1e3 * after:.0f} ms with 0/1 Adam, "
            f"{1e3 * measured.computing():.0f} ms of both computing, if its batches are those of the schedule.")


def of_the_schedule(row: Row, _: Measured) -> str:
    bits = (16 * row.method.dense + row.method.compressed) / row.method.steps
    return (f"the schedule of the paper sends {bits:.2f} bits per element and step; it is not said with which one the "
            "published figure was counted.")


def of_byteps(row: Row, measured: Measured) -> str:
    shrunk = (BYTEPS_DENSE - BYTEPS_COMPUTING) / (BYTEPS_ONE_BIT - BYTEPS_COMPUTING)
    here = measured.stages[DENSE].seconds / measured.stages[row.codec].seconds
    return f"one bit shortened what is not computing by {shrunk:.1f}x there, and averages by {here:.1f}x here."


def of_the_packet(_: Row, measured: Measured) -> str:
    stage = measured.stages[TOP_K]
    return (f"a packet has {stage.link_bytes / 1e9:.2f} GB, which take {stage.link_seconds:.0f} s at "
            f"{1e3 * measured.setting.gbit:.0f} Mbit/s, a typical uplink of the peers as published: those "
            "who took 70 s had faster ones.")


def of_the_codes(*_) -> str:
    return ("fp4 has 4.1 bits with its scales, in one of 30 steps, against 16 in each; the paper speaks of two orders "
            "of magnitude.")


def published_rows(schedule: Callable[[tuple[str, ...]], Schedule]) -> list[Row]:
    """All rows. `schedule` counts the steps of phases, given as options of onebit_schedule."""
    adam, zero_one = schedule(ADAM_PHASES), schedule(ZERO_ONE_PHASES)
    rows = []
    for network, setting, parts in (("Ethernet", ETHERNET, (("BERT-Large", 15, 6.6, 3.5), ("SQuAD", 25, 6.2, 2.7))),
                                    ("InfiniBand", INFINIBAND, (("BERT-Large", 15, 2, 2.7),))):
        rows.append(Row("1-bit Adam", f"{network}: average in fp16", " ms", None, setting,
                        lambda _, measured: 1e3 * measured.stages[DENSE].seconds, of_the_link, method=ALL_DENSE))
        for task, share, stage, whole in parts:
            rows += [Row("1-bit Adam", f"{network}, {task}: compressed stage", "x", stage, setting, speed_up,
                         of_the_stage),
                     Row("1-bit Adam", f"{network}, {task}: whole run", "x", whole, setting, speed_up,
                         of_the_parts(stage), method=Schedule.dense_share(share))]
    return rows + [
        Row("1-bit Adam", "volume", "x", 5, ETHERNET, volume, of_the_schedule, method=adam),
        Row("1-bit LAMB", "volume", "x", 4.6, ETHERNET, volume, of_the_schedule, method=schedule(LAMB_PHASES)),
        Row("0/1 Adam", "volume saved of 1-bit Adam's", " %", 87, SLOWER_ETHERNET, volume_saved, of_the_schedule,
            base=adam, method=zero_one),
        Row("0/1 Adam", "volume under Adam's", "x", 26, SLOWER_ETHERNET, volume, of_the_schedule, method=zero_one),
        Row("0/1 Adam", "rounds saved", " %", 54, SLOWER_ETHERNET, rounds_saved, of_the_schedule, base=adam,
            method=zero_one),
        Row("0/1 Adam", "whole run over 1-bit Adam", "x", 2, SLOWER_ETHERNET, speed_up, of_the_steps, base=adam,
            method=zero_one),
        Row("BytePS", "518 s become, with one bit", " s", BYTEPS_ONE_BIT, CIFAR, byteps_seconds, of_byteps),
        Row("Streaming DiLoCo", "volume, every 30 steps", "x", 100, ETHERNET, volume, of_the_codes,
            method=Schedule(30, 0, 1, 1), codec=FP4),
        Row("SparseLoCo", "volume of a round", "x", 146, COVENANT, volume, of_the_packet, base=None, codec=TOP_K),
        Row("SparseLoCo", "average of a round", " s", 70, COVENANT, lambda _, measured: measured.stages[TOP_K].seconds,
            of_the_packet, base=None, codec=TOP_K),
        Row("SparseLoCo", "utilization", " %", 94.5, COVENANT, utilization, of_the_packet, base=None, codec=TOP_K)]
