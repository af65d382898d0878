# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of the job of ddp_random_test.py: ddp_random_rank.py FOLDER FIRST COUNT; writes FOLDER/RANK.json.

Draws a model, and a mode of DDP, from each seed, trains it with the hook, and compares with averages in full
precision: what was taken and what is owed are their sum, replicas are equal, and nothing is left uncompressed
without a word.
"""

import contextlib
import json
import pathlib
import random
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import onebit.torch
from ddp_rank import RANK, RANKS, digest, residuals

IS_1 = torch.__version__ < "2"
TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 1e-2}  # of results rounded to 16 bits; others 1e-5
KINDS = ("matrix", "vector", "channels_last", "turned", "fp16", "fp64", "empty", "frozen", "shared")
if not IS_1:  # DDP over the gloo of 1.13 cannot begin with them
    KINDS += ("bf16", "complex")
TYPES = {"fp16": torch.float16, "fp64": torch.float64}
TYPES.update({"bf16": torch.bfloat16, "complex": torch.complex64})


class Drawn(torch.nn.Module):
    """Parameters of several kinds, whose gradients are tensors that the test gives."""

    def __init__(self, draw: random.Random):
        super().__init__()
        self.kinds = {}
        for number in range(draw.randint(1, 6)):
            kind = "matrix" if number == 0 else draw.choice(KINDS)
            name = f"{kind}_{number}"
            self.register_parameter(name, torch.nn.Parameter(self.value(draw, kind), kind != "frozen"))
            if kind == "shared":
                self.register_parameter(name + "_again", getattr(self, name))
            self.kinds[name] = kind

    @staticmethod
    def value(draw: random.Random, kind: str) -> torch.Tensor:
        rows, columns = draw.randint(2, 90), draw.randint(2, 90)
        if kind == "vector":
            return torch.randn(rows)
        if kind == "channels_last":
            return torch.randn(rows, 3, 2, 4).contiguous(memory_format=torch.channels_last)
        if kind == "turned":
            return torch.randn(rows, columns).t()
        if kind == "empty":
            return torch.zeros(0)
        return torch.randn(rows, columns).to(TYPES.get(kind, torch.float32))

    def trained(self) -> dict:
        return {name: each for name, each in self.named_parameters() if each.requires_grad}

    def forward(self, weights: dict) -> torch.Tensor:
        terms = []
        for name, weight in weights.items():
            product = getattr(self, name) * weight.conj()
            terms.append((torch.view_as_real(product)[..., 0] if product.is_complex() else product).sum().float())
            if self.kinds[name] == "shared":
                terms.append((getattr(self, name + "_again") * weight).sum())
        return sum(terms)


class Mode:
    """How a model is trained."""

    def __init__(self, draw: random.Random):
        self.steps = draw.randint(3, 6)
        self.dense = draw.randint(0, 2)
        self.codec = draw.choice(["fp4", "int8", "sign", "int2", "bf16"])
        self.micro_steps = draw.choice([1, 1, 2, 3])
        self.view = draw.random() < 0.4
        self.cap = draw.choice([0.005, 0.02, 25])
        self.special = draw.choice(["", "", "static", "unused", "join", "join by remaining"])
        self.is_joining = self.special.startswith("join")
        if self.special == "static":
            self.micro_steps = 1
        self.batches = [self.steps] * RANKS
        if self.is_joining:
            self.batches[draw.randrange(RANKS)] += draw.randint(1, 3)
            self.micro_steps = 1
        self.dropped = {step for step in range(self.steps) if not self.is_joining and draw.random() < 0.2}

    def options(self) -> dict:
        return {
            "bucket_cap_mb": self.cap,
            "gradient_as_bucket_view": self.view,
            "static_graph": self.special == "static",
            "find_unused_parameters": self.special == "unused",
        }

    def __str__(self) -> str:
        return str(vars(self))


def noise(like: torch.Tensor, *seed: int) -> torch.Tensor:
    """A gradient of this rank in the type of a parameter."""
    generator = torch.Generator().manual_seed(hash((RANK, *seed)) % 2**40)
    dtype = like.dtype if like.is_complex() or like.dtype == torch.float64 else torch.float32
    return torch.randn(like.shape, dtype=dtype, generator=generator).to(like.dtype)


def averaged(tensor: torch.Tensor) -> torch.Tensor:
    """In the precision of the parameter's sums."""
    is_wide = tensor.is_complex() or tensor.dtype == torch.float64
    mean = tensor.to(tensor.dtype if is_wide else torch.float32, copy=True)
    dist.all_reduce(torch.view_as_real(mean) if mean.is_complex() else mean)
    return mean / RANKS


def bytes_of(tensors) -> str:
    return digest(torch.view_as_real(each) if each.is_complex() else each for each in tensors)


def train(seed: int) -> dict:
    """One model in one mode."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    model, mode = Drawn(draw), Mode(draw)
    unused = {
        (step, rank, name)
        for step in range(mode.steps)
        for rank in range(RANKS)
        for name in list(model.trained())[1:]
        if mode.special == "unused" and draw.random() < 0.5
    }
    ddp = DistributedDataParallel(model, **mode.options())
    state = onebit.torch.State(ddp, codec=mode.codec, dense_iterations=mode.dense)
    ddp.register_comm_hook(state, onebit.torch.ddp_hook)
    optimizer = torch.optim.SGD(model.trained().values(), 0.01)
    trained = model.trained()
    zero = {name: torch.zeros_like(each) for name, each in trained.items()}
    local, taken, digests = [], [], []
    by_all = mode.special != "join by remaining"
    join = ddp.join(divide_by_initial_world_size=by_all) if mode.is_joining else contextlib.nullcontext()
    with join:
        for step in range(mode.batches[RANK]):
            optimizer.zero_grad(set_to_none=True)
            total = dict(zero)
            for micro_step in range(mode.micro_steps):
                weights = {
                    name: noise(each, seed, step, micro_step, number)
                    for number, (name, each) in enumerate(trained.items())
                    if (step, RANK, name) not in unused
                }
                for name, weight in weights.items():
                    gradient = weight + weight if model.kinds[name] == "shared" else weight
                    total[name] = total[name] + gradient
                is_last = micro_step == mode.micro_steps - 1
                with contextlib.nullcontext() if is_last else ddp.no_sync():
                    ddp(weights).backward()
            local.append(total)
            if step in mode.dropped:
                state.revert()
                taken.append(None)
            else:
                taken.append({name: zero[name] if each.grad is None else each.grad.clone() for name, each in trained.items()})
                optimizer.step()
            digests.append(bytes_of(each.detach() for each in trained.values()))
    check(model, mode, state, zero, local, taken, digests)
    state.close()
    return vars(mode)


def check(model, mode, state, zero, local, taken, digests) -> None:
    """Compares with full precision. Raises an AssertionError."""
    trained = model.trained()
    everything = [None] * RANKS
    dist.all_gather_object(everything, digests)
    common = min(mode.batches)
    assert len({tuple(each[:common]) for each in everything}) == 1, "replicas differ"
    ends = [None] * RANKS
    dist.all_gather_object(ends, bytes_of(each.detach() for each in trained.values()))
    assert len(set(ends)) == 1, "replicas differ at the end"

    longest = mode.batches.index(max(mode.batches))
    owed = {name: sum(residuals(blob)) for name, blob in state.state_dict()["residuals"].items()}
    lossy = {
        name
        for name, kind in model.kinds.items()
        if kind not in ("vector", "fp64", "empty", "frozen", "complex")
    }
    if max(mode.batches) > mode.dense:
        assert set(owed) == lossy and set(state.report().residual_norms) == lossy, (set(owed), lossy)
    for name, parameter in trained.items():
        wide = averaged(zero[name])
        averages, outputs, size = torch.zeros_like(wide), torch.zeros_like(wide), 0.0
        for step in range(max(mode.batches)):
            mine = local[step][name] if step < len(local) else zero[name]
            average = averaged(mine)
            active = sum(step < batches for batches in mode.batches)
            if mode.special == "join by remaining":
                average = average * (RANKS / active)
            if step in mode.dropped:
                continue
            output = (taken[step][name] if RANK == longest else zero[name]).to(wide.dtype)
            output = averaged(output) * RANKS
            averages, outputs, size = averages + average, outputs + output, size + float(average.norm())
            if name not in lossy:
                limit = TOLERANCE.get(parameter.dtype, 1e-5) * average.norm()
                assert (output - average).norm() <= limit, f"{name}: the average of step {step} is wrong"
        if name in owed:  # in the order of the bucket, which is that of the parameter's memory
            outputs = outputs + owed[name].as_strided(parameter.shape, parameter.stride())
        error = float((outputs - averages).norm()) / max(size, 1e-30)
        assert error <= TOLERANCE.get(parameter.dtype, 1e-5), f"{name}: what is taken and owed is wrong by {error}"


def main() -> None:
    folder, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=RANK, world_size=RANKS)
    torch.set_num_threads(1)
    failed, modes = {}, {}
    for seed in range(first, first + count):
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            try:
                mode = train(seed)
                for option in ("special", "codec", "micro_steps", "cap", "view"):
                    key = f"{option} {mode[option]}"
                    modes[key] = modes.get(key, 0) + 1
                draw = random.Random(seed)
                kinds = Drawn(draw).kinds
                said = {name for each in recorded for name in kinds if name in str(each.message) and "full precision" in str(each.message)}
                expected = {name for name, kind in kinds.items() if kind in ("fp64", "complex")}
                if max(mode["batches"]) > mode["dense"]:
                    assert said == expected, f"said {said}, not {expected}"
            except Exception:
                failed[seed] = traceback.format_exc()
                break  # ranks may differ in where they are
    path = pathlib.Path(folder, f"{RANK}.json")
    path.write_text(json.dumps({"failed": failed, "modes": modes}), encoding="utf-8")


if __name__ == "__main__":
    main()
