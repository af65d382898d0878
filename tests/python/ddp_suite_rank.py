# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of the job of ddp_suite_test.py: ddp_suite_rank.py FOLDER [CASE...]; writes FOLDER/RANK.json.

Each case asks of the hook what tests of PyTorch ask of DDP, mostly without a hook. In full precision it must
leave what DDP without it leaves; compressed, the same bytes on all ranks. A case that this PyTorch cannot pass
without the hook either returns why. torch_suite.md has the tests of PyTorch.
"""

import contextlib
import copy
import sys
from typing import Optional

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import onebit.torch
from ddp_contract_rank import IS_1, averaged, is_close, refused
from ddp_rank import RANK, RANKS, assert_equal_on_all_ranks, digest
from rank_cases import run_cases

ALWAYS = 10**9  # iterations
linear = torch.nn.Linear


def inputs(step: int, rows: int = 4) -> torch.Tensor:
    """Those of this rank."""
    return torch.randn(rows, 40, generator=torch.Generator().manual_seed(100 * step + RANK))


class Chain(torch.nn.Module):
    """Two layers and one that nobody uses; `parts` says which of them a forward pass uses."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first, self.second, self.unused = linear(40, 40), linear(40, 40), linear(40, 40)

    def forward(self, points, parts=("first", "second")):
        for part in parts:
            points = torch.relu(getattr(self, part)(points))
        return points


def chain() -> torch.nn.Module:
    """One that is used as a whole."""
    torch.manual_seed(2)
    return torch.nn.Sequential(linear(40, 40), torch.nn.ReLU(), linear(40, 30))


class Hooked:
    """A model under DDP with the hook, which can be closed; beside one without it."""

    def __init__(self, model, dense_iterations=ALWAYS, codec="fp4", wrap=None, **options):
        self.plain = DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=0.01, **options)
        self.ddp = DistributedDataParallel(model, bucket_cap_mb=0.01, **options)
        self.state = onebit.torch.State(self.ddp, codec=codec, dense_iterations=dense_iterations)
        hook = onebit.torch.ddp_hook
        self.ddp.register_comm_hook(self.state, hook if wrap is None else wrap(hook))

    def both(self, loss_of) -> None:
        """A backward pass of each, of a loss that loss_of(ddp) gives."""
        for ddp in (self.plain, self.ddp):
            loss_of(ddp).backward()

    def steps(self, count, loss_of=lambda ddp, step: ddp(inputs(step)).pow(2).sum()) -> None:
        """Steps of SGD after which both must have the same gradients and parameters."""
        for step in range(count):
            for ddp in (self.plain, self.ddp):
                ddp.zero_grad(set_to_none=step % 2 == 0)
            self.both(lambda ddp, step=step: loss_of(ddp, step))
            self.compare()
            with torch.no_grad():
                for ddp in (self.plain, self.ddp):
                    for parameter in ddp.parameters():
                        if parameter.grad is not None:
                            parameter.sub_(1e-3 * parameter.grad)

    def compare(self) -> None:
        for (name, expected), found in zip(self.plain.named_parameters(), self.ddp.parameters()):
            assert (expected.grad is None) == (found.grad is None), (name, found.grad)
            assert expected.grad is None or is_close(found.grad, expected.grad), name

    def assert_replicas(self) -> None:
        assert_equal_on_all_ranks(digest(parameter.detach() for parameter in self.ddp.parameters()))


@contextlib.contextmanager
def hooked(model, **options):
    made = Hooked(model, **options)
    yield made
    made.state.close()


# --------------------------------------------------------------------------------------------- hooks


def parity_with_no_hook() -> None:
    """In full precision, and close to it with int8."""
    group = dist.new_group(list(range(RANKS)))
    modes = [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"process_group": group}]
    if not IS_1:
        modes.append({"bucket_cap_mb_list": [0.01, 0.02]})
    for mode in modes:
        with hooked(chain(), **mode) as both:
            both.steps(4)
            assert both.state.report().dense_iterations == 4
        with hooked(chain(), codec="int8", dense_iterations=0, **mode) as both:
            both.both(lambda ddp: ddp(inputs(0)).pow(2).sum())
            for expected, found in zip(both.plain.parameters(), both.ddp.parameters()):
                assert (found.grad - expected.grad).norm() < 0.02 * expected.grad.norm()


def a_hook_is_registered_once() -> None:
    """DDP says which one it has, refuses another, and goes on with the first."""
    with hooked(chain()) as both:
        assert both.ddp._get_ddp_logging_data()["comm_hook"] == "ddp_hook"
        text = refused(RuntimeError, both.ddp.register_comm_hook, both.state, onebit.torch.ddp_hook)
        assert "only be called once" in text, text
        assert "callable" in refused(TypeError, both.plain.register_comm_hook, both.state, both.state)
        both.steps(2)


def futures_can_be_continued() -> None:
    """What a hook around ours makes of its future is the gradient."""

    def doubling(hook):
        return lambda state, bucket: hook(state, bucket).then(lambda future: 2 * future.value())

    for dense_iterations, error in ((ALWAYS, 1e-6), (0, 0.05)):
        for wrap, factor in ((doubling, 2), (lambda hook: doubling(doubling(hook)), 4)):
            with hooked(chain(), wrap=wrap, codec="int8", dense_iterations=dense_iterations) as both:
                both.both(lambda ddp: ddp(inputs(0)).sum())
                for expected, found in zip(both.plain.parameters(), both.ddp.parameters()):
                    expected = factor * expected.grad
                    assert (found.grad - expected).norm() <= error * expected.norm()


def casts_to_16_bits_surround_it() -> None:
    """PyTorch's wrappers of hooks hand over a bucket in another type than that of its parameters."""
    wrappers = [default_hooks.fp16_compress_wrapper]
    if not IS_1:  # gloo of 1.13 has no bfloat16 for the first buckets
        wrappers.append(default_hooks.bf16_compress_wrapper)
    for wrap in wrappers:
        for dense_iterations, error in ((ALWAYS, 0.01), (0, 0.05)):
            with hooked(chain(), wrap=wrap, codec="int8", dense_iterations=dense_iterations) as both:
                for step in range(3):
                    for ddp in (both.plain, both.ddp):
                        ddp.zero_grad()
                    both.both(lambda ddp, step=step: ddp(inputs(step)).sum())
                    for expected, found in zip(both.plain.parameters(), both.ddp.parameters()):
                        assert found.grad.dtype == torch.float32
                        assert (found.grad - expected.grad).norm() <= error * expected.grad.norm()
                compressed = {"0.weight", "2.weight"} if dense_iterations == 0 else set()
                assert set(both.state.report().residual_norms) == compressed


def an_optimizer_can_follow_in_the_hook() -> None:
    """PyTorch's own way to step in the backward pass leaves what a step after it leaves."""
    from torch.distributed.algorithms.ddp_comm_hooks import optimizer_overlap_hooks as overlap
    from torch.distributed.optim.functional_sgd import _FunctionalSGD

    inner = overlap._OptimizerHookState(_FunctionalSGD([], lr=0.01, _allow_empty_param_list=True))
    with hooked(chain(), wrap=lambda hook: overlap._hook_then_optimizer(hook, inner)) as both:
        optimizer = torch.optim.SGD(both.plain.parameters(), lr=0.01)
        for step in range(3):
            for ddp in (both.plain, both.ddp):
                ddp.zero_grad()
            both.both(lambda ddp, step=step: ddp(inputs(step)).pow(2).sum())
            optimizer.step()
            for expected, found in zip(both.plain.parameters(), both.ddp.parameters()):
                assert torch.allclose(found, expected, rtol=1e-5, atol=1e-7), step


# -------------------------------------------------------------------------------- what DDP averages


def gradients_accumulate_without_sync() -> None:
    with hooked(chain()) as both:
        for ddp in (both.plain, both.ddp):
            with torch.no_grad(), ddp.no_sync():  # which accumulates nothing
                ddp(inputs(9))
        for step in range(4):
            for ddp in (both.plain, both.ddp):
                with ddp.no_sync() if step % 2 == 0 else contextlib.nullcontext():
                    ddp(inputs(step)).pow(2).sum().backward()
            both.compare()
            own = [digest([parameter.grad]) for parameter in both.ddp.parameters()]
            all_own = [None] * RANKS
            dist.all_gather_object(all_own, own)
            assert (len(set(map(tuple, all_own))) == 1) == (step % 2 == 1)
        assert both.state.report().iterations == 2


def unused_gradients_are_left_alone() -> None:
    """A parameter that no rank uses keeps its gradient or None; what one rank uses, all get. With
    gradient_as_bucket_view DDP averages a gradient that it keeps once more, so a codec rounds it anew."""
    for dense_iterations in (ALWAYS, 0):
        for mode in ({}, {"gradient_as_bucket_view": True})[: 2 if dense_iterations else 1]:
            with hooked(
                Chain(), dense_iterations=dense_iterations, find_unused_parameters=True, **mode
            ) as both:
                parts = ("first", "second") if RANK == 0 else ("first",)
                for step in range(3):
                    both.ddp.zero_grad(set_to_none=True)
                    both.ddp(inputs(step), parts).sum().backward()
                    assert both.ddp.module.unused.weight.grad is None
                    assert both.ddp.module.second.weight.grad.any()
                    both.assert_replicas()
                # The output of a layer is dropped: what it had stays.
                both.ddp.zero_grad(set_to_none=True)
                both.ddp(inputs(3)).sum().backward()
                before = both.ddp.module.second.weight.grad.clone()
                for step in range(3):
                    both.ddp(inputs(step), ("first",)).sum().backward()
                    assert torch.equal(both.ddp.module.second.weight.grad, before)


def graphs_may_differ_between_ranks() -> None:
    """In every second iteration rank 1 alone uses a layer."""
    with hooked(Chain(), find_unused_parameters=True) as both:

        def loss_of(ddp, step):
            return ddp(inputs(step), ("first", "second") if RANK == step % 2 == 1 else ("first",)).sum()

        both.steps(6, loss_of)


def ranks_agree_after_accumulation_of_different_layers() -> Optional[str]:
    if IS_1:
        return "DDP of PyTorch 1 forgets what a pass without sync has used"

    class Four(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.layers = torch.nn.ModuleList(linear(40, 1) for _ in range(4))

        def forward(self, points, micro_step):
            return self.layers[2 * RANK + micro_step](points)

    for dense_iterations in (ALWAYS, 0):
        with hooked(Four(), dense_iterations=dense_iterations, find_unused_parameters=True) as both:
            with both.ddp.no_sync():
                both.ddp(inputs(0), 0).sum().backward()
            both.ddp(inputs(1), 1).sum().backward()
            gradients = [parameter.grad for parameter in both.ddp.parameters()]
            assert all(gradient is not None for gradient in gradients)
            assert_equal_on_all_ranks(digest(gradients))
    return None


def undefined_gradients_stay_undefined() -> None:
    with hooked(chain(), find_unused_parameters=True) as both:
        for ddp in (both.plain, both.ddp):
            torch._C._functions.UndefinedGrad()(ddp(inputs(0)).sum()).backward()
        both.compare()
        assert all(parameter.grad is None for parameter in both.ddp.parameters())


def outputs_may_be_ignored() -> None:
    for model, unused in ((chain(), False), (Chain(), True)):
        with hooked(model, find_unused_parameters=unused) as both:
            for step in range(3):
                for ddp in (both.plain, both.ddp):
                    ddp(inputs(step))
            both.steps(3)
            assert both.state.report().iterations == 3


def shared_unused_parameters_are_one() -> None:
    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.unused = linear(40, 5, bias=False)
            self.bias = torch.nn.Parameter(torch.zeros(5))
            self.unused.bias = self.bias
            self.used = linear(40, 5)

        def forward(self, points):
            return self.used(points)

    for static in (False, True):
        with hooked(Shared(), find_unused_parameters=True, static_graph=static) as both:
            both.steps(4)


def static_graphs_take_several_forward_passes() -> Optional[str]:
    if IS_1:
        return "DDP of PyTorch 1 takes the second pass for a change of the graph"
    with hooked(chain(), static_graph=True) as both:
        both.steps(3, lambda ddp, step: ddp(inputs(step)).sum() + ddp(inputs(step + 50)).pow(2).sum())
    return None


def graphs_of_gradients_can_be_kept() -> None:
    """backward(create_graph=True), of which DDP warns; it works with a parameter alone in its bucket."""

    class One(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parameter = torch.nn.Parameter(torch.tensor(1.0))

        def forward(self):
            return self.parameter.pow(2 + RANK)

    with hooked(One()) as both:
        for _ in range(4):
            for ddp in (both.plain, both.ddp):
                ddp().backward(create_graph=True)
            both.compare()
            assert both.ddp.module.parameter.requires_grad
        assert float(both.ddp.module.parameter.grad) == 4 * 2.5


def ignored_parameters_have_no_residuals() -> None:
    for static in (False, True):
        model = Chain()
        # They differ in shape, so that an average of them would fail.
        model.unused = linear(40, 40 + RANK)
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
            model, ["unused.weight", "unused.bias"]
        )
        with hooked(model, dense_iterations=0, static_graph=static) as both:
            both.ddp.module.unused = linear(40, 10)  # DDP knows nothing of it
            for step in range(3):
                both.ddp.zero_grad(set_to_none=True)
                both.ddp(inputs(step), ("first", "second", "unused")).sum().backward()
                own = both.ddp.module.unused.weight.grad
                assert not is_close(own, averaged(own))
                assert_equal_on_all_ranks(digest([both.ddp.module.first.weight.grad]))
            assert set(both.state.state_dict("rank")["residuals"]) == {"first.weight", "second.weight"}


def checkpointed_layers_are_averaged() -> None:
    """Activation checkpointing of one layer, once or twice, shared, or by turns."""

    class Checkpointed(torch.nn.Module):
        def __init__(self, times=1, is_shared=False, is_dynamic=False, use_reentrant=True):
            super().__init__()
            torch.manual_seed(3)
            self.first, self.second = linear(40, 40), linear(40, 40)
            if is_shared:
                self.first.weight = self.second.weight
            self.times, self.is_dynamic, self.use_reentrant = times, is_dynamic, use_reentrant
            self.turn = 0

        def forward(self, points):
            if self.is_dynamic:
                self.turn += 1
                layer = self.first if self.turn % 2 else self.second
                return checkpoint(layer, points, use_reentrant=self.use_reentrant)
            points = self.first(points)
            for _ in range(self.times):
                points = checkpoint(self.second, points, use_reentrant=self.use_reentrant)
            return points

    def loss_of(ddp, step):
        return ddp(inputs(step).requires_grad_()).pow(2).sum()

    for use_reentrant in (False, True):
        for times, shared, static in ((1, False, False), (1, False, True), (2, False, True), (2, True, True)):
            with hooked(
                Checkpointed(times, shared, use_reentrant=use_reentrant), static_graph=static
            ) as both:
                both.steps(3, loss_of)
    for shared in (False, True):
        model = Checkpointed(1, shared, is_dynamic=True, use_reentrant=False)
        with hooked(model, find_unused_parameters=True) as both:
            both.steps(4, loss_of)


def functional_calls_leave_the_model_alone() -> None:
    """Gradients go to the parameters that were given; afterwards the model trains on."""
    if hasattr(torch, "func"):
        call = torch.func.functional_call
    else:
        from torch.nn.utils.stateless import functional_call as call
    with hooked(chain()) as both:
        for ddp in (both.plain, both.ddp):
            given = {
                name: torch.zeros_like(parameter).requires_grad_()
                for name, parameter in ddp.named_parameters()
            }
            call(ddp, given, inputs(0)).sum().backward()
            assert all(parameter.grad is None for parameter in ddp.parameters())
            assert given["module.2.bias"].grad is not None
        assert both.state.report().iterations == 0


def one_rank_may_evaluate() -> None:
    with hooked(chain()) as both:
        both.steps(2)
        if RANK == 0:
            for ddp in (both.plain, both.ddp):
                ddp.eval()
                with torch.no_grad():
                    ddp.module(inputs(0))
                ddp(inputs(1))
                ddp.train()
        both.steps(2)


def a_model_is_saved_and_loaded_in_between() -> None:
    """Its state_dict() has no trace of the hook, and fits a model without DDP."""
    with hooked(chain(), dense_iterations=1) as both, hooked(chain(), dense_iterations=1) as other:
        optimizers = [torch.optim.SGD(each.ddp.parameters(), 0.01) for each in (both, other)]
        for step in range(6):
            for each, optimizer in zip((both, other), optimizers):
                optimizer.zero_grad()
                each.ddp(inputs(step)).pow(2).sum().backward()
                optimizer.step()
            if step == 2:
                saved = copy.deepcopy(both.ddp.state_dict())
                with torch.no_grad():
                    for parameter in both.ddp.parameters():
                        parameter.zero_()
                both.ddp.load_state_dict(saved)
                torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(saved, "module.")
                chain().load_state_dict(saved)
        for one, same in zip(both.ddp.parameters(), other.ddp.parameters()):
            assert torch.equal(one, same)


# --------------------------------------------------------------------------------------------- errors


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(_context, points):
        return points.clone()

    @staticmethod
    def backward(_context, _gradient):
        raise RuntimeError("a backward pass fails")


def errors_of_a_backward_pass_leave_the_rest() -> None:
    """After an error on all ranks the State can be closed, and the model trains under a new DDP."""

    def unused(both):
        both.ddp(inputs(0), ("first",)).sum().backward()
        both.ddp(inputs(1), ("first",)).sum().backward()

    def changed(both):
        both.ddp(inputs(0), ("first",)).sum().backward()
        both.ddp(inputs(1), ("first", "second")).sum().backward()
        both.ddp(inputs(2), ("first", "second")).sum().backward()

    def failing(both):
        both.ddp(Failing.apply(inputs(0).requires_grad_()), ("first", "second", "unused")).sum().backward()

    for raising, mode, said in (
        (unused, {}, "Expected to have finished reduction"),
        (changed, {"static_graph": True}, "training graph has changed"),
        (failing, {}, "a backward pass fails"),
    ):
        for dense_iterations in (ALWAYS, 0):
            model = Chain()
            with hooked(model, dense_iterations=dense_iterations, **mode) as both:
                text = refused(RuntimeError, raising, both)
                assert said in text, text
                assert both.state.failure is None
            if hasattr(both.ddp, "_remove_autograd_hooks"):
                both.ddp._remove_autograd_hooks()
            else:
                model = copy.deepcopy(model)
            model.zero_grad(set_to_none=True)
            with hooked(model, find_unused_parameters=True) as both:
                both.steps(3)


# ---------------------------------------------------------------------------------------------- join


def uneven(model, batches, loss_of, interval=1, **options) -> None:
    """Trains within join(), in full precision and compressed, and compares replicas at the end."""
    for dense_iterations in (ALWAYS, 1):
        with hooked(model(), dense_iterations=dense_iterations, **options) as both:
            for ddp in (both.plain, both.ddp):
                optimizer = torch.optim.SGD(ddp.parameters(), 1e-3)
                with ddp.join():
                    for step in range(batches):
                        optimizer.zero_grad(set_to_none=False)
                        with ddp.no_sync() if step % interval else contextlib.nullcontext():
                            loss_of(ddp, step).backward()
                        optimizer.step()
                assert ddp._authoritative_rank == RANKS - 1
            assert both.ddp._get_ddp_logging_data()["join_uneven_inputs"]
            both.assert_replicas()
            if dense_iterations == ALWAYS:
                for expected, found in zip(both.plain.parameters(), both.ddp.parameters()):
                    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


def ranks_join_early() -> None:
    """One without any batch, too, which shadows what DDP does as it rebuilds its buckets."""
    for first, second in ((0, 4), (2, 5)):
        for interval in (1, 3):
            uneven(
                chain, second if RANK else first, lambda ddp, step: ddp(inputs(step)).pow(2).sum(), interval
            )


def ranks_join_with_unused_parameters() -> None:
    for who in (0, 1):
        parts = ("first",) if RANK == who else ("first", "second")
        uneven(
            Chain,
            5 if RANK else 2,
            lambda ddp, step, parts=parts: ddp(inputs(step), parts).sum(),
            find_unused_parameters=True,
        )


def join_may_throw() -> None:
    """At the first rank without batches, on all; averages and residuals are whole."""
    for dense_iterations in (ALWAYS, 0):
        with hooked(chain(), dense_iterations=dense_iterations) as both:
            taken = []

            def train(both=both, taken=taken):
                with both.ddp.join(throw_on_early_termination=True):
                    for step in range(3 + 3 * RANK):
                        both.ddp(inputs(step)).sum().backward()
                        taken.append(step)

            text = refused(RuntimeError, train)
            assert ("exhausted all inputs" if RANK == 0 else "at least one rank") in text, text
            assert taken == [0, 1, 2] and both.state.report().iterations == 3
            both.ddp.zero_grad()
            both.ddp(inputs(7)).sum().backward()
            assert_equal_on_all_ranks(digest(parameter.grad for parameter in both.ddp.parameters()))


def join_may_be_disabled() -> None:
    with hooked(chain()) as both:
        with both.ddp.join(enable=False), both.plain.join(enable=False):
            both.steps(3)
        assert not both.ddp._join_config.enable
        both.assert_replicas()


def an_exception_leaves_join() -> None:
    with hooked(chain()) as both:

        def train():
            with both.ddp.join():
                both.ddp(inputs(0)).sum().backward()
                raise ValueError("a batch is bad")

        assert refused(ValueError, train) == "a batch is bad"
        assert both.state.report().iterations == 1


def several_models_join_together() -> None:
    """Two models with hooks, and an optimizer whose steps are collective. With the hook gradients of
    both are divided by the ranks that are left, without it those of the first only."""
    for options in ({}, {"divide_by_initial_world_size": False}):
        for dense_iterations in (ALWAYS, 1):
            with hooked(chain(), dense_iterations=dense_iterations) as first:
                with hooked(chain(), dense_iterations=dense_iterations) as second:
                    for one, other in ((first.plain, second.plain), (first.ddp, second.ddp)):
                        optimizer = ZeroRedundancyOptimizer(
                            one.parameters(), optimizer_class=torch.optim.SGD, lr=0.01
                        )
                        with Join([one, other, optimizer], **options):
                            for step in range(2 + 3 * RANK):
                                for ddp in (one, other):
                                    ddp.zero_grad(set_to_none=False)
                                    ddp(inputs(step)).pow(2).sum().backward()
                                optimizer.step()
                    for each in (first, second):
                        assert each.state.report().iterations == 5
                        each.assert_replicas()
                    if dense_iterations == ALWAYS and RANK == 1:
                        first.compare()
                        model = second.ddp.module  # which nobody updates
                        own = torch.autograd.grad(model(inputs(4)).pow(2).sum(), list(model.parameters()))
                        for parameter, gradient in zip(model.parameters(), own):
                            assert is_close(parameter.grad, gradient / (1 if options else RANKS))


CASES = (
    parity_with_no_hook,
    a_hook_is_registered_once,
    futures_can_be_continued,
    casts_to_16_bits_surround_it,
    an_optimizer_can_follow_in_the_hook,
    gradients_accumulate_without_sync,
    unused_gradients_are_left_alone,
    graphs_may_differ_between_ranks,
    ranks_agree_after_accumulation_of_different_layers,
    undefined_gradients_stay_undefined,
    outputs_may_be_ignored,
    shared_unused_parameters_are_one,
    static_graphs_take_several_forward_passes,
    graphs_of_gradients_can_be_kept,
    ignored_parameters_have_no_residuals,
    checkpointed_layers_are_averaged,
    functional_calls_leave_the_model_alone,
    one_rank_may_evaluate,
    a_model_is_saved_and_loaded_in_between,
    errors_of_a_backward_pass_leave_the_rest,
    ranks_join_early,
    ranks_join_with_unused_parameters,
    join_may_throw,
    join_may_be_disabled,
    an_exception_leaves_join,
    several_models_join_together,
)

if __name__ == "__main__":
    run_cases(CASES, *sys.argv[1:])
