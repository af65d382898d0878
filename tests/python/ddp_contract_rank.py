# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of the job of ddp_contract_test.py: ddp_contract_rank.py FOLDER; writes FOLDER/RANK.json.

Each case compares the hook with what DDP promises its users, in full precision.
"""

import atexit
import contextlib
import copy
import io
import pickle
import sys
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import onebit.torch
from ddp_rank import RANK, RANKS, assert_equal_on_all_ranks, digest, residuals
from rank_cases import found_by, write

IS_1 = torch.__version__ < "2"


class Forged:
    """A bucket as DDP might hand it over."""

    def __init__(self, buffer, gradients, parameters, index=0, is_last=True):
        self._all = buffer, gradients, parameters, index, is_last

    def buffer(self):
        return self._all[0]

    def gradients(self):
        return self._all[1]

    def parameters(self):
        return self._all[2]

    def index(self):
        return self._all[3]

    def is_last(self):
        return self._all[4]


def said(recorded) -> list:
    """The hook's warnings."""
    return [str(each.message) for each in recorded if "full precision" in str(each.message)]


def noise(*shape, dtype=torch.float32, seed=0) -> torch.Tensor:
    """Numbers of this rank."""
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(1000 * seed + RANK))


def averaged(tensor: torch.Tensor) -> torch.Tensor:
    mean = tensor.clone()
    dist.all_reduce(torch.view_as_real(mean) if mean.is_complex() else mean)
    return mean / RANKS


def is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((found - expected).norm() <= 1e-6 * expected.norm())


# --------------------------------------------------------------------------------------------- cases


class Two(torch.nn.Module):
    """Parameters of a bucket."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(64, 48, dtype=dtype))
        self.second = torch.nn.Parameter(torch.zeros(32, 40, dtype=dtype))


def forged_buckets() -> dict:
    """A bucket whose parts are not its buffer is averaged as a whole, in full precision, and says so once."""
    first, second = 64 * 48, 32 * 40
    whole = first + second

    def parts(buffer, begin, end):
        return [buffer[begin:first].view(-1), buffer[end:whole]]

    def fewer(buffer):
        return [buffer[:first].view(64, 48), buffer[first : first + second // 2]]

    def shifted(buffer):
        return [buffer[1 : first + 1].view(64, 48), buffer[first : first + second].view(32, 40)]

    def overlapping(buffer):
        return [buffer[:first].view(64, 48), buffer[first - 100 : whole - 100].view(32, 40)]

    def twice(buffer):
        return [buffer[:first].view(64, 48), buffer[:second].view(32, 40)]

    def elsewhere(buffer):
        return [buffer[:first].view(64, 48), torch.ones(32, 40)]

    def beyond(buffer):
        return [buffer[:first].view(64, 48), torch.as_strided(buffer, (32, 40), (41, 1), first - 40)]

    def repeated(buffer):
        return [buffer[:first].view(64, 48), buffer[first : first + 40].expand(32, 40)]

    def of_another_type(buffer):
        return [buffer[:first].view(64, 48), buffer[first:].view(torch.int32).view(32, 40)]

    def too_few(buffer):
        return [buffer[:first].view(64, 48)]

    def none(_buffer):
        return []

    wrong = [fewer, shifted, overlapping, twice, elsewhere, beyond, repeated, of_another_type, too_few, none]
    found = {}
    for forge in wrong:
        model = Two()
        state = onebit.torch.State(model, dense_iterations=0)
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            for step in range(2):
                buffer = noise(whole, seed=step)
                expected = averaged(buffer)
                bucket = Forged(buffer, forge(buffer), [model.first, model.second])
                result = onebit.torch.ddp_hook(state, bucket).wait()
                assert is_close(result, expected), (forge.__name__, step)
        assert len(said(recorded)) == 1 and "first, second" in said(recorded)[0], said(recorded)
        found[forge.__name__] = 1
        state.close()

    # In another order, and with layouts that are no rows, the buffer is compressed.
    model = Two()
    state = onebit.torch.State(model, dense_iterations=0)
    buffer = noise(whole)
    expected = averaged(buffer)
    second_first = [buffer[second:].view(48, 64).t(), buffer[:second].view(32, 40)]
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        result = onebit.torch.ddp_hook(state, Forged(buffer, second_first, [model.first, model.second])).wait()
    assert not said(recorded)
    assert not is_close(result, expected) and (result - expected).norm() < 0.2 * expected.norm()
    assert_equal_on_all_ranks(digest([result]))
    state.close()

    model = Two()
    state = onebit.torch.State(model)
    try:
        buffer = torch.ones(whole, dtype=torch.int64)
        onebit.torch.ddp_hook(state, Forged(buffer, [], [model.first, model.second]))
    except onebit.InvalidArgument as error:
        assert "first, second are torch.int64" in str(error), error
    else:
        raise AssertionError("integers have no average")
    for dtype in (torch.complex64, torch.complex128):
        buffer = noise(whole, dtype=dtype)
        expected = averaged(buffer)
        views = [buffer[:first].view(64, 48), buffer[first:].view(32, 40)]
        result = onebit.torch.ddp_hook(state, Forged(buffer, views, [model.first, model.second])).wait()
        assert is_close(result, expected) and result.dtype == dtype, dtype
    state.close()
    return found


class AllKinds(torch.nn.Module):
    """Parameters of every type and layout that this PyTorch's DDP takes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.matrix = torch.nn.Parameter(torch.randn(96, 64))
        self.fp64 = torch.nn.Parameter(torch.randn(48, 32, dtype=torch.float64))
        self.nothing = torch.nn.Parameter(torch.zeros(0))  # the DDP of 1.13 takes none of more dimensions
        self.turned = torch.nn.Parameter(torch.randn(50, 60).t())
        self.image = torch.nn.Conv2d(8, 16, 3).to(memory_format=torch.channels_last)
        self.frozen = torch.nn.Parameter(torch.randn(30, 30), requires_grad=False)
        self.shared = torch.nn.ModuleList([torch.nn.Linear(40, 40), torch.nn.Linear(40, 40)])
        self.shared[1].weight = self.shared[0].weight
        if not IS_1:  # DDP over the gloo of 1.13 cannot begin with them
            self.waves = torch.nn.Parameter(torch.randn(32, 24, dtype=torch.complex64))
            self.bf16 = torch.nn.Parameter(torch.randn(64, 64, dtype=torch.bfloat16))

    def weights(self, step: int) -> dict:
        """The gradient of each parameter on this rank."""
        return {
            name: noise(*parameter.shape, dtype=parameter.dtype, seed=step)
            for name, parameter in self.named_parameters()
            if parameter.requires_grad
        }

    def forward(self, weights):
        products = [
            torch.view_as_real((self.get_parameter(name) * weight.conj()).resolve_conj()).select(-1, 0).sum()
            if weight.is_complex()
            else (self.get_parameter(name) * weight).sum().double()
            for name, weight in weights.items()
        ]
        return sum(products)


def all_kinds_of_parameters() -> dict:
    """Each average is that of full precision, or close to it where it is compressed."""
    model = AllKinds()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.02)
    state = onebit.torch.State(ddp, codec="int8", dense_iterations=1)
    ddp.register_comm_hook(state, onebit.torch.ddp_hook)
    compressed = {"matrix", "turned", "image.weight", "shared.0.weight", "bf16"}
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        for step in range(4):
            model.zero_grad()
            weights = model.weights(step)
            ddp(weights).backward()
            for name, weight in weights.items():
                expected, gradient = averaged(weight), model.get_parameter(name).grad
                assert gradient.dtype == weight.dtype and gradient.shape == weight.shape, name
                error = (gradient - expected).norm() / expected.norm().clamp(min=1e-30)
                is_lossy = step > 0 and name in compressed
                assert error < (0.03 if is_lossy or name == "bf16" else 1e-6), (name, step, error)
                assert_equal_on_all_ranks(digest([torch.view_as_real(gradient) if gradient.is_complex() else gradient]))
    names = set(state.report().residual_norms)
    assert names == {name for name in compressed if hasattr(model, name.split(".")[0])}, names
    texts = sorted(said(recorded))
    state.close()
    return {"texts": texts}


def sparse_gradients() -> dict:
    """They are averaged in full precision, and the hook says what lets them be compressed."""
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Embedding(50, 16, sparse=True), torch.nn.Linear(16, 16))
    ddp = DistributedDataParallel(model)
    state = onebit.torch.State(ddp, dense_iterations=1)
    ddp.register_comm_hook(state, onebit.torch.ddp_hook)
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        for step in range(3):
            model.zero_grad()
            rows = torch.tensor([RANK, 7, 7, 20 + step])
            ddp(rows).sum().backward()
            found = model[0].weight.grad
            assert found.is_sparse
            dense = torch.zeros(50, 16)
            dense.index_add_(0, rows, model[1].weight.detach().sum(0).expand(4, -1).contiguous())
            assert is_close(found.to_dense(), averaged(dense)), step
    texts = said(recorded)
    state.close()
    return {"texts": texts}


class Weighted(torch.nn.Module):
    """Each gradient is a sum of tensors that the test gives."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        shapes = {"first": (96, 64), "second": (70, 50), "third": (40, 90)}
        for name, shape in shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.randn(shape)))

    def weights(self, step: int, unused: str = "") -> dict:
        return {
            name: noise(*parameter.shape, seed=step)
            for name, parameter in self.named_parameters()
            if name != unused
        }

    def forward(self, weights):
        return sum((getattr(self, name) * weight).sum() for name, weight in weights.items())


class Ledger:
    """What averages were, what the trainer took of them, and what is still owed."""

    def __init__(self, **options):
        self.model = Weighted()
        self.ddp = DistributedDataParallel(self.model, bucket_cap_mb=0.02, **options)
        self.state = onebit.torch.State(self.ddp, dense_iterations=1)
        self.ddp.register_comm_hook(self.state, onebit.torch.ddp_hook)
        self.taken = {name: torch.zeros_like(each) for name, each in self.model.named_parameters()}
        self.averages = {name: torch.zeros_like(each) for name, each in self.model.named_parameters()}

    def step(self, step: int, unused: str = "", micro_steps: int = 1) -> dict:
        """A backward pass; returns what the average of each gradient is."""
        self.model.zero_grad(set_to_none=True)
        total = {}
        for micro_step in range(micro_steps):
            weights = self.model.weights(100 * micro_step + step, unused)
            for name, weight in weights.items():
                total[name] = total.get(name, 0) + weight
            with self.ddp.no_sync() if micro_step < micro_steps - 1 else contextlib.nullcontext():
                self.ddp(weights).backward()
        return {name: averaged(total.get(name, torch.zeros_like(each))) for name, each in self.taken.items()}

    def take(self, averages: dict) -> None:
        for name, average in averages.items():
            gradient = self.model.get_parameter(name).grad
            assert gradient is not None or not average.any(), name
            if gradient is not None:
                self.taken[name] += gradient
            self.averages[name] += average

    def error(self) -> float:
        """How far taken averages and what is owed are from the sum of all averages."""
        states = self.state.state_dict()["residuals"]
        assert set(states) == {name for name, each in self.averages.items() if each.any()}, states.keys()
        errors = []
        own = self.state.state_dict("rank")["residuals"]
        for name, norm in self.state.report().residual_norms.items():
            expected = float(residuals(own[name])[0].double().norm())
            assert abs(norm - expected) <= 1e-6 * expected, (name, norm, expected)
        for name, blob in states.items():
            owed = sum(residuals(blob)).view_as(self.taken[name])
            assert owed.norm() > 0.01 * self.averages[name].norm(), name
            wrong = self.taken[name] + owed - self.averages[name]
            errors.append(float(wrong.norm() / self.averages[name].norm()))
        self.state.close()
        return max(errors)


def dropped_steps() -> dict:
    """Steps that a trainer throws away after backward(), told by revert(), are still owed."""
    ledger = Ledger()
    for step in range(9):
        averages = ledger.step(step)
        if step % 3 == 2:
            before = ledger.state.report().skipped_iterations  # asks in between, which changes nothing
            ledger.state.revert()
            ledger.state.revert()
            assert ledger.state.report().skipped_iterations == before + 1
        else:
            ledger.take(averages)
    error = ledger.error()
    forgetful = Ledger()
    for step in range(9):
        averages = forgetful.step(step)
        if step % 3 != 2:
            forgetful.take(averages)
    return {"error": error, "error_without_revert": forgetful.error()}


def modes_with_residuals() -> dict:
    """What is taken and what is owed are the averages, in each of DDP's modes."""
    modes = {
        "plain": ({}, {}),
        "view": ({"gradient_as_bucket_view": True}, {}),
        "static": ({"static_graph": True}, {}),
        "accumulating": ({}, {"micro_steps": 3}),
        "unused": ({"find_unused_parameters": True}, {}),
    }
    if not IS_1:
        modes["skipping"] = ({"find_unused_parameters": True, "skip_all_reduce_unused_params": True}, {})
    found = {}
    for mode, (options, step_options) in modes.items():
        ledger = Ledger(**options)
        for step in range(8):
            # By turns one that nobody uses, one that only a rank uses, none.
            unused = "second" if step % 3 == 1 or (step % 3 == 2 and RANK == 1) else ""
            unused = {"unused": unused, "skipping": "first"}.get(mode, "")
            ledger.take(ledger.step(step, unused, **step_options))
        report = ledger.state.report()
        assert [report.iterations, report.dense_iterations] == [8, 1], (mode, report)
        found[mode] = ledger.error()
    return found


def uneven_batches() -> dict:
    """Within join() ranks whose batches are used up count as DDP documents, and keep their residual."""
    found = {}
    for by_all in (True, False):
        ledger = Ledger()
        batches = 5 if RANK == 1 else 9
        with ledger.ddp.join(divide_by_initial_world_size=by_all):
            for step in range(batches):
                ledger.model.zero_grad(set_to_none=True)
                weights = ledger.model.weights(step)
                ledger.ddp(weights).backward()
                for name, parameter in ledger.model.named_parameters():
                    ledger.taken[name] += parameter.grad
        for name, parameter in ledger.model.named_parameters():
            dist.broadcast(ledger.taken[name], 0)  # which took all of them
        for step in range(9):
            has_all = step < 5
            for name, average in ledger.averages.items():
                weight = ledger.model.weights(step)[name]
                mean = averaged(weight if has_all or RANK == 0 else torch.zeros_like(weight))
                average += mean if by_all or has_all else RANKS * mean
        assert ledger.state.report().iterations == 9
        found["all" if by_all else "remaining"] = ledger.error()
    return found


def refused(kind, call, *arguments) -> str:
    """The text with which a call is refused."""
    try:
        call(*arguments)
    except kind as error:
        return str(error)
    raise AssertionError(f"{call} is not refused")


def same(state, expected: dict) -> bool:
    """Tells if a State's residuals and iteration are those of a saved state."""
    now = state.state_dict("rank")
    blobs = expected["residuals"]
    return now["iteration"] == expected["iteration"] and now["residuals"].keys() == blobs.keys() and all(
        torch.equal(blob, blobs[name]) for name, blob in now["residuals"].items()
    )


def loaded_states() -> dict:
    """A load takes over all of a state, by the names of parameters, or nothing."""
    ledger = Ledger()
    for step in range(3):
        ledger.step(step)
    state = ledger.state
    first = state.state_dict("rank")
    ledger.step(3)
    second = state.state_dict("rank")
    texts = {}
    damaged = {**first, "residuals": dict(first["residuals"])}
    damaged["residuals"]["third"] = damaged["residuals"]["third"].clone()
    damaged["residuals"]["third"][-20:] ^= 255
    texts["damaged"] = refused(onebit.Error, state.load_state_dict, damaged)
    fresh = onebit.torch.State(ledger.model)
    for each, before in ((state, second), (fresh, {"iteration": 0, "residuals": {}})):
        refused(onebit.Error, each.load_state_dict, damaged)
        for iteration in (None, -1, "3", 2.0, True):
            texts["iteration"] = refused(onebit.InvalidArgument, each.load_state_dict, {**first, "iteration": iteration})
        turned = {**first, "orders": {**first["orders"], "third": [1, 0]}}
        texts["turned"] = refused(onebit.InvalidArgument, each.load_state_dict, turned)
        for key in ("iteration", "kind", "residuals"):
            part = {name: value for name, value in first.items() if name != key}
            assert key in refused(onebit.InvalidArgument, each.load_state_dict, part)
        for wrong in (None, [], {**first, "kind": "some"}, {**first, "residuals": [1]},
                      {**first, "residuals": {"first": b"12"}}, {**first, "residuals": {"x": torch.zeros(1).byte()}},
                      {**first, "residuals": {**first["residuals"], "module.first": first["residuals"]["first"]}}):
            refused(onebit.InvalidArgument, each.load_state_dict, wrong)
        assert same(each, before)

    # Names of compiled and wrapped models, in both directions; a state is also saved before its first call.
    for prefix in ("module.", "_orig_mod.", "module._orig_mod.module."):
        renamed = {prefix + name: blob for name, blob in first["residuals"].items()}
        fresh.load_state_dict({**first, "residuals": renamed})
        assert same(fresh, first), prefix
    everything = fresh.state_dict()
    fresh.close()
    holder = torch.nn.Module()
    holder.add_module("_orig_mod", ledger.model)  # as torch.compile does it
    compiled = onebit.torch.State(torch.nn.Sequential(ledger.model) if IS_1 else holder)
    renamed = {f"0.{name}" if IS_1 else name: blob for name, blob in everything["residuals"].items()}
    compiled.load_state_dict({**everything, "residuals": renamed})
    compiled.close()

    # Residuals of parameters that are gone, frozen or left out are dropped, and said once.
    model = Weighted()
    model.first.requires_grad_(False)
    ddp = DistributedDataParallel(model)
    partial = onebit.torch.State(ddp, dense_iterations=0, compress=lambda each: each.shape[0] != 70)
    ddp.register_comm_hook(partial, onebit.torch.ddp_hook)
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        partial.load_state_dict({**everything, "residuals": {**everything["residuals"], "gone": torch.zeros(1).byte()}})
    (texts["dropped"],) = [str(each.message) for each in recorded if "dropped" in str(each.message)]
    assert set(partial.state_dict("rank")["residuals"]) == {"third"}
    ddp({name: each for name, each in model.weights(9).items() if name != "first"}).backward()
    for kind in ("rank", "global"):
        assert set(partial.state_dict(kind)["residuals"]) == {"third"}
    partial.close()

    # The next average pays what was loaded, as if nobody had stopped.
    state.load_state_dict(first)
    assert same(state, first)
    ledger.step(3)
    assert same(state, second)
    state.revert()
    assert same(state, {**first, "iteration": 4})
    state.load_state_dict(first)
    state.revert()
    assert same(state, first)

    report = state.report()
    state.close()
    assert state.report() == report
    texts["closed"] = [
        refused(onebit.InvalidUsage, call)
        for call in (state.state_dict, state.revert, lambda: state.load_state_dict(first))
    ]
    texts["closed"].append(refused(Exception, lambda: ledger.step(4)))
    return texts


def copied_models() -> dict:
    """A wrapped model with the hook can be copied, averaged and saved; the copies have no State."""
    ledger = Ledger()
    ledger.step(0)
    copied = copy.deepcopy(ledger.ddp)
    average = AveragedModel(ledger.ddp)
    average.update_parameters(ledger.ddp)
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        buffer = io.BytesIO()
        torch.save(ledger.ddp, buffer)
        buffer.seek(0)
        loaded = torch.load(buffer) if IS_1 else torch.load(buffer, weights_only=False)
        pickled = pickle.loads(pickle.dumps(ledger.state))
    texts = [str(each.message) for each in recorded if "use state_dict()" in str(each.message)]
    assert len(texts) >= 1
    for each in (copied, loaded):
        for name, parameter in ledger.model.named_parameters():
            assert torch.equal(parameter, each.module.get_parameter(name))
        # It averages in full precision, until it gets a State of its own.
        each(ledger.model.weights(1)).backward()
    text = refused(onebit.InvalidUsage, getattr, pickled, "report")
    refused(onebit.InvalidUsage, getattr, copy.deepcopy(ledger.state), "average")
    ledger.step(1)
    ledger.state.close()
    return {"text": text}


CASES = (
    forged_buckets,
    all_kinds_of_parameters,
    sparse_gradients,
    dropped_steps,
    modes_with_residuals,
    uneven_batches,
    loaded_states,
    copied_models,
)


def main() -> None:
    folder = sys.argv[1]
    found = found_by(CASES, *sys.argv[1:])
    # Functions for the program's end run in reverse order: one before the State is closed, one after.
    reports = []
    open_until_the_end = []

    def write_reports() -> None:
        reports.append(open_until_the_end[0].report().iterations)
        found["reports_at_the_end"] = reports
        write(folder, found)

    atexit.register(write_reports)
    ledger = Ledger()
    ledger.step(0)
    ledger.step(1)
    open_until_the_end.append(ledger.state)
    atexit.register(lambda: reports.append(ledger.state.report().iterations))
    dist.barrier()


if __name__ == "__main__":
    main()
