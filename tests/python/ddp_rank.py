# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank of a job of ddp_test.py: ddp_rank.py FOLDER CASE [ARGUMENT]; writes FOLDER/RANK.json."""

import copy
import datetime
import hashlib
import json
import os
import pathlib
import signal
import struct
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import onebit.torch

FEATURES = 64
HIDDEN = 256  # its matrices have more elements than one exchange takes
CLASSES = 8
RANK = int(os.environ["RANK"])
RANKS = int(os.environ["WORLD_SIZE"])
kept = []  # until the process ends


def network(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, CLASSES),
    )


def batch(step: int, rank: int = RANK) -> tuple:
    """Points of this rank, and the classes of a fixed linear map."""
    answers = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(1))
    points = torch.randn(64, FEATURES, generator=torch.Generator().manual_seed(1000 * rank + step))
    return points, (points @ answers).argmax(1)


class Trainer:
    """A model under DDP with the hook, or without one if `codec` is None."""

    def __init__(self, codec="fp4", model=None, ddp=None, **options):
        self.model = network() if model is None else model
        # Small buckets, so that there are several, and others after the first iteration.
        self.ddp = DistributedDataParallel(self.model, bucket_cap_mb=0.1, **(ddp or {}))
        self.state = None
        if codec is not None:
            self.state = onebit.torch.State(self.ddp, codec=codec, **options)
            self.ddp.register_comm_hook(self.state, onebit.torch.ddp_hook)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 2e-3)
        self.step_number = 0

    def loss(self) -> torch.Tensor:
        points, classes = batch(self.step_number)
        points = points.to(next(self.model.parameters()).dtype)
        return torch.nn.functional.cross_entropy(self.ddp(points).float(), classes)

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        self.step_number += 1
        return loss.item()

    def steps(self, count: int) -> float:
        """Trains; every rank must have the same parameters after each step."""
        for _ in range(count):
            loss = self.step()
            assert_equal_on_all_ranks(self.digest())
        return loss

    def digest(self) -> str:
        return digest(parameter.detach() for parameter in self.model.parameters())

    def close(self) -> None:
        if self.state is not None:
            self.state.close()


def digest(tensors) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.contiguous().view(torch.uint8 if tensor.dim() else tensor.dtype).numpy())
    return found.hexdigest()


def assert_equal_on_all_ranks(value, group=None) -> None:
    values = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group)
    assert len(set(values)) == 1, values


def sections(blob: torch.Tensor) -> dict:
    """The sections of a compressor's state, by their tags."""
    state = bytes(blob.numpy())
    offset, count = struct.unpack_from("<II", state, 24)
    found = {}
    for row in range(count):
        tag, _, length = struct.unpack_from("<IIQ", state, 40 + 24 * row)
        found[tag] = state[offset : offset + length]
        offset += (length + 7) // 8 * 8
    return found


def residuals(blob: torch.Tensor) -> list:
    """The sections of fp32 numbers of a compressor's state: of workers, and of servers."""
    found = sections(blob)
    return [torch.frombuffer(bytearray(found[tag]), dtype=torch.float32) for tag in (2, 3) if tag in found]


def worker_elements(blob: torch.Tensor) -> int:
    """The elements whose residual a rank has as a worker."""
    return len(sections(blob).get(2, b"")) // 4


def is_same(one: dict, other: dict) -> bool:
    """Tells if states of a hook have the same residuals."""
    ours, others = one["residuals"], other["residuals"]
    return ours.keys() == others.keys() and all(torch.equal(blob, others[name]) for name, blob in ours.items())


# --------------------------------------------------------------------------------------------- cases


def learns(codec: str) -> dict:
    """Loss with and without the hook, and bytes per compressed iteration."""
    dense = Trainer(None)
    expected = dense.steps(40)
    trainer = Trainer(codec)
    trainer.steps(10)
    before = trainer.state.report()
    loss = trainer.steps(30)
    report = trainer.state.report()
    trainer.close()
    matrices = [parameter.numel() for parameter in trainer.model.parameters() if parameter.dim() > 1]
    others = [parameter.numel() for parameter in trainer.model.parameters() if parameter.dim() == 1]
    return {
        "dense_loss": expected,
        "loss": loss,
        "bytes": (report.bytes_sent - before.bytes_sent) / 30,
        "matrices": matrices,
        "others": others,
        "iterations": report.iterations,
        "dense_iterations": report.dense_iterations,
        "text": str(report),
        "residuals": sorted(report.residual_norms),
    }


def modes_of_ddp(_argument: str) -> dict:
    """DDP's own options and types, each with equal parameters on all ranks after every step."""

    class Branches(torch.nn.Module):
        """Uses one of two layers, by turns."""

        def __init__(self):
            super().__init__()
            self.first, self.branches = network()[0], torch.nn.ModuleList(
                [torch.nn.Linear(HIDDEN, CLASSES) for _ in range(2)]
            )
            self.calls = 0

        def forward(self, points):
            self.calls += 1
            return self.branches[self.calls % 2](self.first(points).relu())

    torch.manual_seed(0)
    trainers = {
        "view": Trainer(ddp={"gradient_as_bucket_view": True}),
        "unused": Trainer(model=Branches(), ddp={"find_unused_parameters": True}),
        "static": Trainer(ddp={"static_graph": True}),
        "fp64": Trainer(model=network().double()),
        "plain": Trainer(codec="int8", mode="plain", block=128),
    }
    if int(torch.__version__.split(".")[0]) >= 2:  # DDP over the gloo of 1.13 cannot begin with it
        trainers["bf16"] = Trainer(model=network().to(torch.bfloat16))
    losses = {}
    for name, trainer in trainers.items():
        trainer.steps(8)
        losses[name] = trainer.loss().item()
        report = trainer.state.report()
        assert report.iterations == 8, report
        assert (len(report.residual_norms) > 0) == (name != "fp64"), report  # which has no codec
        trainer.close()

    accumulating = Trainer()
    for _ in range(5):
        with accumulating.ddp.no_sync():
            accumulating.loss().backward()
        accumulating.steps(1)
    assert accumulating.state.report().iterations == 5
    accumulating.close()
    return losses


def sparse(_argument: str) -> dict:
    """Bytes of an iteration that sends few elements of each block, or more of them, and the losses."""
    found = {}
    for k in (64, 512):
        trainer = Trainer(codec="topk", k=k)
        trainer.steps(10)
        before = trainer.state.report().bytes_sent
        trainer.steps(10)
        found[str(k)] = [(trainer.state.report().bytes_sent - before) / 10, trainer.loss().item()]
        trainer.close()
    try:
        Trainer(codec="fp4", k=64)
    except onebit.InvalidArgument as error:
        assert "k=64" in str(error), error
    else:
        raise AssertionError("fp4 has no k")
    matrices = [parameter.numel() for parameter in network().parameters() if parameter.dim() > 1]
    return {"runs": found, "elements": sum(matrices)}


def skipped(_argument: str) -> dict:
    """A step whose gradient is infinite somewhere leaves all residuals as they were."""
    trainer = Trainer()
    trainer.steps(5)
    before = trainer.state.state_dict("rank")["residuals"]
    trainer.optimizer.zero_grad()
    loss = trainer.loss()
    if RANK == 1:
        # Its gradient is infinite in the last layer only; the others commit their residuals.
        last = trainer.model[-1].weight
        last.register_hook(lambda gradient: gradient * float("inf"))
    loss.backward()
    # A gradient scaler looks at these before it skips a step.
    is_finite = all(bool(torch.isfinite(each.grad).all()) for each in trainer.model.parameters())
    after = trainer.state.state_dict("rank")["residuals"]
    report = trainer.state.report()
    trainer.close()
    return {
        "is_finite": is_finite,
        "is_same": all(torch.equal(before[name], after[name]) for name in before),
        "skipped": report.skipped_iterations,
        "parameters": len(before),
    }


class Scaler:
    """A gradient scaler whose scale the test sets. PyTorch 1.13 has none for the CPU."""

    def __init__(self, value: float):
        self.value = value

    def scale(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * self.value


def scaled(_argument: str) -> dict:
    """With a scale that changes, gradients and residuals are those without one."""
    scaler = Scaler(1024.0)
    plain, trainer = Trainer(), Trainer(grad_scaler=scaler)
    for step in range(8):
        scaler.value = 2.0 ** (10 - step % 3)
        plain.steps(1)
        trainer.optimizer.zero_grad()
        scaler.scale(trainer.loss()).backward()
        for parameter in trainer.model.parameters():
            parameter.grad /= scaler.value
        trainer.optimizer.step()
        trainer.step_number += 1
        assert trainer.digest() == plain.digest(), step
    same = {
        name: torch.equal(blob, trainer.state.state_dict("rank")["residuals"][name])
        for name, blob in plain.state.state_dict("rank")["residuals"].items()
    }
    plain.close()
    trainer.close()
    return {"same": same}


def save(folder: str) -> dict:
    """Trains, saves both kinds of states in the middle, and goes on."""
    trainer = Trainer()
    trainer.steps(6)
    everything = {
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "rank": trainer.state.state_dict("rank"),
        "global": trainer.state.state_dict(),
    }
    torch.save(everything, pathlib.Path(folder) / f"{RANK}.pt")
    trainer.steps(4)
    trainer.close()
    return {"digest": trainer.digest()}


def resume(folder: str) -> dict:
    """Continues from saved states: of this rank if there are as many as before."""
    saved_ranks = len(list(pathlib.Path(folder).glob("*.pt")))
    kind = "rank" if saved_ranks == RANKS else "global"
    everything = torch.load(pathlib.Path(folder) / f"{RANK if kind == 'rank' else 0}.pt")
    trainer = Trainer()
    trainer.model.load_state_dict(everything["model"])
    trainer.optimizer.load_state_dict(everything["optimizer"])
    trainer.state.load_state_dict(everything[kind])
    trainer.step_number = 6
    trainer.steps(4 if kind == "rank" else 1)
    # The first step made the compressors; loaded again, the state must be what it was.
    trainer.state.load_state_dict(everything["global"])
    again = trainer.state.state_dict()["residuals"]
    errors = []
    for name, blob in everything["global"]["residuals"].items():
        owed, owed_again = (sum(residuals(each)) for each in (blob, again[name]))
        errors.append(float((owed - owed_again).norm() / owed.norm()))
    trainer.close()
    return {"digest": trainer.digest(), "error": max(errors)}


def two_groups(_argument: str) -> dict:
    """Data parallel over pairs of ranks, as beside tensor parallelism: each pair has a model of its own."""
    pairs = [[0, 2], [1, 3]]
    groups = [dist.new_group(pair) for pair in pairs]
    group, model = groups[RANK % 2], network(RANK % 2)
    ddp = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.1)
    try:
        onebit.torch.State(ddp, process_group=dist.group.WORLD)
    except onebit.InvalidArgument as error:
        assert f"ranks [0, 1, 2, 3], but DDP averages this model over a group with the ranks {pairs[RANK % 2]}" in str(
            error
        ), error
    else:
        raise AssertionError("a State of another group than its wrapper's")
    state = onebit.torch.State(ddp)
    ddp.register_comm_hook(state, onebit.torch.ddp_hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(5):
        optimizer.zero_grad()
        points, classes = batch(step)
        torch.nn.functional.cross_entropy(ddp(points), classes).backward()
        optimizer.step()
        assert_equal_on_all_ranks(digest(each.detach() for each in model.parameters()), group)
    state.close()
    return {"digest": digest(each.detach() for each in model.parameters())}


def hosts(codec_and_levels: str) -> dict:
    """The residuals of this rank, and what the links of hosts carry in some iterations."""
    codec, levels = codec_and_levels.split()
    trainer = Trainer(codec, levels=int(levels))
    trainer.steps(5)
    before = trainer.state.report()
    loss = trainer.steps(20)
    report = trainer.state.report()
    blobs = trainer.state.state_dict("rank")["residuals"]
    trainer.close()
    elements = sum(parameter.numel() for parameter in trainer.model.parameters())
    has_link = report.link_bytes is not None
    return {
        "loss": loss,
        "residuals": [worker_elements(blobs[name]) for name in ("0.weight", "2.weight", "4.weight")],
        "host_ranks": report.host_ranks,
        "network_bytes": report.network_bytes - before.network_bytes,
        "link_bytes": [
            getattr(report, name) - getattr(before, name) if has_link else getattr(report, name)
            for name in ("link_bytes", "dense_link_bytes")
        ],
        "dense_bytes": 20 * 4 * elements,  # of two hosts each sends half of a tensor twice
        "text": str(report),
    }


def link_bytes_of_step(trainer: Trainer) -> int:
    """What a step puts on the link of this rank's host."""
    before = trainer.state.report().link_bytes
    trainer.steps(1)
    return trainer.state.report().link_bytes - before


def states_of_levels(_argument: str) -> dict:
    """States of all ranks fit any levels; those of a rank fit the levels that they had."""
    two, one = (Trainer(levels=levels) for levels in (2, 1))
    for trainer in (two, one):
        trainer.steps(6)
    everything, of_rank = two.state.state_dict(), two.state.state_dict("rank")
    before = one.state.state_dict("rank")
    text = ""
    try:
        one.state.load_state_dict(of_rank)
    except onebit.Mismatch as error:
        text = str(error)
    is_kept = is_same(before, one.state.state_dict("rank"))

    # It goes on in two levels as if nobody had stopped.
    resumed = Trainer(model=copy.deepcopy(two.model), levels=2)
    resumed.optimizer.load_state_dict(copy.deepcopy(two.optimizer.state_dict()))
    resumed.state.load_state_dict(of_rank)
    resumed.step_number = 6
    for trainer in (two, resumed):
        trainer.steps(3)
    is_continued = two.digest() == resumed.digest()

    # Where the library decides, parameters that had one level keep it, and a load that fails leaves
    # what the library has decided: after calls, and after the only one was taken back.
    of_one = one.state.state_dict("rank")
    damaged = {**of_one, "residuals": {**of_one["residuals"], "4.weight": torch.zeros(9).byte()}}
    link_bytes = []
    for is_reverted in (False, True):
        chosen = Trainer()
        chosen.steps(3)
        if is_reverted:
            chosen.state.revert()
        before = chosen.state.state_dict("rank")
        try:
            chosen.state.load_state_dict(damaged)
        except onebit.Error:
            is_kept = is_kept and is_same(before, chosen.state.state_dict("rank"))
        else:
            raise AssertionError("a damaged state is loaded")
        chosen.state.load_state_dict(of_one)
        is_kept = is_kept and is_same(of_one, chosen.state.state_dict("rank"))
        link_bytes.append(link_bytes_of_step(chosen))
        chosen.close()

    link_bytes_of_one = link_bytes_of_step(one)
    one.state.load_state_dict(everything)
    errors = []
    again = one.state.state_dict()["residuals"]
    for name, blob in everything["residuals"].items():
        owed, owed_again = (sum(residuals(each)) for each in (blob, again[name]))
        errors.append(float((owed - owed_again).norm() / owed.norm()))
    for trainer in (two, one, resumed):
        trainer.close()
    return {
        "text": text,
        "error": max(errors),
        "is_continued": is_continued,
        "is_kept": is_kept,
        "link_bytes": link_bytes,
        "link_bytes_of_one": link_bytes_of_one,
    }


def loss_of_a_rank(_argument: str) -> dict:
    """Rank 1 is killed in the middle of a training."""
    trainer = Trainer()
    trainer.steps(3)
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        trainer.step()
    except RuntimeError as error:
        trainer.close()
        return {"text": str(error), "failure": type(trainer.state.failure).__name__}
    return {"text": ""}


def missing_state(_argument: str) -> dict:
    """Rank 0 makes no State."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    text = ""
    if RANK == 1:
        try:
            onebit.torch.State(network(), process_group=group)
        except onebit.RemoteError as error:
            text = str(error)
    dist.barrier()
    return {"text": text}


def optimizer_steps(optimizer, model, count: int, first: int = 0) -> float:
    """Trains without averages of DDP; every rank must have the same parameters after each step."""
    for step in range(first, first + count):
        optimizer.zero_grad()
        points, classes = batch(step)
        loss = torch.nn.functional.cross_entropy(model(points), classes)
        loss.backward()
        optimizer.step()
        assert_equal_on_all_ranks(digest(each.detach() for each in model.parameters()))
    return loss.item()


def optimizers(_argument: str) -> dict:
    """Optimizers that average gradients themselves, with a model as it is and with one under DDP."""
    from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook

    dense = Trainer(codec=None)
    found = {"dense": dense.steps(60)}
    for name, kind, options in (
        ("adam", onebit.torch.optim.OnebitAdam, {"freeze_step": 20, "betas": (0.9, 0.95)}),
        ("sharded", onebit.torch.optim.ShardedOnebitAdam, {"freeze_step": 20, "betas": (0.9, 0.95)}),
        ("lamb", onebit.torch.optim.OnebitLamb, {"freeze_step": 20, "lr": 0.02, "betas": (0.9, 0.95)}),
    ):
        digests = []
        for is_wrapped in (False, True):
            model = network(RANK)  # those of rank 0 count
            optimizer = kind(model.parameters(), **{"lr": 2e-3, **options})
            ddp = model
            if is_wrapped:
                ddp = DistributedDataParallel(model, bucket_cap_mb=0.1)
                ddp.register_comm_hook(None, noop_hook)
            found[name] = optimizer_steps(optimizer, ddp, 60)
            digests.append(digest(each.detach() for each in model.parameters()))
            stats = optimizer.stats()
            found[f"{name} steps"] = [stats.dense_steps, stats.compressed_steps]
            optimizer.close()
        assert digests[0] == digests[1]
    return found


def left_open(_argument: str) -> dict:
    """Several optimizers and a hook that nobody closes. Ranks differ in where their objects lie."""
    others = [bytearray(1 + 97 * number * RANK) for number in range(100)]
    for number in range(6):
        kept.append(onebit.torch.optim.OnebitAdam(network().parameters()))
        others.append([object() for _ in range(1009 * number * RANK)])
    kept.append(Trainer())
    return {"optimizers": len(kept) - 1}


def loss_in_a_step(kind: str) -> dict:
    """Rank 1 is killed in the middle of a training whose optimizer averages."""
    model = network()
    optimizer = getattr(onebit.torch.optim, kind)(model.parameters(), freeze_step=2)
    optimizer_steps(optimizer, model, 3)
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        points, classes = batch(3)
        torch.nn.functional.cross_entropy(model(points), classes).backward()
        optimizer.step()
    except onebit.PeerLost as error:
        optimizer.close()
        return {"text": str(error)}
    return {"text": ""}


def main() -> None:
    folder, case, argument = (sys.argv[1:] + [""])[:3]
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=RANK, world_size=RANKS)
    torch.set_num_threads(1)
    found = globals()[case](argument)
    (pathlib.Path(folder) / f"{RANK}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
