# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of the job of torch_join_test.py: torch_join_rank.py FOLDER; writes FOLDER/RANK.json."""

import copy
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import onebit.torch
from rank_cases import RANK, run_cases
from torch_kinds import KINDS

RATE = 0.01
LAST = 9  # batches of the rank that has most


def batches(rank):
    return 3 * (rank + 1)


def network():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))


def loss_of(model, rank, number):
    generator = torch.Generator().manual_seed(100 * number + rank)
    return (model(torch.randn(8, 6, generator=generator)) - 1).pow(2).mean()


def assert_equal_on_all_ranks(model):
    own = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    first = own.clone()
    dist.broadcast(first, 0)
    assert torch.equal(own, first), "ranks differ"


def train(model, optimizer, joined, rank=RANK, **options):
    """The batches of a rank, with a rate that falls."""
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    with Join(joined, **options):
        for number in range(batches(rank)):
            optimizer.zero_grad()
            loss_of(model, rank, number).backward()
            optimizer.step()
            scheduler.step()


def uneven_batches_average_zeros():
    """The mean is over all ranks, with the rate and the decay of those that have batches."""
    model, expected = network(), network()
    options = {"lr": RATE, "weight_decay": 0.1}
    optimizer = onebit.torch.optim.OnebitAdam(model.named_parameters(), freeze_step="never", **options)
    train(model, optimizer, [optimizer])
    assert optimizer.stats().step == LAST
    adam = torch.optim.AdamW(expected.parameters(), **options)
    scheduler = torch.optim.lr_scheduler.StepLR(adam, 2, 0.5)
    for number in range(LAST):
        adam.zero_grad()
        for rank in range(dist.get_world_size()):
            if number < batches(rank):
                (loss_of(expected, rank, number) / dist.get_world_size()).backward()
        adam.step()
        scheduler.step()
    for parameter, other in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(parameter, other)
    assert_equal_on_all_ranks(model)
    optimizer.close()


def each_kind_goes_on_together():
    kinds = {**KINDS, onebit.torch.optim.ShardedOnebitAdam: {"freeze_step": 4}}
    for kind, options in kinds.items():
        for is_wrapped in (False, True):
            model = network()
            optimizer = kind(model.parameters(), RATE, **options)
            called, joined = model, [optimizer]
            if is_wrapped:  # its own averages would be second ones
                called = DistributedDataParallel(model)
                called.register_comm_hook(None, noop_hook)
                joined = [called, optimizer]
            train(called, optimizer, joined)
            assert optimizer.stats().step == LAST
            if kind is onebit.torch.optim.ZeroOneAdam:
                optimizer.synchronize()
            assert_equal_on_all_ranks(model)
            rate = optimizer.param_groups[0]["lr"]
            assert rate == RATE * 0.5 ** ((LAST - 1) // 2) or RANK == dist.get_world_size() - 1, rate
            optimizer.close()


def an_end_may_be_an_error():
    model = network()
    optimizer = onebit.torch.optim.OnebitAdam(model.parameters(), RATE, freeze_step=2)
    try:
        train(model, optimizer, [optimizer], throw_on_early_termination=True)
    except RuntimeError as error:
        assert "exhausted" in str(error), error
    else:
        raise AssertionError("no error")
    assert optimizer.stats().step == batches(0)
    loss_of(model, RANK, 0).backward()
    optimizer.step()
    assert_equal_on_all_ranks(model)
    optimizer.close()


def a_communicator_cannot_join():
    (communicator,) = onebit.Communicator.init_all(1)
    optimizer = onebit.torch.optim.OnebitAdam(network().parameters(), communicator=communicator)
    try:
        with Join([optimizer]):
            pass
    except onebit.InvalidUsage as error:
        assert "pass process_group instead" in str(error), error
    else:
        raise AssertionError("no error")
    communicator.close()


def matrices_and_the_rest_have_optimizers_of_their_own():
    """Muon steps matrices, whose gradients the hook averages, and OnebitAdam the rest, which DDP leaves alone."""

    def make():
        model = network()
        matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
        rest = [(name, parameter) for name, parameter in model.named_parameters() if parameter.dim() == 1]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [name for name, _ in rest])
        replica = DistributedDataParallel(model)
        hook = onebit.torch.State(replica, dense_iterations=2)
        replica.register_comm_hook(hook, onebit.torch.ddp_hook)
        muon = getattr(torch.optim, "Muon", torch.optim.SGD)(matrices, lr=RATE)
        return replica, hook, [muon, onebit.torch.optim.OnebitAdam(rest, RATE, freeze_step=3)]

    def step(made, numbers):
        replica, _, optimizers = made
        for number in numbers:
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss_of(replica, RANK, number).backward()
            for optimizer in optimizers:
                optimizer.step()
            assert_equal_on_all_ranks(replica)

    first, second = make(), make()
    step(first, range(6))
    saved = [each.state_dict() for each in (first[0].module, *first[2])] + [first[1].state_dict("rank")]
    for each, state in zip((second[0].module, *second[2], second[1]), copy.deepcopy(saved)):
        each.load_state_dict(state)
    for made in (first, second):
        step(made, range(6, 9))
    for parameter, other in zip(first[0].parameters(), second[0].parameters()):
        assert torch.equal(parameter, other), "the run that was resumed differs"
    for _, hook, (_, optimizer) in (first, second):
        hook.close()
        optimizer.close()


CASES = (
    uneven_batches_average_zeros,
    each_kind_goes_on_together,
    an_end_may_be_an_error,
    a_communicator_cannot_join,
    matrices_and_the_rest_have_optimizers_of_their_own,
)

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    run_cases(CASES, *sys.argv[1:])
