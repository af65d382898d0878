# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of a job of torch_backend_test.py: torch_backend_rank.py FOLDER CASE...; writes FOLDER/RANK.json."""

import datetime
import fcntl
import functools
import itertools
import math
import os
import pathlib
import signal
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import onebit
from onebit.torch.backend import Options
from rank_cases import RANK, run_cases, write

OPS = dist.ReduceOp
SIZE = int(os.environ["WORLD_SIZE"])
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# Gloo knows the first four.
INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64, torch.int16, torch.uint16, torch.uint32, torch.bool)
LARGE = 40000  # elements of float32 that are compressed by default


def new_group(*arguments, **named):
    return dist.new_group(backend="onebit", pg_options=Options(*arguments, **named))


def communicator_of(group):
    return group._get_backend(torch.device("cpu"))._calls.communicator


def values(shape, dtype, rank=RANK, seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if not dtype.is_floating_point:
        return torch.randint(0, 50, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def in_gaps(tensor):
    """A tensor with the same elements, between which others lie."""
    room = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype)
    view = room[..., 0]
    view.copy_(tensor)
    assert tensor.numel() < 2 or not view.is_contiguous()
    return view


def expected_of(op, shape, dtype):
    """A reduction, as Gloo makes it where it knows the type."""
    if dtype in (torch.int16, torch.uint16, torch.uint32):
        return expected_of(op, shape, torch.int64).to(dtype)
    total = values(shape, dtype)
    dist.all_reduce(total, op)
    return total


def assert_same(found, expected, what):
    if found.dtype.is_floating_point:
        tolerance = 4 * torch.finfo(found.dtype).eps
        options = {"rtol": tolerance, "atol": tolerance, "msg": lambda text: f"{what}: {text}"}
        torch.testing.assert_close(found, expected, **options)
    else:
        assert torch.equal(found, expected), (what, found, expected)


def refused(error_class, text, function):
    try:
        function()
    except error_class as error:
        assert text in str(error), error
        return str(error)
    raise AssertionError(f"no {error_class.__name__}: {text}")


# ------------------------------------------------------------------------------------- collectives


def reductions_are_those_of_gloo():
    """Of small tensors, which no group compresses."""
    groups = {dtype: new_group() for dtype in (*FLOATS, *INTEGERS)}
    groups[None] = new_group(None)  # and large ones
    for kind, group in groups.items():
        dtype = kind or torch.float32
        ops = [OPS.SUM, OPS.MAX, OPS.MIN, *([OPS.AVG] if dtype.is_floating_point else [])]
        for op, shape in itertools.product(ops, ((LARGE,),) if kind is None else ((), (0,), (5, 3))):
            what = f"{op} of {dtype} {shape}"
            whole = expected_of(op, (SIZE, *shape), dtype)
            for layout in (torch.clone, in_gaps):
                found = layout(values((SIZE, *shape), dtype))
                dist.all_reduce(found, op, group=group)
                assert_same(found, whole, what)
                given = values((SIZE, *shape), dtype)
                if shape:
                    output = layout(torch.zeros(shape, dtype=dtype))
                    dist.reduce_scatter_tensor(output, layout(given), op, group=group)
                    assert_same(output, whole[RANK], what)
                output = layout(torch.zeros(shape, dtype=dtype))
                dist.reduce_scatter(output, [layout(part) for part in given], op, group=group)
                assert_same(output, whole[RANK], what)
                assert torch.equal(given, values((SIZE, *shape), dtype)), "the input has changed"
        dist.destroy_process_group(group)


def complex_numbers_and_integers_of_any_size_pass():
    group = new_group()
    number = torch.full((3,), complex(RANK, 1))
    dist.all_reduce(number, group=group)
    assert torch.equal(number, torch.full((3,), complex(sum(range(SIZE)), SIZE)))
    large = values((LARGE,), torch.int64)
    expected = expected_of(OPS.SUM, (LARGE,), torch.int64)
    dist.all_reduce(large, group=group)
    assert torch.equal(large, expected)
    dist.destroy_process_group(group)


def a_factor_comes_before_the_sum():
    group = new_group()
    for shape in ((7,), (SIZE * LARGE,)):
        for factor in (0.25, torch.tensor(1 / 3)):
            given = values(shape, torch.float32)
            expected = given * factor
            dist.all_reduce(expected)
            found = given.clone()
            dist.all_reduce(found, OPS.PREMUL_SUM(factor), group=group)
            part = torch.zeros(-(-shape[0] // SIZE))
            padded = F.pad(given, (0, SIZE * len(part) - len(given)))
            before = padded.clone()
            dist.reduce_scatter_tensor(part, padded, OPS.PREMUL_SUM(factor), group=group)
            assert torch.equal(padded, before), "the input has changed"
            error = 1e-6 if shape[0] < LARGE else 0.05
            torch.testing.assert_close(found, expected, rtol=0, atol=error)
            own = F.pad(expected, (0, len(padded) - len(given))).view(SIZE, -1)[RANK]
            torch.testing.assert_close(part, own, rtol=0, atol=error)
    # 60,000 halves, whose sum float16 does not have
    halves = torch.full((100,), 60000.0, dtype=torch.float16)
    dist.all_reduce(halves, OPS.PREMUL_SUM(1 / SIZE), group=group)
    assert torch.equal(halves, torch.full((100,), 60000.0, dtype=torch.float16)), halves[0]
    dist.destroy_process_group(group)


def moves_are_exact():
    group = new_group(min_bytes=0)
    types = (*FLOATS, *INTEGERS, torch.float8_e4m3fn, torch.complex64)
    for dtype, shape, layout in itertools.product(types, ((), (0,), (5, 3), (LARGE,)), (torch.clone, in_gaps)):
        def of(rank):
            return values(shape, torch.float32, rank).to(dtype)

        def same(found, expected, what=f"{dtype} {shape}"):
            assert torch.equal(found.to(torch.complex128), expected.to(torch.complex128)), what

        found = layout(of(RANK))
        dist.broadcast(found, SIZE - 1, group=group)
        same(found, of(SIZE - 1))
        pieces = [layout(torch.zeros(shape).to(dtype)) for _ in range(SIZE)]
        dist.all_gather(pieces, layout(of(RANK)), group=group)
        for rank, piece in enumerate(pieces):
            same(piece, of(rank))
        if shape:
            whole = layout(torch.zeros((SIZE, *shape)).to(dtype))
            dist.all_gather_into_tensor(whole, layout(of(RANK)), group=group)
            same(whole, torch.stack([of(rank) for rank in range(SIZE)]))
    whole = torch.zeros(SIZE, 9)
    whole[RANK] = RANK + 1
    dist.all_gather_into_tensor(whole, whole[RANK], group=group)  # in place, as FSDP does
    assert torch.equal(whole[:, 0], torch.arange(1.0, SIZE + 1))
    found = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK}, group=group)
    assert found == [{"rank": rank} for rank in range(SIZE)]
    dist.destroy_process_group(group)


def coalesced_calls_are_single_ones():
    group, twin = new_group(min_bytes=1024), new_group(min_bytes=1024)
    sizes = (3, LARGE, LARGE, 70, 2 * LARGE, LARGE)  # equal ones need a compressor each

    def given():
        return [values((size,), torch.float32, seed=number) for number, size in enumerate(sizes)]

    together, single = given(), given()
    dist.all_reduce_coalesced(together, OPS.AVG, group=group)
    for tensor in single:
        dist.all_reduce(tensor, OPS.AVG, group=twin)
    for one, other in zip(together, single):
        assert torch.equal(one, other)
    handled = given()
    with dist._coalescing_manager(group, async_ops=True) as work:
        for tensor in handled:
            dist.all_reduce(tensor, OPS.AVG, group=group)
    work.wait()
    for one, other in zip(handled, single):
        assert torch.equal(one, other)
    gathered = funcol.all_gather_into_tensor_coalesced(given(), group)
    for number, size in enumerate(sizes):
        expected = torch.cat([values((size,), torch.float32, rank, number) for rank in range(SIZE)])
        assert torch.equal(gathered[number].view(-1), expected)
    wholes = [values((SIZE * 50,), torch.float32, seed=number) for number in range(2)]
    parts = [part + 0 for part in funcol.reduce_scatter_tensor_coalesced(wholes, "sum", [0, 0], group)]
    for whole, part in zip(wholes, parts):
        dist.all_reduce(whole)
        torch.testing.assert_close(part, whole.view(SIZE, -1)[RANK])
    dist.destroy_process_group(group)
    dist.destroy_process_group(twin)


def compressed_results_are_near_and_alike():
    """Errors of int8 are at most half a step of each rank's values, and half a step of their mean."""
    group = new_group()
    for dtype, op in itertools.product((torch.float32, torch.float16, torch.bfloat16), (OPS.AVG, OPS.SUM)):
        inputs = [values((LARGE,), dtype, rank).double() for rank in range(SIZE)]
        scale = SIZE if op == OPS.SUM else 1
        expected = scale * torch.stack(inputs).mean(0)
        step = max(each.abs().max() for each in inputs) / 127
        # Outputs of 16 bits are rounded once more.
        bound = scale * step * 1.01 + torch.finfo(dtype).eps * expected.abs().max()
        found = values((LARGE,), dtype)
        dist.all_reduce(found, op, group=group)
        error = (found.double() - expected).abs()
        assert 0 < error.max() <= bound, (dtype, op, error.max(), bound)
        assert error.norm() < 0.02 * expected.norm(), (dtype, op)
        first = found.clone()
        dist.broadcast(first, 0)
        assert torch.equal(found, first), "ranks differ"
        part = torch.zeros(LARGE // SIZE, dtype=dtype)
        dist.reduce_scatter_tensor(part, values((LARGE,), dtype), op, group=group)
        error = (part.double() - expected.view(SIZE, -1)[RANK]).abs().max()
        assert 0 < error <= bound, (dtype, op, error, bound)
    dist.destroy_process_group(group)


def options_tell_what_is_compressed():
    groups = {
        "int8": new_group(),
        "fp4": new_group("fp4"),
        "late": new_group(min_bytes=4 * LARGE + 1),
        "none": new_group(None),
    }
    exact = values((LARGE,), torch.float32)
    dist.all_reduce(exact, OPS.AVG)
    errors, sent = {}, {}
    for name, group in groups.items():
        before = communicator_of(group).stats().bytes_sent
        found = values((LARGE,), torch.float32)
        dist.all_reduce(found, OPS.AVG, group=group)
        sent[name] = communicator_of(group).stats().bytes_sent - before
        errors[name] = float((found - exact).norm() / exact.norm())
        below = values((16383,), torch.float32)
        expected = below.clone()
        dist.all_reduce(expected)
        dist.all_reduce(below, group=group)
        torch.testing.assert_close(below, expected, rtol=1e-6, atol=1e-6)
        dist.destroy_process_group(group)
    assert errors["late"] < 1e-6 and errors["none"] < 1e-6, errors
    assert 1e-4 < errors["int8"] < 0.02 < errors["fp4"] < 0.3, errors
    assert 3.5 < sent["none"] / sent["int8"] < 4.1 and sent["none"] / sent["fp4"] > 6.5, sent
    assert sent["late"] == sent["none"], sent


def infinities_stay():
    """A gradient scaler looks for them."""
    group = new_group()
    tensor = values((LARGE,), torch.float16)
    if RANK == SIZE - 1:
        tensor[777] = math.inf
    dist.all_reduce(tensor, OPS.AVG, group=group)
    assert not tensor[777].isfinite()
    assert tensor[:512].isfinite().all()
    dist.destroy_process_group(group)


def many_shapes_take_bounded_memory():
    group = new_group(min_bytes=4)
    kept = group._get_backend(torch.device("cpu"))._compressors._kept
    for count in [*range(100, 500), *range(100, 500, 40)]:
        tensor = torch.full((count,), float(RANK))
        dist.all_reduce(tensor, OPS.AVG, group=group)
        torch.testing.assert_close(tensor, torch.full((count,), (SIZE - 1) / 2), rtol=0.02, atol=0)
    assert len(kept) == 256, len(kept)
    dist.destroy_process_group(group)


# ------------------------------------------------------------------------------------------- order


def calls_run_in_their_order_beside_the_program():
    group = new_group(None)
    tensor = torch.full((1000,), float(RANK + 1))
    works = []
    for number in range(10):
        works.append(dist.all_reduce(tensor, group=group, async_op=True))
        works.append(dist.broadcast(tensor, number % SIZE, group=group, async_op=True))
        works.append(dist.all_reduce(tensor, OPS.AVG, group=group, async_op=True))
    works[-1].wait()
    total = SIZE * (SIZE + 1) / 2
    assert torch.equal(tensor, torch.full((1000,), total * float(SIZE) ** 9)), tensor[0]
    # Rank 0 does not wait for the others, who call after the barrier, until it says so.
    if RANK != 0:
        dist.barrier()
    late = torch.full((LARGE,), 1.0)
    work = dist.all_reduce(late, group=group, async_op=True)
    if RANK == 0:
        future = work.get_future()
        assert not future.done()
        text = "all_reduce has not finished within 0.2 s"
        refused(onebit.Timeout, text, lambda: work.wait(datetime.timedelta(seconds=0.2)))
        dist.barrier()
        assert torch.equal(future.wait()[0], late)
    work.wait()
    assert torch.equal(late, torch.full((LARGE,), float(SIZE)))
    dist.destroy_process_group(group)


def groups_do_not_mix():
    """Ranks make calls in two groups in unequal orders, and groups come after others of the same ranks."""
    first, second = new_group(), new_group()
    tensors = {first: torch.full((5,), 1.0), second: torch.full((5,), 10.0)}
    order = (first, second) if RANK == 0 else (second, first)
    for work in [dist.all_reduce(tensors[group], group=group, async_op=True) for group in order]:
        work.wait()
    assert tensors[first][0] == SIZE and tensors[second][0] == 10 * SIZE
    dist.destroy_process_group(first)
    dist.all_reduce(tensors[second], group=second)
    assert tensors[second][0] == 10 * SIZE * SIZE
    dist.destroy_process_group(second)
    if SIZE == 4:  # neighbours at the same time, in groups whose ranks are numbered otherwise
        pairs = [dist.new_group(ranks, backend="onebit") for ranks in ([0, 2], [1, 3])]
        mine = pairs[RANK % 2]
        tensor = torch.full((5,), float(RANK))
        dist.all_reduce(tensor, group=mine)
        assert tensor[0] == 2 * (RANK % 2) + 2, tensor
        dist.broadcast(tensor.fill_(RANK), 2 + RANK % 2, group=mine)
        assert tensor[0] == 2 + RANK % 2, tensor
        dist.destroy_process_group(mine)


# ------------------------------------------------------------------------------------------ errors


def what_there_is_not_is_refused():
    group = new_group()
    ones = torch.ones(SIZE)
    parts = list(torch.ones(SIZE, SIZE))
    root_only = parts if RANK == 0 else None
    calls = {
        "reduce ": lambda: dist.reduce(ones, 0, group=group),
        "gather ": lambda: dist.gather(ones, root_only, 0, group=group),
        "scatter ": lambda: dist.scatter(ones, root_only, 0, group=group),
        "all_to_all_single": lambda: dist.all_to_all_single(ones.clone(), ones, group=group),
        "all_to_all:": lambda: dist.all_to_all(parts, list(torch.ones(SIZE, SIZE)), group=group),
        "send": lambda: dist.send(ones, (RANK + 1) % SIZE, group=group),
        "recv": lambda: dist.recv(ones, group=group),
        "recv:": lambda: dist.recv(ones, (RANK + 1) % SIZE, group=group),
        "monitored_barrier": lambda: dist.monitored_barrier(group=group),
        "sparse": lambda: dist.all_reduce(ones.to_sparse(), group=group),
        "PRODUCT in all_reduce": lambda: dist.all_reduce(ones, OPS.PRODUCT, group=group),
        "BAND in reduce_scatter": lambda: dist.reduce_scatter(ones, parts, OPS.BAND, group=group),
        "float8_e4m3fn": lambda: dist.all_reduce(ones.to(torch.float8_e4m3fn), group=group),
    }
    for name, call in calls.items():
        text = refused(NotImplementedError, name, call)
        assert "use the backend gloo or nccl for this group" in text, text
        assert "replicate dimension of a mesh" in text, text
    dist.all_reduce(ones, group=group)
    assert ones[0] == SIZE, "the group is out of use"
    dist.destroy_process_group(group)


def bad_arguments_are_refused_before_anything_is_sent():
    group = new_group()
    ones = torch.ones(4)
    calls = {
        "AVG of torch.int32": lambda: dist.all_reduce(ones.to(torch.int32), OPS.AVG, group=group),
        "needs 4": lambda: dist.all_gather([torch.ones(3)] * SIZE, ones, group=group),
        "has 1 tensors": lambda: dist.all_gather([ones], ones, group=group),
        f"needs {4 * SIZE}": lambda: dist.reduce_scatter_tensor(ones, torch.ones(99), group=group),
        f"output has 99 elements, but needs {4 * SIZE}": lambda: dist.all_gather_into_tensor(
            torch.ones(99), ones, group=group
        ),
        "has 1 inputs, but 2 outputs": lambda: group.all_gather_single_coalesced([ones, ones], [ones]),
        "torch.float64 and torch.float32": lambda: group.all_gather_single(torch.ones(4 * SIZE).double(), ones),
    }
    for text, call in calls.items():
        refused(onebit.InvalidArgument, text, call)
    refused(onebit.InvalidArgument, "'int7' is not a Codec: use one of sign, fp4", lambda: Options("int7"))
    for number in (-1, 1.5, "1", True):
        refused(onebit.InvalidArgument, "min_bytes", functools.partial(Options, min_bytes=number))
    gloo_options = dist.ProcessGroupGloo._Options()
    refused(
        onebit.InvalidArgument,
        "are a onebit.torch.backend.Options",
        lambda: dist.new_group(backend="onebit", pg_options=gloo_options),
    )
    dist.all_reduce(ones, group=group)
    assert ones[0] == SIZE, "the group is out of use"
    dist.destroy_process_group(group)


def a_call_that_differs_is_an_error_on_all():
    group = new_group()
    tensor = torch.ones(4 if RANK == 0 else 5)
    refused(onebit.Mismatch, "all", lambda: dist.all_reduce(tensor, group=group))
    dist.destroy_process_group(group)
    again = new_group()
    dist.all_reduce(tensor.fill_(1)[:3], group=again)
    assert tensor[0] == SIZE
    dist.destroy_process_group(again)


def a_call_ends_with_the_timeout_of_its_group():
    group = dist.new_group(backend="onebit", timeout=datetime.timedelta(seconds=2))
    if RANK == 0:
        refused(onebit.Timeout, "rank", lambda: dist.all_reduce(torch.ones(3), group=group))
    dist.barrier()  # the others make no call before
    dist.destroy_process_group(group)


# ---------------------------------------------------------------------------------------- training


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.query_key_value = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, states):
        heads = self.query_key_value(self.norms[0](states)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        states = states + self.out(mixed)
        return states + self.down(F.gelu(self.up(self.norms[1](states))))


class Gpt(torch.nn.Module):
    """A small model of text of 64 symbols, with equal parameters on all ranks."""

    def __init__(self, width=128, blocks=2):
        super().__init__()
        torch.manual_seed(7)
        self.symbols = torch.nn.Embedding(64, width)
        self.positions = torch.nn.Parameter(0.02 * torch.randn(32, width))
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 64)

    def forward(self, text):
        states = self.symbols(text) + self.positions
        for block in self.blocks:
            states = block(states)
        return self.head(self.norm(states))


def batch_of(step, rank=RANK):
    """Text in which each symbol follows from the one before, but for some noise."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    text = torch.randint(0, 64, (4, 33), generator=generator)
    for position in range(1, text.shape[1]):
        keep = torch.rand(4, generator=generator) < 0.9
        text[:, position] = torch.where(keep, (5 * text[:, position - 1] + 3) % 64, text[:, position])
    return text


def loss_of(model, step, rank=RANK):
    text = batch_of(step, rank)
    return F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def train(model, steps=20, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    losses = []
    with torch.no_grad():
        for step in range(1000, 1004):
            losses.append(loss_of(model, step, 0))
    return float(torch.stack(losses).mean())


def assert_equal_on_all_ranks(parameters):
    for parameter in parameters:
        own = getattr(parameter, "full_tensor", lambda parameter=parameter: parameter)().detach().clone()
        first = own.clone()
        dist.broadcast(first, 0)
        assert torch.equal(own, first), "ranks differ"


def mesh_of(override):
    return init_device_mesh(
        "cpu", (2, SIZE // 2), mesh_dim_names=("dp_replicate", "dp_shard"),
        backend_override={"dp_replicate": override} if override else None,
    )


def hsdp_learns_as_over_gloo():
    losses, sent = {}, {}
    overrides = {"gloo": None, "int8": "onebit", "none": ("onebit", Options("none"))}
    for name, override in overrides.items():
        mesh = mesh_of(override)
        model = Gpt()
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        losses[name] = train(model)
        assert_equal_on_all_ranks(model.parameters())
        if override:
            group = mesh.get_group("dp_replicate")
            assert dist.get_backend(group) == "onebit" and dist.get_backend(mesh.get_group("dp_shard")) == "gloo"
            sent[name] = communicator_of(group).stats().bytes_sent
    assert losses["gloo"] < 0.9 * math.log(64), losses
    assert abs(losses["none"] / losses["gloo"] - 1) < 1e-4, losses
    assert abs(losses["int8"] / losses["gloo"] - 1) < 1e-3, losses
    assert sent["int8"] < sent["none"] / 3.3, sent  # shards of the root are below min_bytes
    return {"losses": losses, "sent": sent}


def the_guide_is_right():
    """Its lines, with names that they use."""
    guide = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
    section = guide.read_text(encoding="utf-8").split("## A backend for one dimension of a mesh\n")[1]
    lines = section.split("```py\n")[1].split("```")[0]
    names = {"device": "cpu", "hosts": 2, "ranks_per_host": SIZE // 2, "model": Gpt(), **globals()}
    exec(lines, names)
    assert dist.get_backend(names["mesh"].get_group("dp_replicate")) == "onebit"
    assert train(names["model"]) < 0.9 * math.log(64)


def replicate_learns():
    losses = {}
    for name in ("gloo", "onebit"):
        mesh = init_device_mesh(
            "cpu", (SIZE,), mesh_dim_names=("replicate",), backend_override={"replicate": name}
        )
        model = Gpt()
        replicate(model, mesh=mesh)
        losses[name] = train(model, 10)
        assert_equal_on_all_ranks(model.parameters())
    assert abs(losses["onebit"] / losses["gloo"] - 1) < 1e-3, losses


def ddp_learns():
    losses = {}
    for name in ("gloo", "onebit"):
        group = dist.new_group(backend=name)
        model = DistributedDataParallel(Gpt(), process_group=group)
        losses[name] = train(model, 10)
        assert_equal_on_all_ranks(model.parameters())
    assert abs(losses["onebit"] / losses["gloo"] - 1) < 1e-3, losses


def functional_collectives_pass():
    group = new_group()
    own = values((LARGE,), torch.float32)
    exact = own.clone()
    dist.all_reduce(exact, OPS.AVG)
    found = funcol.all_reduce(own, "avg", group) + 0  # what it returns is waited for when it is used
    assert 0 < (found - exact).abs().max() < 0.1
    gathered = funcol.all_gather_tensor(own[:10].clone(), 0, group) + 0
    assert torch.equal(gathered, torch.cat([values((LARGE,), torch.float32, rank)[:10] for rank in range(SIZE)]))
    part = funcol.reduce_scatter_tensor(own.clone(), "avg", 0, group) + 0
    assert (part - exact.view(SIZE, -1)[RANK]).abs().max() < 0.1

    @functools.partial(torch.compile, backend="eager", fullgraph=True)
    def compiled(tensor):
        return funcol.all_reduce(2 * tensor, "avg", group) / 2

    assert (compiled(own) - exact).abs().max() < 0.1
    dist.destroy_process_group(group)


def orthogonalised(matrix):
    """By the iteration of Newton and Schulz, as Muon does it."""
    matrix = matrix / (matrix.norm() + 1e-7)
    for _ in range(5):
        square = matrix @ matrix.T
        matrix = 3.4445 * matrix + (-4.775 * square + 2.0315 * square @ square) @ matrix
    return matrix


def low_rank_and_orthogonal_steps_learn():
    """Matrices take turns: of the first, ranks average factors of low rank, as Dion does; of the second each
    rank orthogonalises the momentum of some rows, which all gather, as Muon does over shards."""
    found = {}
    for name in ("gloo", "onebit"):
        mesh = init_device_mesh("cpu", (SIZE,), mesh_dim_names=("replicate",), backend_override={"replicate": name})
        group = mesh.get_group("replicate")
        generator = torch.Generator().manual_seed(1)
        target = torch.randn(256, 128, generator=generator)
        first, second = torch.zeros(256, 128), torch.zeros(256, 128)
        basis = torch.linalg.qr(torch.randn(128, 64, generator=generator))[0]
        momentum = torch.zeros(256, 128)
        for step in range(30):
            inputs = values((64, 256), torch.float32, seed=step)
            gradients = [inputs.T @ (inputs @ (matrix - target)) / 64 for matrix in (first, second)]
            left = gradients[0] @ basis
            dist.all_reduce(left, OPS.AVG, group=group)  # 64 KiB, so compressed
            left = torch.linalg.qr(left)[0]
            right = gradients[0].T @ left
            dist.all_reduce(right, OPS.AVG, group=group)
            first -= 0.3 * left @ right.T
            basis = torch.linalg.qr(right)[0]
            dist.all_reduce(gradients[1], OPS.AVG, group=group)
            momentum = 0.9 * momentum + gradients[1]
            rows = slice(256 // SIZE * RANK, 256 // SIZE * (RANK + 1))
            update = torch.empty(256, 128)
            dist.all_gather_into_tensor(update, orthogonalised(momentum[rows]), group=group)
            second -= 0.5 * update
        assert_equal_on_all_ranks([first, second])
        found[name] = [float((matrix - target).norm() / target.norm()) for matrix in (first, second)]
    for number in range(2):
        assert found["gloo"][number] < 0.8, found
        assert abs(found["onebit"][number] - found["gloo"][number]) < 0.01, found


# -------------------------------------------------------------------------------------------- ends


def a_killed_rank_is_named(folder):
    """Rank 1 is killed; what the others get from each call is found."""
    group = new_group()
    model = DistributedDataParallel(torch.nn.Linear(300, 300), process_group=dist.new_group(backend="onebit"))
    pair = dist.new_group([0, 1], backend="onebit"), dist.new_group([1, 2], backend="onebit")
    store = dist.distributed_c10d._get_default_store()
    if RANK == 1:
        store.wait(["called 0", "called 2"])
        os.kill(os.getpid(), signal.SIGKILL)
    found = {}
    work = dist.all_reduce(torch.ones(LARGE), group=group, async_op=True)
    store.set(f"called {RANK}", "")
    calls = {
        "wait": work.wait,
        "future": lambda: work.get_future().wait(),
        "later": lambda: dist.broadcast(torch.ones(3), 0, group=group),
        "pair": lambda: dist.all_reduce(torch.ones(3), group=pair[RANK // 2]),
        "ddp": lambda: model(torch.ones(1, 300)).sum().backward(),
    }
    for name, call in calls.items():
        try:
            call()
        except Exception as error:
            found[name] = [type(error).__name__, str(error)]
    with warnings.catch_warnings(record=True) as warned:
        dist.destroy_process_group(group)
    found["warned"] = [str(each.message) for each in warned]
    write(folder, found)


def ends_with_calls_of_its_own(folder):
    """Rank 0 ends while a call of it waits for the others, who never make it, and end after it."""
    group = new_group()
    store = dist.distributed_c10d._get_default_store()
    lock = os.open(pathlib.Path(folder) / "running", os.O_CREAT | os.O_RDWR)
    if RANK == 0:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the process ends
        dist.all_reduce(torch.ones(LARGE), group=group, async_op=True)
        store.set("running", "")
    else:
        store.wait(["running"])
        fcntl.flock(lock, fcntl.LOCK_EX)
    write(folder, {})


def one_leaves_while_others_wait(folder):
    group = new_group()
    found = {}
    if RANK != 0:
        try:
            dist.all_reduce(torch.ones(LARGE), group=group)
        except Exception as error:
            found = {"error": [type(error).__name__, str(error)]}
    write(folder, found)


def is_the_default_group(folder):
    """The second one has the store and the name of the first. With DETAIL PyTorch makes one of Gloo beside it,
    which cannot have both again."""
    for _ in range(1 if os.environ.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL" else 2):
        dist.init_process_group("onebit", init_method=f"file://{folder}/default", rank=RANK, world_size=SIZE)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor[0] == SIZE
        dist.barrier()
        dist.destroy_process_group()
    write(folder, {})


COLLECTIVES = (
    reductions_are_those_of_gloo,
    complex_numbers_and_integers_of_any_size_pass,
    a_factor_comes_before_the_sum,
    moves_are_exact,
    coalesced_calls_are_single_ones,
    compressed_results_are_near_and_alike,
    options_tell_what_is_compressed,
    infinities_stay,
    many_shapes_take_bounded_memory,
    calls_run_in_their_order_beside_the_program,
    groups_do_not_mix,
    what_there_is_not_is_refused,
    bad_arguments_are_refused_before_anything_is_sent,
    a_call_that_differs_is_an_error_on_all,
    a_call_ends_with_the_timeout_of_its_group,
)
TRAINING = (
    hsdp_learns_as_over_gloo,
    the_guide_is_right,
    replicate_learns,
    ddp_learns,
    functional_collectives_pass,
    low_rank_and_orthogonal_steps_learn,
)
ENDS = (a_killed_rank_is_named, ends_with_calls_of_its_own, one_leaves_while_others_wait)

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    folder, kind, *names = sys.argv[1:]
    if kind == "collectives":
        run_cases(COLLECTIVES, folder, *names)
    elif kind == "training":
        run_cases(TRAINING, folder, *names)
    elif kind == "default":
        is_the_default_group(folder)
    else:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=RANK, world_size=SIZE)
        {each.__name__: each for each in ENDS}[kind](folder)
