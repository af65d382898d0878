# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors on a CUDA device, as a rank of onebit_run: torch_ranks.py cuda|cpu

Ranks share the device, so gradients of DDP without the hook go through Gloo. Rank 0 prints a line of JSON with
what was measured. With `cpu` the same runs on host memory, so that the program itself can be tested.
"""

import contextlib
import json
import os
import sys
import time

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
except ImportError:
    print("PyTorch (python3-torch) not found")
    sys.exit(77)

import onebit
import onebit.torch

DEVICE = torch.device(sys.argv[1])
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WIDTH, STEPS = 512, 30


@contextlib.contextmanager
def no_wait_of_the_host():
    """A wait for the device that PyTorch makes in here is an error."""
    if DEVICE.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def hook_that_must_not_wait(state: onebit.torch.State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    with no_wait_of_the_host():
        return onebit.torch.ddp_hook(state, bucket)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 8)).to(DEVICE)


def batch(step: int) -> tuple:
    answers = torch.randn(WIDTH, 8, generator=torch.Generator().manual_seed(1))
    points = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(1000 * RANK + step))
    return points.to(DEVICE), (points @ answers).argmax(1).to(DEVICE)


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def assert_alike(model: torch.nn.Module) -> None:
    """Every rank has the same parameters, byte for byte."""
    mine = torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()])
    first = mine.clone()
    dist.broadcast(first, 0)
    assert torch.equal(mine, first), "parameters differ between ranks"


def train_by_ddp(codec) -> dict:
    """Loss and the median time of a step, with the hook or without one."""
    model = network()
    replica = DistributedDataParallel(model, bucket_cap_mb=1)
    state = None
    if codec is not None:
        state = onebit.torch.State(replica, codec=codec)
        replica.register_comm_hook(state, hook_that_must_not_wait)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    seconds = []
    for step in range(STEPS):
        points, classes = batch(step)
        wait()
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(replica(points), classes)
        loss.backward()
        optimizer.step()
        wait()
        seconds.append(time.perf_counter() - begin)
        if step % 10 == 9:
            assert_alike(model)
    found = {"loss": loss.item(), "step_ms": round(1000 * sorted(seconds)[STEPS // 2], 3)}
    if state is not None:
        found["bytes_sent"] = state.report().bytes_sent
        state.close()
    return found


def assert_as_on_the_host() -> None:
    """Averages of the same numbers are the same bytes in both memories."""
    box = [onebit.unique_id() if RANK == 0 else None]
    dist.broadcast_object_list(box)
    with onebit.Communicator.from_unique_id(box[0], RANKS, RANK) as comm:
        for codec in ("fp4", "int8", "int2", "sign"):
            host = torch.randn(100_003, generator=torch.Generator().manual_seed(RANK))
            device = host.to(DEVICE, copy=True)
            for values in (host, device):
                compressor = onebit.Compressor(comm, values.numel(), codec=codec, mode="ef",
                                               memory="device" if values.is_cuda else "host",
                                               device=values.get_device() if values.is_cuda else None)
                stream = torch.cuda.current_stream() if values.is_cuda else None
                for _ in range(3):
                    comm.all_reduce(values, op="avg", compressor=compressor, stream=stream)
                wait()
                compressor.close()
            assert torch.equal(host, device.cpu()), f"{codec}: other bytes than on the host"


def step_optimizers() -> dict:
    """Each optimizer, behind its freeze as well; parameters equal on all ranks."""
    found = {}
    intervals = {"var_freeze_step": 20, "local_step_scaler": 4, "local_step_clipper": 4}
    for name, options in {"OnebitAdam": {"freeze_step": 20}, "OnebitLamb": {"freeze_step": 20, "lr": 1e-2},
                          "ZeroOneAdam": intervals}.items():
        model = network()
        optimizer = getattr(onebit.torch.optim, name)(
            model.parameters(), **{"lr": 1e-3, "betas": (0.9, 0.95), **options})
        for step in range(STEPS):
            points, classes = batch(step)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(points), classes)
            loss.backward()
            optimizer.step()
        if name == "ZeroOneAdam":
            optimizer.synchronize()
        wait()
        assert_alike(model)
        found[name] = loss.item()
        assert found[name] < 1.95, found  # it began at log(8), 2.08
        optimizer.close()
    return found


def main() -> None:
    dist.init_process_group("gloo")
    if DEVICE.type == "cuda":
        torch.cuda.set_device(0)
    torch.set_num_threads(1)
    found = {"torch": torch.__version__, "dense": train_by_ddp(None)}
    for codec in ("fp4", "sign"):
        found[codec] = train_by_ddp(codec)
    assert found["fp4"]["loss"] < 1.05 * found["dense"]["loss"], found
    assert found["sign"]["loss"] < 1.95, found
    found.update(step_optimizers())
    assert_as_on_the_host()
    if RANK == 0:
        print("torch_ranks:", json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
