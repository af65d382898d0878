# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of the jobs of own_averaging_test.py: own_averaging_rank.py FOLDER [CASE...]; writes FOLDER/RANK.json."""

import gc
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import onebit.torch
from gloo_calls import reduced_elements
from onebit.torch.optim import OnebitAdam, own_averaging
from rank_cases import RANK, run_cases
from torch_kinds import KINDS

RATE = 0.01
STEPS = 10
# Gloo of PyTorch 1.13 moves no bfloat16.
TYPES = (torch.float32, torch.bfloat16) if torch.__version__ >= "2" else (torch.float32,)


def network(dtype=torch.float32):
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(6, 50), torch.nn.Tanh(), torch.nn.Linear(50, 3))
    return model.to(dtype)


def elements_of(model):
    return sum(parameter.numel() for parameter in model.parameters())


def loss_of(model, rank, number):
    generator = torch.Generator().manual_seed(100 * number + rank)
    inputs = torch.randn(8, 6, generator=generator).to(next(model.parameters()).dtype)
    return (model(inputs) - 1).pow(2).mean()


def train(model, optimizer, steps=STEPS, source=lambda _number: RANK, change=lambda _number: None):
    """Steps, of which number `n` has the batch of rank source(n), and gradients that change(n) has changed.
    Returns the warnings of averages that are not the optimizer's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(steps):
            optimizer.zero_grad()
            loss_of(model, source(number), number).backward()
            change(number)
            optimizer.step()
    return [str(each.message) for each in caught if "gradients were equal" in str(each.message)]


def on_rank_0(warned):
    """They are the same on all ranks, so one of them is enough."""
    assert len(warned) == (RANK == 0), warned
    if RANK == 0:
        (text,) = warned
        for remedy in ("own_averaging(model)", "own_averaging(engine)", "the Trainer", "DistributedSampler"):
            assert remedy in text, text


def parameters_of(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def averaged_gradients_are_noticed():
    """Of all optimizers, in both types, at the first bytes that DDP has sent in vain."""
    for kind, options in KINDS.items():
        for dtype in TYPES:
            model = network(dtype)
            optimizer = kind(model.named_parameters(), RATE, **options)
            replica = DistributedDataParallel(model)
            counted = []
            reduced = reduced_elements(lambda: counted.append(train(replica, optimizer, 3)))
            assert sum(reduced) >= 3 * elements_of(model), reduced
            on_rank_0(counted[0])
            assert train(replica, optimizer) == [], "it is said again"
            optimizer.close()


def the_remedy_ends_it():
    """DDP then reduces nothing, and the parameters are those of a model that nothing wraps."""
    for kind, options in KINDS.items():
        for dtype in TYPES:
            model, alone = network(dtype), network(dtype)
            optimizer = kind(model.named_parameters(), RATE, **options)
            replica = DistributedDataParallel(model)
            own_averaging(replica)
            counted = []
            reduced = reduced_elements(lambda: counted.append(train(replica, optimizer)))
            assert reduced == [], reduced
            assert counted == [[]], counted
            expected = kind(alone.named_parameters(), RATE, **options)
            assert train(alone, expected) == []
            assert torch.equal(parameters_of(model), parameters_of(alone)), "it trains otherwise"
            optimizer.close()
            expected.close()


def a_compiled_model_has_a_remedy():
    for compiles_first in (False, True):
        model = network()
        optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=4)
        if compiles_first:
            outer = replica = DistributedDataParallel(torch.compile(model, backend="eager"))
        else:
            replica = DistributedDataParallel(model)
            outer = torch.compile(replica, backend="eager")
        own_averaging(outer)
        reduced = reduced_elements(lambda m=outer, o=optimizer: train(m, o))
        assert reduced == [], reduced
        optimizer.close()


def own_gradients_are_compared_once():
    """One small call in the first step, and none in those that follow."""
    calls = {}
    for is_compared in (False, True):
        model = network()
        optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=4)
        if not is_compared:
            optimizer._own_gradients.compare = lambda gradients: None
        counts = []
        for number in range(STEPS):
            before = optimizer._communicator.stats()
            train(model, optimizer, 1, source=lambda _, n=number: RANK + 10 * n)
            now = optimizer._communicator.stats()
            made = [getattr(now, name) - getattr(before, name) for name in ("dense_calls", "logical_bytes")]
            counts.append(made)
        calls[is_compared] = counts
        optimizer.close()
    more = [[a - b for a, b in zip(*pair)] for pair in zip(calls[True], calls[False])]
    assert more == [[1, 16]] + (STEPS - 1) * [[0, 0]], more


def what_is_equal_for_a_while_is_no_average():
    """The same batch on all ranks, in the first two steps only; zeros and overflows in any number."""

    def fill(model, value, last):
        def change(number):
            if number < last:
                for parameter in model.parameters():
                    parameter.grad.fill_(value)

        return change

    for kind, options in KINDS.items():
        model = network()
        optimizer = kind(model.named_parameters(), RATE, **options)
        assert train(model, optimizer, source=lambda number: max(RANK * (number > 1), 0)) == []
        optimizer.close()
        for value in (0.0, -0.0, float("nan"), float("inf")):
            model = network()
            optimizer = kind(model.named_parameters(), RATE, **options)
            assert train(model, optimizer, change=fill(model, value, 5)) == [], value
            # Averages behind them are noticed all the same.
            model = network()
            replica = DistributedDataParallel(model)
            optimizer_of_replica = kind(model.named_parameters(), RATE, **options)
            on_rank_0(train(replica, optimizer_of_replica, change=fill(model, value, 5)))
            optimizer.close()
            optimizer_of_replica.close()


def the_same_batches_are_named():
    model = network()
    optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=4)
    on_rank_0(train(model, optimizer, source=lambda number: 0))
    optimizer.close()


def gradients_differ_by_their_places():
    """Rows of an embedding: each rank has the same numbers, but in another row."""
    torch.manual_seed(5)
    model = torch.nn.Embedding(40, 4)
    optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(STEPS):
            optimizer.zero_grad()
            model(torch.tensor([(number + 20 * RANK) % 40])).sum().backward()
            optimizer.step()
    optimizer.close()


def a_missing_gradient_is_no_average():
    """A rank that uses a parameter, and one that does not."""
    model = network()
    optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=4)

    def drop(_number):
        for parameter in model[-1].parameters():
            parameter.grad = None if RANK == 0 else parameter.grad

    assert train(model, optimizer, source=lambda number: 0, change=drop) == []
    optimizer.close()


def scaled_gradients_are_averages_too():
    """As GradScaler does it: gradients in the unit of scaled losses, and the scale as an attribute."""
    for is_averaged in (False, True):
        model = network()
        optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=4)
        replica = DistributedDataParallel(model)
        if not is_averaged:
            own_averaging(replica)
        optimizer.grad_scale = torch.tensor(1024.0)

        def scale(_number, model=model):
            for parameter in model.parameters():
                parameter.grad.mul_(1024.0)

        warned = train(replica, optimizer, change=scale)
        if is_averaged:
            on_rank_0(warned)
        else:
            assert warned == [], warned
        optimizer.close()


def ranks_without_batches_raise_no_alarm():
    for first, is_averaged in ((0, False), (5, False), (5, True)):
        model = network()
        optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=4)
        called, joined = model, [optimizer]
        if is_averaged:
            called = DistributedDataParallel(model)
            joined = [called, optimizer]
        with Join(joined):
            warned = train(called, optimizer, first + 3 * RANK)
        assert optimizer.stats().step == first + 3 * (dist.get_world_size() - 1)
        if is_averaged:
            on_rank_0(warned)
        else:
            assert warned == [], warned
        optimizer.close()


def one_rank_is_alone():
    model = network()
    (communicator,) = onebit.Communicator.init_all(1)
    optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=4, communicator=communicator)
    before = communicator.stats().dense_calls
    assert train(model, optimizer, 1) == []
    per_step = communicator.stats().dense_calls - before
    assert train(model, optimizer, 2) == []
    assert communicator.stats().dense_calls - before == 3 * per_step
    optimizer.close()
    communicator.close()


def an_optimizer_of_pytorch_averages_nothing():
    """It is said once, at the first backward pass."""
    gc.collect()  # the optimizers of other cases
    model = network()
    replica = DistributedDataParallel(model)
    own_averaging(replica)
    optimizer = torch.optim.AdamW(model.parameters())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(3):
            loss_of(replica, RANK, number).backward()
            optimizer.step()
    said = [str(each.message) for each in caught if "no optimizer of onebit" in str(each.message)]
    assert len(said) == (RANK == 0), said


def refused(given, kind, *words):
    try:
        own_averaging(given)
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"no error for a {type(given).__name__}")


def what_has_no_remedy_is_refused():
    refused("model", onebit.InvalidArgument, "takes a model that DistributedDataParallel wraps", "a str")
    refused(network(), onebit.InvalidArgument, "does not wrap this Sequential", "accelerator.prepare")
    replica = DistributedDataParallel(network())
    replica.register_comm_hook(None, fp16_compress_hook)
    refused(replica, onebit.InvalidUsage, "another communication hook")
    replica = DistributedDataParallel(network())
    state = onebit.torch.State(replica)
    replica.register_comm_hook(state, onebit.torch.ddp_hook)
    refused(replica, onebit.InvalidUsage, "another communication hook")
    state.close()
    if torch.__version__ >= "2":
        replica = DistributedDataParallel(network())
        own_averaging(replica)
        own_averaging(replica)  # nothing more to do
    try:
        onebit.torch.attach(replica)
    except onebit.InvalidArgument as error:
        assert "takes a Trainer of transformers, not a DistributedDataParallel" in str(error), error
    else:
        raise AssertionError("no error")


CASES = [
    averaged_gradients_are_noticed,
    the_remedy_ends_it,
    own_gradients_are_compared_once,
    what_is_equal_for_a_while_is_no_average,
    the_same_batches_are_named,
    gradients_differ_by_their_places,
    a_missing_gradient_is_no_average,
    scaled_gradients_are_averages_too,
    ranks_without_batches_raise_no_alarm,
    one_rank_is_alone,
    an_optimizer_of_pytorch_averages_nothing,
    what_has_no_remedy_is_refused,
]
if hasattr(torch, "compile"):
    CASES.append(a_compiled_model_has_a_remedy)

if __name__ == "__main__":
    run_cases(CASES, *sys.argv[1:])
