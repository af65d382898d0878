# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A small problem of four ranks, and outer optimizers on it in float64, written from the papers' listings.

With `has_exact_scales` it reproduces data/diloco.json, of another program; without, it rounds scales to
bfloat16 as fp4 and int2 do.
"""

import dataclasses
from typing import Any, Dict, List, Tuple, Union

from needs_torch import torch

RANKS = 4
ELEMENTS = 32
EVERY = 6
RATE, BETA1, BETA2, EPS = 0.05, 0.9, 0.97, 1e-8
CHUNK = 8  # the elements of each rank, and so of a scale, where a fragment has several chunks


class Toy:
    """The problem of a rank: a quadratic whose minimum differs between ranks, and noise that is known."""

    def __init__(self, rank: int, offset: int = 0) -> None:
        k = torch.arange(ELEMENTS)
        self.curvature = 0.5 + 0.25 * (k % 5)
        self.minimum = (((7 * k + 11 * rank + 3) % 13) - 6) / 4
        self.start = (((5 * k + 1) % 11) - 5) / 2
        self._noise = 17 * k + 13 * rank + offset

    def gradient(self, x: torch.Tensor, step: int) -> torch.Tensor:
        noise = (((31 * step + self._noise) % 29) - 14) / 64
        return self.curvature * (x - self.minimum) + noise.to(x.dtype)


def loss_at(x: Any) -> float:
    """The mean of the ranks' losses, without noise."""
    x = torch.as_tensor(x, dtype=torch.float64)
    toys = [Toy(rank) for rank in range(RANKS)]
    return float(sum((0.5 * toy.curvature * (x - toy.minimum) ** 2).sum() for toy in toys)) / RANKS


@dataclasses.dataclass
class Run:
    """Options of an outer optimizer, by the names of the reference's file."""

    offset: int
    codec: str = "dense"
    fragments: int = 1
    overlap: int = 0
    merge: Union[float, str] = 0.0
    rate: float = 0.7
    momentum: float = 0.9
    decay: float = 1.0
    top: Tuple[int, int] = (2, 8)  # elements sent of a block of so many
    has_exact_scales: bool = True


def _rounded(scale: torch.Tensor, run: Run) -> torch.Tensor:
    return scale if run.has_exact_scales else scale.to(torch.float32).to(torch.bfloat16).double()


def _nearest(z: torch.Tensor, levels: List[float], scale: torch.Tensor) -> torch.Tensor:
    grid = torch.tensor(levels, dtype=torch.float64) * scale
    return grid[(z[:, None] - grid).abs().argmin(1)]


def compressed(z: torch.Tensor, run: Run) -> torch.Tensor:
    """A block after the codec."""
    if run.codec == "dense":
        return z
    if run.codec == "topk":
        sent = torch.zeros_like(z)
        for block, kept in zip(z.split(run.top[1]), sent.split(run.top[1])):
            chosen = block.abs().topk(run.top[0]).indices
            kept[chosen] = block[chosen]
        return sent
    power = z.square().mean().sqrt()
    if run.codec == "sign":
        return torch.where(z >= 0, power, -power)
    if run.codec == "int2":
        return _nearest(z, [-1.5, -0.5, 0.5, 1.5], _rounded(power, run))
    half = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    return _nearest(z, [-each for each in half[:0:-1]] + half, _rounded(z.abs().max() / 6, run))


class _Average:
    """Averages of a fragment, with what ranks and chunks owe."""

    def __init__(self, run: Run, elements: int) -> None:
        self._run = run
        self.owed = [torch.zeros(elements, dtype=torch.float64) for _ in range(RANKS)]
        self.owed_by_chunks = torch.zeros(elements, dtype=torch.float64)

    def of(self, deltas: List[torch.Tensor]) -> torch.Tensor:
        run = self._run
        sent = []
        for rank, delta in enumerate(deltas):
            z = delta + run.decay * self.owed[rank]
            block = len(z) if run.codec == "topk" else CHUNK
            sent.append(torch.cat([compressed(each, run) for each in z.split(block)]))
            self.owed[rank] = z - sent[-1]
        mean = torch.stack(sent).sum(0) / RANKS
        if run.codec in ("dense", "topk"):  # all ranks have what the others sent
            return mean
        y = mean + self.owed_by_chunks
        result = torch.cat([compressed(each, run) for each in y.split(CHUNK)])
        self.owed_by_chunks = y - result
        return result


def trained(run: Run, steps: int) -> Dict[str, Any]:
    """Global parameters after each step, and at the end the parameters of rank 0, what is owed, and the
    steps at which averages were submitted and applied."""
    toys = [Toy(rank, run.offset) for rank in range(RANKS)]
    x = [toys[0].start.double() for _ in toys]
    m = [torch.zeros_like(x[0]) for _ in toys]
    v = [torch.zeros_like(x[0]) for _ in toys]
    values, momentum = x[0].clone(), torch.zeros_like(x[0])
    size = ELEMENTS // run.fragments
    places = [slice(part * size, (part + 1) * size) for part in range(run.fragments)]
    averages = [_Average(run, size) for _ in places]
    flights: Dict[int, Any] = {}
    path, kinds = [], {}

    def apply(part: int) -> str:
        place = places[part]
        _, snapshots, average = flights.pop(part)
        step = average
        if run.momentum > 0:
            momentum[place] = run.momentum * momentum[place] + average
            step = average + run.momentum * momentum[place]
        values[place] -= run.rate * step
        for rank, own in enumerate(x):
            if run.merge == "rebase":
                own[place] += values[place] - snapshots[rank]
            else:
                own[place] = run.merge * own[place] + (1 - run.merge) * values[place]
        return f"a{part}"

    for t in range(1, steps + 1):
        for rank, toy in enumerate(toys):
            gradient = toy.gradient(x[rank], t)
            m[rank] = BETA1 * m[rank] + (1 - BETA1) * gradient
            v[rank] = BETA2 * v[rank] + (1 - BETA2) * gradient**2
            root = (v[rank] / (1 - BETA2**t)).sqrt() + EPS
            x[rank] = x[rank] - RATE * m[rank] / (1 - BETA1**t) / root
        did = [apply(part) for part in sorted(flights) if t == flights[part][0] + run.overlap]
        for part, place in enumerate(places):
            offset = EVERY * (part + 1) // run.fragments
            if t >= offset and (t - offset) % EVERY == 0:
                snapshots = [own[place].clone() for own in x]
                flights[part] = (t, snapshots, averages[part].of([values[place] - own for own in snapshots]))
                did.append(f"s{part}")
                if run.overlap == 0:
                    did.append(apply(part))
        if did:
            kinds[str(t)] = "".join(did)
        path.append(values.clone())
    return {
        "path": path,
        "x_0": x[0],
        "owed_by_0": torch.cat([each.owed[0] for each in averages]),
        "owed_by_chunks": torch.cat([each.owed_by_chunks for each in averages]),
        "kinds": kinds,
    }
