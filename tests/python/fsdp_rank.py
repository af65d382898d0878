# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of a job of fsdp_test.py: fsdp_rank.py FOLDER CASE [ARGUMENT]; writes FOLDER/RANK.json."""

import copy
import functools
import hashlib
import json
import os
import pathlib
import signal
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
)

import onebit.torch
from ddp_rank import residuals
from onebit.torch.backend import Options
from onebit.torch.fsdp import compress_replicas, compress_shards

RANK = int(os.environ["RANK"])
RANKS = int(os.environ["WORLD_SIZE"])
CLASSES, WIDTH, LENGTH = 64, 64, 32
SHARDS = 2
REPLICA = RANK // SHARDS


class Block(torch.nn.Module):
    """A block of a GPT."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.attention = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.inner = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.outer = torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        queries, keys, values = self.attention(self.norm(inputs)).chunk(3, -1)
        inputs = inputs + torch.nn.functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True
        )
        return inputs + self.outer(torch.nn.functional.gelu(self.inner(inputs)))


class Gpt(torch.nn.Module):
    """A GPT that predicts the next of `CLASSES` classes; its root has parameters of its own."""

    def __init__(self, is_tied: bool = False) -> None:
        super().__init__()
        self.classes = torch.nn.Embedding(CLASSES, WIDTH)
        self.places = torch.nn.Embedding(LENGTH, WIDTH)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.last = torch.nn.Linear(WIDTH, CLASSES, bias=False)
        self.register_buffer("offset", torch.randn(()))
        if is_tied:
            self.last.weight = self.classes.weight
        self.is_skipping = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        values = self.classes(inputs) + self.places(torch.arange(inputs.shape[1]))
        for block in self.blocks[: 1 if self.is_skipping else None]:
            values = block(values)
        return self.last(values)


def batch(step: int) -> tuple:
    """Sequences of this rank, each of which counts on by a step of its own."""
    generator = torch.Generator().manual_seed(1000 * RANK + step)
    first = torch.randint(CLASSES, (8, 1), generator=generator)
    stride = torch.randint(1, 4, (8, 1), generator=generator)
    sequence = (first + stride * torch.arange(LENGTH + 1)) % CLASSES
    return sequence[:, :-1], sequence[:, 1:]


def meshes() -> object:
    return init_device_mesh("cpu", (RANKS // SHARDS, SHARDS), mesh_dim_names=("replicate", "shard"))


MESH = None  # of this job


class Trainer:
    """A model that is sharded in each of RANKS / SHARDS replicas, with compress_replicas or, for way="native",
    as PyTorch does it; or, for way="shards", sharded over all ranks, with compress_shards unless codec="stock".
    """

    def __init__(
        self, way="replicas", codec="fp4", model=Gpt, policy=None, reshard=None, prepare=None, rate=3e-3, **options
    ):
        torch.manual_seed(REPLICA if way == "replicas" else 0)  # the first replica's parameters count
        self.model = model()
        if prepare is not None:
            prepare(self.model)
        mesh = {"native": MESH, "replicas": MESH["shard"], "shards": None}[way]
        arguments = {"mesh": mesh, "reshard_after_forward": reshard}
        if policy is not None:
            arguments["mp_policy"] = policy
        for block in self.model.blocks:
            fully_shard(block, **arguments)
        fully_shard(self.model, **arguments)
        self.state = None
        if way == "replicas":
            self.state = compress_replicas(self.model, MESH["replicate"], codec, **options)
        elif way == "shards" and codec != "stock":
            self.state = compress_shards(self.model, codec, **options)
        trained = [each for each in self.model.parameters() if each.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, rate)
        self.scaler = options.get("grad_scaler")
        self.step_number = 0

    def loss(self) -> torch.Tensor:
        inputs, classes = batch(self.step_number)
        self.step_number += 1
        return torch.nn.functional.cross_entropy(
            self.model(inputs).float().flatten(0, 1), classes.flatten()
        )

    def backward(self, micro_steps: int = 1) -> float:
        """Accumulates gradients."""
        self.optimizer.zero_grad()
        for number in range(micro_steps):
            self.model.set_requires_all_reduce(number == micro_steps - 1)
            loss = self.loss() / micro_steps
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return loss.item() * micro_steps

    def update(self) -> None:
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()

    def steps(self, count: int, micro_steps: int = 1) -> float:
        for _ in range(count):
            loss = self.backward(micro_steps)
            self.update()
        return loss

    def evaluate(self) -> float:
        """The loss on batches that are not trained on, averaged over ranks."""
        before, self.step_number = self.step_number, 100_000
        with torch.no_grad():
            loss = torch.stack([self.loss() for _ in range(4)]).mean()
        self.step_number = before
        dist.all_reduce(loss)
        return loss.item() / RANKS

    def parameters(self) -> torch.Tensor:
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        return torch.cat(
            [each.full_tensor().detach().float().flatten() for each in self.model.parameters()]
        )

    def digest(self) -> str:
        """Of the parameters, which are equal on all ranks."""
        found = hashlib.sha256(self.parameters().numpy()).hexdigest()
        every = [None] * RANKS
        dist.all_gather_object(every, found)
        assert len(set(every)) == 1, every
        return found

    def close(self):
        report = None
        if self.state is not None:
            self.state.close()
            report = self.state.report()
        return report


def refusal(function, *arguments, **options) -> str:
    """What an error says."""
    try:
        function(*arguments, **options)
    except (onebit.Error, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{function} raises nothing")


def full_precision(_argument: str) -> dict:
    """Without a codec parameters are those of HSDP, also with micro-steps of either kind."""
    found = {}
    for micro_steps, count in ((1, 20), (3, 6)):
        native, own = Trainer("native"), Trainer(codec=None)
        offsets = [None] * RANKS
        dist.all_gather_object(offsets, own.model.offset.item())
        assert offsets[RANK] == offsets[RANK % SHARDS], offsets
        for trainer in (native, own):
            trainer.steps(count, micro_steps)
        found[f"is_equal {micro_steps}"] = native.digest() == own.digest()
        report = own.close()
        assert [report.iterations, report.dense_iterations] == [count, count], report
        found[f"bytes {micro_steps}"] = [report.bytes_sent / count, report.dense_bytes / count]
    native, own = Trainer("native"), Trainer(codec=None)
    for trainer in (native, own):
        for number in range(6):
            trainer.model.set_requires_gradient_sync(number % 3 == 2)
            (trainer.loss() / 3).backward()
            if number % 3 == 2:
                trainer.update()
                trainer.optimizer.zero_grad()
    found["is_equal without sync"] = native.digest() == own.digest()
    found["iterations without sync"] = own.close().iterations
    return found


def learns(codec: str) -> dict:
    """Losses with and without a codec, and bytes."""
    native = Trainer("native")
    native.steps(60)
    trainer = Trainer(codec=codec)
    trainer.steps(2)
    before = trainer.state.report()
    trainer.steps(58)
    trainer.digest()
    after = trainer.state.report()
    found = {
        "loss": trainer.evaluate(),
        "dense_loss": native.evaluate(),
        "share": (after.bytes_sent - before.bytes_sent) / (after.dense_bytes - before.dense_bytes),
        "norms": after.residual_norms,
        "counts": [after.iterations, after.dense_iterations, after.skipped_iterations],
        "text": str(after),
    }
    before = after.bytes_sent
    trainer.steps(2, micro_steps=3)
    found["micro_step_share"] = (
        (trainer.state.report().bytes_sent - before) / (after.dense_bytes / 60) / 2
    )
    trainer.close()
    return found


def modes(_argument: str) -> dict:
    """What fully_shard is combined with: losses with and without a codec."""

    def wrap(model):
        for number, block in enumerate(model.blocks):
            model.blocks[number] = checkpoint_wrapper(block)

    def compile_blocks(model):
        for block in model.blocks:
            block.compile(backend="aot_eager")

    def freeze(model):
        model.places.requires_grad_(False)
        model.blocks[0].attention.requires_grad_(False)

    bf16, fp16 = torch.bfloat16, torch.float16
    ways = {
        "bf16, reduced in fp32": {
            "policy": MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=torch.float32)
        },
        "bf16, reduced in bf16": {"policy": MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=bf16)},
        "fp16 with a scaler": {
            "policy": MixedPrecisionPolicy(param_dtype=fp16, reduce_dtype=fp16),
            "grad_scaler": None,
        },
        "kept": {"reshard": False},
        "resharded": {"reshard": True},
        "checkpointed": {"prepare": wrap},
        "compiled": {"prepare": compile_blocks},
        "frozen": {"prepare": freeze},
        "tied": {"model": functools.partial(Gpt, is_tied=True)},
    }
    found = {}
    for name, options in ways.items():
        losses = []
        for way in ("native", "replicas"):
            if "grad_scaler" in options:
                options["grad_scaler"] = torch.amp.GradScaler(
                    "cpu", init_scale=2.0**20, growth_interval=7
                )
            trainer = Trainer(way, **options)
            trainer.steps(30)
            trainer.digest()
            losses.append(trainer.evaluate())
            report = trainer.close()
        assert report.iterations == 30 and set(report.residual_norms) == {
            "blocks.0",
            "blocks.1",
            "(root)",
        }, report
        found[name] = losses + [report.skipped_iterations]
    return found


def unused(_argument: str) -> dict:
    """A module and parameters without gradients in some steps."""
    trainer = Trainer()
    trainer.steps(4)
    trainer.model.is_skipping = True  # on all ranks, so that its hook is not called
    trainer.steps(3)
    trainer.model.is_skipping = False
    trainer.steps(3)
    trainer.digest()
    calls = trainer.state.report().iterations

    # A parameter of a module whose others have gradients.
    block = trainer.model.blocks[0]
    forward = block.forward
    block.forward = lambda inputs: inputs + block.norm(inputs)
    text = ""
    try:
        trainer.steps(1)
    except onebit.Error as error:
        text = str(error)  # of this rank, or that another one has failed
    trainer.close()

    kept = Trainer()
    kept.model.set_reduce_scatter_unused_params(True)
    kept.steps(4)
    block = kept.model.blocks[0]
    forward = block.forward
    block.forward = lambda inputs: inputs + block.norm(inputs)
    kept.steps(2)
    block.forward = forward
    kept.steps(2)
    kept.digest()
    report = kept.close()
    found = {"calls": calls, "text": text, "iterations": report.iterations}

    # A module that the last of two micro-steps does not use.
    for name, is_kept in (("late_text", False), ("late_equal", True)):
        digests = []
        for way in ("native", "replicas"):
            trainer = Trainer(way, codec=None)
            trainer.model.set_reduce_scatter_unused_params(is_kept)
            for number in range(2):
                trainer.model.is_skipping = number == 1
                trainer.model.set_requires_all_reduce(number == 1)
                try:
                    trainer.loss().backward()
                except onebit.InvalidUsage as error:
                    found[name] = str(error)
            trainer.update()
            digests.append(trainer.digest())
            trainer.close()
        found.setdefault(name, digests[0] == digests[1])
    return found


def outside(_argument: str) -> dict:
    """Averages outside of a backward pass, as schedules of pipelines make them."""
    trainer = Trainer(dense_iterations=0)
    state = trainer.state
    for number in range(3):
        for name in ("blocks.1", "blocks.0"):
            gradients = torch.ones(20000)
            gradients[0] = float("inf") if RANK == 1 and number == 2 and name == "blocks.0" else 1
            state._average(state._shards[name], gradients)
        if number == 1:
            before = state.state_dict("rank")
    after = state.state_dict("rank")
    report = trainer.close()
    return {
        "is_same": same_residuals(before, after),
        "counts": [report.iterations, report.skipped_iterations],
    }


def divide_factor(_argument: str) -> dict:
    """With a factor gradients are sums over all ranks, divided by it."""
    found = {}
    for factor in (1.0, 3.0):
        # Gloo multiplies in no reduce-scatter, so PyTorch divides after its sums.
        trainer = Trainer(codec=None)
        for module in trainer.model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(factor)
                module.set_force_sum_reduction_for_comms(True)
        trainer.backward()
        alone = Gpt()
        whole = get_model_state_dict(trainer.model)
        alone.load_state_dict(
            {
                name: getattr(each, "full_tensor", lambda each=each: each)()
                for name, each in whole.items()
            }
        )
        inputs, classes = batch(0)
        torch.nn.functional.cross_entropy(alone(inputs).flatten(0, 1), classes.flatten()).backward()
        errors = []
        for (name, one), own in zip(alone.named_parameters(), trainer.model.parameters()):
            expected = one.grad.double()
            dist.all_reduce(expected)
            expected /= factor
            got = own.grad.full_tensor().double()
            errors.append(float((got - expected).norm() / expected.norm()))
        found[str(factor)] = max(errors)
        trainer.close()
    # Without others in the shard, the compressed average is a sum, too.
    compressed = []
    for factor in (None, 1.0):
        trainer = Trainer(dense_iterations=0)
        for module in trainer.model.modules():
            if isinstance(module, FSDPModule) and factor is not None:
                module.set_gradient_divide_factor(factor)
                module.set_force_sum_reduction_for_comms(True)
        trainer.backward()
        compressed.append(
            torch.cat([each.grad.full_tensor().flatten() for each in trainer.model.parameters()])
        )
        trainer.close()
    found["compressed"] = float((compressed[1] / RANKS - compressed[0]).norm() / compressed[0].norm())
    return found


def same_residuals(before: dict, after: dict) -> bool:
    return all(torch.equal(blob, after["residuals"][name]) for name, blob in before["residuals"].items())


def skipped(_argument: str) -> dict:
    """Steps that are not finite in one shard, or thrown away, leave the residuals of all shards."""
    trainer = Trainer()
    trainer.steps(5)
    before = trainer.state.state_dict("rank")
    handles = []

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.clone()
        gradient[0] = float("inf")
        return gradient

    found = {}
    block = trainer.model.blocks[0]
    forward = block.forward

    def spoiled(inputs: torch.Tensor) -> torch.Tensor:
        if RANK == 1:  # the first elements of what is not sharded now are those of the first shard
            handles.append(block.inner.bias.register_hook(spoil))
        return forward(inputs)

    block.forward = spoiled
    trainer.backward()
    block.forward = forward
    for handle in handles:
        handle.remove()
    own = [each.grad.to_local() for each in trainer.model.parameters()]
    found["is_finite_here"] = all(bool(torch.isfinite(each).all()) for each in own)
    found["is_same"] = same_residuals(before, trainer.state.state_dict("rank"))
    found["skipped"] = trainer.state.report().skipped_iterations

    # Thrown away, because the trainer wants so.
    trainer.backward()
    found["has_changed"] = not same_residuals(before, trainer.state.state_dict("rank"))
    trainer.state.revert()
    found["is_reverted"] = same_residuals(before, trainer.state.state_dict("rank"))
    trainer.steps(3)
    trainer.digest()
    found["skipped_at_last"] = trainer.state.report().skipped_iterations
    trainer.close()
    return found


def failed_pass(_argument: str) -> dict:
    """A backward pass that fails on all ranks leaves residuals, and no sums of its micro-steps."""
    trainer = Trainer()
    trainer.steps(4)
    before = trainer.state.state_dict("rank")
    block = trainer.model.blocks[0]

    def fail(*_: object) -> None:
        raise ArithmeticError("on purpose")

    inputs, classes = batch(0)
    handle = block.register_full_backward_pre_hook(fail)
    trainer.model.set_requires_all_reduce(True)
    try:
        torch.nn.functional.cross_entropy(
            trainer.model(inputs).flatten(0, 1), classes.flatten()
        ).backward()
    except ArithmeticError:
        pass
    else:
        raise AssertionError("the backward pass has not failed")
    handle.remove()
    trainer.model.reset_iter_state()
    trainer.optimizer.zero_grad()
    trainer.backward()
    trainer.state.revert()
    is_same = same_residuals(before, trainer.state.state_dict("rank"))
    trainer.steps(2)
    trainer.digest()
    trainer.close()
    return {"is_same": is_same}


def save(folder: str) -> dict:
    """Trains, saves both kinds of states in the middle, and goes on."""
    trainer = Trainer()
    trainer.steps(6)
    everything = {
        "model": get_model_state_dict(trainer.model),
        "rank": trainer.state.state_dict("rank"),
        "global": trainer.state.state_dict(),
    }
    everything["parameters"] = trainer.parameters()
    everything["optimizer"] = copy.deepcopy(trainer.optimizer.state_dict())
    torch.save(
        {name: everything[name] for name in ("rank", "global")}, pathlib.Path(folder) / f"{RANK}.pt"
    )
    locals_ = [each.to_local().detach().clone() for each in trainer.model.parameters()]
    moments = [
        {name: value.to_local() if hasattr(value, "to_local") else value for name, value in each.items()}
        for each in everything["optimizer"]["state"].values()
    ]
    torch.save({"parameters": locals_, "moments": moments}, pathlib.Path(folder) / f"{RANK}.model")
    trainer.steps(4)
    digest = trainer.digest()
    trainer.close()
    return {"digest": digest, "shard": everything["rank"]["shard"]}


def resume(folder: str) -> dict:
    """Continues from saved states: of this rank if there are as many as before."""
    files = len(list(pathlib.Path(folder).glob("*.pt")))
    kind = "rank" if files == RANKS else "global"
    number = RANK if kind == "rank" else RANK % SHARDS
    states = torch.load(pathlib.Path(folder) / f"{number}.pt")
    saved = torch.load(pathlib.Path(folder) / f"{number}.model")
    trainer = Trainer()
    with torch.no_grad():
        for parameter, values, moments in zip(
            trainer.model.parameters(), saved["parameters"], saved["moments"]
        ):
            parameter.to_local().copy_(values)
            own = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            for name, moment in own.items():
                moment.to_local().copy_(moments[name])
            trainer.optimizer.state[parameter] = {"step": moments["step"].clone(), **own}
    found = {"texts": []}
    for shard in ([0, 4], [1 - RANK % SHARDS, SHARDS], None):
        found["texts"].append(refusal(trainer.state.load_state_dict, {**states[kind], "shard": shard}))
    trainer.state.load_state_dict(states[kind])
    trainer.step_number = 6
    trainer.steps(4 if kind == "rank" else 1)
    found["digest"] = trainer.digest()
    # The first step made the compressors; loaded again, the state must be what it was.
    trainer.state.load_state_dict(states["global"])
    again = trainer.state.state_dict()["residuals"]
    errors = []
    for name, blob in states["global"]["residuals"].items():
        owed, owed_again = (sum(residuals(each)) for each in (blob, again[name]))
        assert owed.norm() > 0
        errors.append(float((owed - owed_again).norm() / owed.norm()))
    found["error"] = max(errors)
    trainer.close()
    return found


def loss_of_a_rank(argument: str) -> dict:
    """The last rank is killed in the middle of a training; a codec, if given, compresses all-gathers."""
    trainer = Trainer()
    if argument:
        compress_shards(trainer.model, gather=argument)
    trainer.steps(4)
    store = dist.distributed_c10d._get_default_store()
    store.set(f"trained {RANK}", "")
    if RANK == RANKS - 1:
        store.wait([f"trained {rank}" for rank in range(RANKS)])
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        trainer.steps(2)
    except (RuntimeError, onebit.Error) as error:
        found = {"kind": type(error).__name__, "text": str(error), "seconds": time.monotonic() - begin}
        while not isinstance(trainer.state.failure, onebit.PeerLost) and time.monotonic() < begin + 30:
            time.sleep(0.05)  # a collective of PyTorch can fail before the state knows of the loss
        trainer.close()
        found["failure"] = [type(trainer.state.failure).__name__, str(trainer.state.failure)]
        return found
    return {"text": ""}


def shards(_argument: str) -> dict:
    """A model that is sharded over all ranks: losses and bytes."""
    found = {}
    in_bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for name, options in {
        "stock": {"codec": "stock"},
        "off": {"codec": None},
        "int8": {"codec": "int8"},
        "gathered": {"codec": "int8", "gather": "int8"},
        "gathered only": {"codec": None, "gather": "int8"},
        "lossless": {"codec": None, "gather": "lossless"},
        "slow bf16": {"codec": None, "policy": in_bf16, "rate": 1e-5},
        "slow lossless bf16": {"codec": None, "gather": "lossless", "policy": in_bf16, "rate": 1e-5},
        "ef": {"codec": "fp4", "mode": "ef"},
        "gathered, kept": {"codec": "int8", "gather": "int8", "reshard": False},
        "gathered, from fewer": {"codec": "int8", "gather": "int8", "reshard": 2},
        "bf16": {"codec": "int8", "policy": in_bf16},
        "fp16 with a scaler": {
            "codec": "int8",
            "mode": "ef",
            "policy": MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16),
            "grad_scaler": torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=7),
        },
    }.items():
        trainer = Trainer("shards", **options)
        if options["codec"] == "none":
            trainer.close()
        trainer.steps(60)
        trainer.digest()
        found[name] = {"loss": trainer.evaluate()}
        if trainer.state is not None:
            blobs = trainer.state.state_dict("rank")["residuals"]
            report = trainer.close()
            found[name]["share"] = report.bytes_sent / report.dense_bytes
            gathering = trainer.state._gathering
            found[name]["kept"] = 0 if gathering is None else len(gathering._compressors)
            found[name]["counts"] = [report.iterations, report.dense_iterations]
            found[name]["elements"] = sum(sum(map(len, residuals(blob))) for blob in blobs.values())
    found["parameters"] = sum(each.numel() for each in Gpt().parameters())
    return found


def resumed_shards(folder: str) -> dict:
    """Checkpoints of PyTorch have what they have without onebit; the residuals of a reduce-scatter continue."""
    found = {}
    states = []
    for name, options in {
        "stock": {"codec": "stock"},
        "own": {"gather": "int8", "codec": "fp4", "mode": "ef"},
    }.items():
        trainer = Trainer("shards", **options)
        trainer.steps(3)
        dcp.save({"model": get_model_state_dict(trainer.model)}, checkpoint_id=f"{folder}/{name}")
        states.append(
            (trainer.digest(), sorted(each.name for each in pathlib.Path(folder, name).iterdir()))
        )
    found["files"] = [files for _, files in states]
    state = {kind: trainer.state.state_dict(kind) for kind in ("rank", "global")}
    optimizer = copy.deepcopy(trainer.optimizer.state_dict())

    again = Trainer("shards", gather="int8", codec="fp4", mode="ef")
    whole = get_model_state_dict(again.model)
    dcp.load({"model": whole}, checkpoint_id=f"{folder}/own")
    found["is_loaded"] = again.digest() == states[1][0]
    again.optimizer.load_state_dict(optimizer)
    again.state.load_state_dict(state["rank"])
    again.step_number = trainer.step_number
    for each in (trainer, again):
        each.steps(3)
    found["is_continued"] = trainer.digest() == again.digest()
    again.state.load_state_dict(state["global"])
    owed = again.state.state_dict()["residuals"]
    found["errors"] = [
        float((sum(residuals(blob)) - sum(residuals(owed[name]))).norm() / sum(residuals(blob)).norm())
        for name, blob in state["global"]["residuals"].items()
    ]
    found["text"] = refusal(again.state.load_state_dict, {**state["global"], "shard": [0, 3]})
    trainer.close()
    again.close()
    return found


def both(_argument: str) -> dict:
    """Reduce-scatters and averages over replicas, each compressed by its own."""
    trainer = Trainer()
    inner = compress_shards(trainer.model)
    trainer.steps(40)
    trainer.digest()
    loss = trainer.evaluate()
    inner.close()
    trainer.close()
    # Closed ones may be replaced.
    compress_shards(trainer.model).close()
    compress_replicas(trainer.model, MESH["replicate"].get_group()).close()
    return {"loss": loss, "closed": refusal(trainer.steps, 1)}


def refusals(_argument: str) -> dict:
    """What is refused before any rank waits for another."""
    found = {}
    for name, function in (("replicas", compress_replicas), ("shards", compress_shards)):
        arguments = [MESH["replicate"]] if name == "replicas" else []
        found[f"{name} plain"] = refusal(function, Gpt(), *arguments)
        wrapped = FullyShardedDataParallel(Gpt(), device_id=torch.device("cpu"), use_orig_params=True)
        found[f"{name} FSDP1"] = refusal(function, wrapped, *arguments)
        trainer = Trainer(name)
        found[f"{name} twice"] = refusal(function, trainer.model, *arguments)
        trainer.close()
    found["State"] = refusal(onebit.torch.State, Trainer("native").model)
    found["native"] = refusal(compress_replicas, Trainer("native").model, MESH["replicate"])
    model = Trainer("shards", codec="stock").model
    found["mesh"] = refusal(compress_replicas, model, MESH)
    found["overlap"] = refusal(compress_replicas, model, MESH["replicate"])
    found["kind"] = refusal(compress_replicas, model, 2)
    found["gather"] = refusal(compress_shards, model, gather="topk")
    doors = {
        "State": lambda codec: onebit.torch.State(Gpt(), codec=codec),
        "Options": Options,
        "replicas": lambda codec: compress_replicas(model, MESH["replicate"], codec),
        "shards": lambda codec: compress_shards(model, codec),
    }
    found["codecs"] = [refusal(door, codec) for door in doors.values() for codec in ("int9", 1.5, ["fp4"])]
    found["auto"] = [refusal(door, "auto") for name, door in doors.items() if name != "State"]
    split = Gpt()
    fully_shard(split.blocks[0])
    fully_shard(split, mesh=MESH["shard"])
    found["sets"] = refusal(compress_shards, split)
    return found


def warned(function, *arguments, **options) -> list:
    """What a call has warned of, and for which line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state = function(*arguments, **options)
        line = sys._getframe().f_lineno - 1
    if hasattr(state, "close"):
        state.close()
    assert all((each.filename, each.lineno) == (__file__, line) for each in caught), caught
    return [str(each.message) for each in caught]


def doubts(_argument: str) -> dict:
    """What is warned of."""
    model = Trainer("shards", codec="stock").model
    found = {"lossy": {}, "fine": []}
    for codec in ("sign", "int2", "topk", "randk"):
        found["lossy"][codec] = [warned(compress_shards, model, codec), warned(Options, codec)]
        if codec not in ("sign", "int2"):
            found["fine"] += warned(compress_shards, model, codec, mode="ef")
    for codec in ("fp4", "int8", "uint8mm", "int8_stochastic", "bf16", None):
        found["fine"] += warned(compress_shards, model, codec) + warned(Options, codec)
    found["ef"] = warned(compress_shards, model, "sign", mode="ef")
    left = Gpt()
    for block in left.blocks:
        fully_shard(block, mesh=MESH["shard"])
    left.places.requires_grad_(False)
    found["left"] = [warned(compress_replicas, left, MESH["replicate"]), warned(compress_shards, left)]
    left.classes.requires_grad_(False)
    left.last.requires_grad_(False)
    found["fine"] += warned(compress_replicas, left, MESH["replicate"])
    found["dense replicas"] = warned(compress_shards, Trainer("native").model)
    mesh = init_device_mesh(
        "cpu", (2, 2), mesh_dim_names=("replicate", "shard"), backend_override={"replicate": "onebit"}
    )
    model = Gpt()
    fully_shard(model, mesh=mesh)
    found["fine"] += warned(compress_shards, model)
    return found


def main() -> None:
    global MESH  # pylint: disable=global-statement; all of a job's trainers share it
    folder, case, argument = (sys.argv[1:] + [""])[:3]
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=RANK, world_size=RANKS)
    torch.set_num_threads(1)
    MESH = meshes()
    found = globals()[case](argument)
    (pathlib.Path(folder) / f"{RANK}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
