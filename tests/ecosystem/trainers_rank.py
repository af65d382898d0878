# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank that runs the lines of a trainer as docs/trainers.md has them: trainers_rank.py FOLDER PAGE HEADING

Around the lines there is what their trainer has anyway: its model, its data and its loop. Writes FOLDER/RANK.json.
"""

import json
import os
import pathlib
import re
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import onebit.torch

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = pathlib.Path(sys.argv[1])
STEPS = 8


def blocks_of(page: str, heading: str) -> list:
    """The code of a section of the page."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```python\n(.*?)^```$", section.group(1), re.MULTILINE | re.DOTALL)


class Blocks(torch.nn.Module):
    """A stack of blocks of torch, as users of fully_shard write it."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(128, 4, 256, 0.0) for _ in range(2))
        self.head = torch.nn.Linear(128, 61)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            values = block(values)
        return self.head(values)


def gpt2() -> torch.nn.Module:
    """GPT-2 of transformers, small and untrained."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=61, n_positions=16, n_embd=128, n_layer=2, n_head=2))


def rows() -> list:
    generator = torch.Generator().manual_seed(1)
    return [{"input_ids": row, "labels": row} for row in torch.randint(0, 61, (200, 16), generator=generator)]


def train(model: torch.nn.Module, width: int = 128) -> None:
    """A loop whose model has one of torch's optimizers."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(RANK)
    for _ in range(STEPS):
        optimizer.zero_grad()
        values = torch.randn(16, 4, width, generator=generator)
        torch.nn.functional.cross_entropy(
            model(values).flatten(0, 1), torch.randint(0, 61, (64,), generator=generator)
        ).backward()
        optimizer.step()


def share_of(report) -> float:
    """What was sent, as a share of what full precision sends."""
    return report.bytes_sent / report.dense_bytes


def initialize(size: int = RANKS) -> None:
    assert size == RANKS
    if not dist.is_initialized():
        meeting = f"file://{FOLDER}/meeting"
        dist.init_process_group("gloo", init_method=meeting, rank=RANK, world_size=RANKS)


# ------------------------------------------------------- sections: each returns the share of bytes that it sent


def distributed_data_parallel(run) -> float:
    initialize()
    names = run(model=Blocks(), DistributedDataParallel=DistributedDataParallel)
    train(names["model"])
    return share_of(names["hook"].report())


def sharded(run) -> dict:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    initialize()
    names = run(model=Blocks(), init_device_mesh=init_device_mesh, fully_shard=fully_shard)
    train(names["model"])
    return names


def hsdp(run) -> float:
    return share_of(sharded(run)["hook"].report())


def fsdp2(run) -> float:
    return share_of(sharded(run)["hook"].report())


def a_mesh_whose_loop_is_not_yours(run) -> float:
    names = sharded(run)
    backend = names["mesh"].get_group("replicate")._get_backend(torch.device("cpu"))
    elements = sum(parameter.to_local().numel() for parameter in names["model"].parameters())
    return backend._calls.communicator.stats().bytes_sent / (STEPS * 4 * elements)


def nanogpt(run) -> float:
    """Micro-steps as that program makes them."""
    initialize()
    names = run(model=Blocks(), DDP=DistributedDataParallel)
    model, optimizer = names["model"], torch.optim.AdamW(names["model"].parameters(), 1e-3)
    generator = torch.Generator().manual_seed(RANK)
    for _ in range(STEPS):
        for micro_step in range(3):
            model.require_backward_grad_sync = micro_step == 2
            values = torch.randn(16, 4, 128, generator=generator)
            loss = torch.nn.functional.cross_entropy(
                model(values).flatten(0, 1), torch.randint(0, 61, (64,), generator=generator)
            )
            (loss / 3).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    hook = model._comm_hooks[0][1]
    assert hook.report().iterations == STEPS
    return share_of(hook.report())


def hugging_face_trainer(run) -> float:
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=str(FOLDER / "trainer"), max_steps=STEPS, per_device_train_batch_size=4, use_cpu=True,
        ddp_backend="gloo", report_to=[], disable_tqdm=True, save_strategy="no", max_grad_norm=0.0,
    )  # fmt: skip
    attached = []
    attach = onebit.torch.attach
    onebit.torch.attach = lambda trainer: attached.append(attach(trainer))
    names = run(transformers=transformers, model=gpt2(), arguments=arguments, dataset=rows())
    assert names["optimizer"].stats().step == STEPS  # of the second block
    return share_of(attached[0].report())


def accelerate(run) -> float:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    batches = torch.utils.data.DataLoader(rows(), batch_size=4)
    names = run(accelerator=accelerator, model=model, optimizer=optimizer, batches=batches)
    for _, batch in zip(range(STEPS), names["batches"]):
        names["optimizer"].zero_grad()
        accelerator.backward(names["model"](**batch).loss)
        accelerator.clip_grad_norm_(names["model"].parameters(), 1.0)
        names["optimizer"].step()
    share = share_of(names["hook"].report())
    accelerator.save_state(str(FOLDER / "state"))
    accelerator.load_state(str(FOLDER / "state"))
    return share


def lightning(run) -> float:
    import lightning as package
    from lightning.pytorch.demos.transformer import LightningTransformer

    torch.manual_seed(0)
    model = LightningTransformer(vocab_size=61)
    model.prepare_data = lambda: None  # it would fetch a text
    pairs = [(each["input_ids"], each["labels"]) for each in rows()]
    names = run(
        lightning=package, model=model,
        batches=torch.utils.data.DataLoader(pairs, batch_size=2),
        arguments={"accelerator": "cpu", "devices": RANKS, "max_steps": STEPS, "logger": False, "enable_checkpointing": False,
                   "enable_progress_bar": False, "default_root_dir": str(FOLDER)},
    )  # fmt: skip
    return share_of(names["compress"].hook.report())


def deepspeed(run) -> float:
    import deepspeed as package

    initialize()
    package.init_distributed("gloo")
    names = run(
        deepspeed=package, model=gpt2(),
        config={"train_batch_size": 4 * RANKS, "train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0.0},
    )  # fmt: skip
    engine = names["engine"]
    batches = torch.utils.data.DataLoader(rows(), batch_size=4)
    for _, batch in zip(range(STEPS), batches):
        engine.backward(engine(**batch).loss)
        engine.step()
    assert engine.enable_backward_allreduce is False
    stats = engine.optimizer.stats()
    elements = sum(parameter.numel() for parameter in engine.module.parameters())
    assert stats.step == STEPS
    return stats.bytes_sent / (STEPS * 4 * elements)


SECTIONS = {
    "DistributedDataParallel": distributed_data_parallel,
    "HSDP": hsdp,
    "FSDP2": fsdp2,
    "A mesh whose loop is not yours": a_mesh_whose_loop_is_not_yours,
    "nanoGPT": nanogpt,
    "Hugging Face Trainer": hugging_face_trainer,
    "Accelerate": accelerate,
    "Lightning": lightning,
    "DeepSpeed": deepspeed,
}


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    page, heading = pathlib.Path(sys.argv[2]).read_text("utf-8"), sys.argv[3]

    def run(**names) -> dict:
        blocks = blocks_of(page, heading)
        assert blocks, heading
        names["onebit"] = onebit
        for block in blocks:
            exec(compile(block, f"{heading} in {sys.argv[2]}", "exec"), names)
        return names

    share = SECTIONS[heading](run)
    (FOLDER / f"{RANK}.json").write_text(json.dumps({"share": share}), "utf-8")
    dist.barrier()


if __name__ == "__main__":
    main()
