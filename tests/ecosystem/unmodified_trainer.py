# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A training of a framework that knows nothing of onebit: unmodified_trainer.py FRAMEWORK FOLDER [explicit]

With "explicit" it has the line of docs/python.md, where the framework has a place for it. Each rank writes
FOLDER/RANK.json: its losses, and sums of the parameters.
"""

import json
import pathlib
import sys

import torch
import torch.distributed as dist

FRAMEWORK, FOLDER, *REST = sys.argv[1:]
IS_EXPLICIT = REST == ["explicit"]
STEPS = 6


def add_hook(replica: torch.nn.parallel.DistributedDataParallel) -> None:
    import onebit.torch

    replica.register_comm_hook(onebit.torch.State(replica), onebit.torch.ddp_hook)


def tokens(count: int, length: int) -> list:
    draw = torch.Generator().manual_seed(7)
    return [torch.randint(96, (length,), generator=draw) for _ in range(count)]


def huggingface() -> dict:
    """Two micro-steps and clipping, as Trainer has them."""
    import transformers

    class Explicit(transformers.TrainerCallback):
        def on_train_begin(self, *_, **__):
            add_hook(trainer.model_wrapped)

    transformers.set_seed(1)
    config = transformers.GPT2Config(vocab_size=96, n_positions=32, n_embd=64, n_layer=1, n_head=2, resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    arguments = transformers.TrainingArguments(
        output_dir=FOLDER, use_cpu=True, ddp_backend="gloo", max_steps=STEPS, per_device_train_batch_size=4,
        gradient_accumulation_steps=2, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, seed=1)
    data = [{"input_ids": row, "labels": row} for row in tokens(256, 32)]
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data,
                                   callbacks=[Explicit()] if IS_EXPLICIT else [])
    losses = []
    step = trainer.training_step

    def training_step(*given, **named):
        losses.append(step(*given, **named))
        return losses[-1]

    trainer.training_step = training_step
    trainer.train()
    return evidence(losses, model)


def lightning() -> dict:
    """Lightning starts its ranks by itself, and accumulates over two batches."""
    import lightning.pytorch as pl

    losses = []

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Embedding(96, 64), torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 96))

        def training_step(self, batch, _index):
            logits = self.layers(batch[:, :-1])
            losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()))
            return losses[-1]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-3)

    class Explicit(pl.Callback):
        def on_train_start(self, trainer, _module):
            add_hook(trainer.strategy.model)

    pl.seed_everything(1)
    module = Module()
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_steps=STEPS, accumulate_grad_batches=2,
                         gradient_clip_val=1.0, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                         enable_model_summary=False, default_root_dir=FOLDER,
                         callbacks=[Explicit()] if IS_EXPLICIT else [])
    trainer.fit(module, torch.utils.data.DataLoader(tokens(256, 32), batch_size=4, shuffle=True))
    return evidence(losses, module)


def accelerate() -> dict:
    """A loop of the user's, over what Accelerate has prepared."""
    from accelerate import Accelerator

    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Embedding(96, 64), torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 96))
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    replica, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), 1e-3),
        torch.utils.data.DataLoader(tokens(8 * STEPS * 2, 32), batch_size=4))
    if IS_EXPLICIT:
        add_hook(replica)
    losses = []
    for batch in loader:
        with accelerator.accumulate(replica):
            logits = replica(batch[:, :-1])
            losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()))
            accelerator.backward(losses[-1])
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(replica.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    result = evidence(losses, model)
    accelerator.end_training()
    return result


def evidence(losses: list, model: torch.nn.Module) -> dict:
    sums = [parameter.detach().double().sum().item().hex() for parameter in model.parameters()]
    return {"losses": [loss.item().hex() for loss in losses], "parameters": sums, "rank": dist.get_rank()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {"huggingface": huggingface, "lightning": lightning, "accelerate": accelerate}[FRAMEWORK]()
    pathlib.Path(FOLDER, f"{found['rank']}.json").write_text(json.dumps(found), encoding="utf-8")
