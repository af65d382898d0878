# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank that trains with a framework: frameworks_rank.py FOLDER SHARED FRAMEWORK [CASE...]

Writes FOLDER/RANK.json; SHARED is a folder that jobs have in common. Each framework has cases here, and
processes of its own, because they change PyTorch and each other.
"""

import os
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import torch
import torch.distributed as dist

import onebit
import onebit.torch
from ddp_rank import residuals
from gloo_calls import reduced_elements
from onebit.torch.optim import OnebitAdam, own_averaging
from rank_cases import RANK, found_of, write

SHARED = pathlib.Path(sys.argv[2])
STEPS = 20
RATE = 1e-3
RESIDUALS = "onebit_residuals.pt"


def gpt():
    """The smallest of GPT-2's kind, with weights of its own."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=61, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    return GPT2LMHeadModel(config)


def tokens(count=400):
    generator = torch.Generator().manual_seed(2)
    rows = torch.randint(0, 61, (count, 16), generator=generator)
    return [{"input_ids": row, "labels": row} for row in rows]


def batches():
    """Those of this rank."""
    rows = torch.stack([each["input_ids"] for each in tokens()])
    return rows[RANK :: dist.get_world_size()].split(4)


def parameters_of(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def elements_of(model):
    return sum(parameter.numel() for parameter in model.parameters())


def assert_equal_on_all_ranks(model):
    own = parameters_of(model)
    first = own.clone()
    dist.broadcast(first, 0)
    assert torch.equal(own, first), "ranks differ"


def observed(train):
    """The elements of each reduction that a framework made in a training, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reduced = reduced_elements(train)
    return reduced, [str(each.message) for each in caught]


def assert_averages_twice(model, steps, reduced, said):
    assert sum(reduced) >= steps * elements_of(model), reduced
    texts = [text for text in said if "gradients were equal on all" in text]
    assert len(texts) == (RANK == 0), said
    assert all("own_averaging(model)" in text and "own_averaging(engine)" in text for text in texts), texts


def assert_averages_once(model, reduced, said):
    """What is left are losses and the like, of a few elements."""
    assert sum(reduced) < elements_of(model) / 20 and max(reduced, default=0) < 100, reduced
    assert not [text for text in said if "gradients were equal on all" in text], said
    assert_equal_on_all_ranks(model)


def refused(call, kind, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("no error")


# ------------------------------------------------------------------------------- Trainer of transformers


def arguments(steps=STEPS, folder="trainer", **options):
    from transformers import TrainingArguments

    given = {"save_strategy": "no", "max_grad_norm": 0.0, **options}
    return TrainingArguments(
        output_dir=str(SHARED / folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        use_cpu=True,
        ddp_backend="gloo" if "RANK" in os.environ else None,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        dataloader_num_workers=0,
        **given,
    )


def trainer_of(model, args, optimizer=None):
    from transformers import Trainer

    return Trainer(model=model, args=args, train_dataset=tokens(), optimizers=(optimizer, None))


def trainer_averages_twice():
    model, args = gpt(), arguments(5)
    optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=8)
    trainer = trainer_of(model, args, optimizer)
    assert_averages_twice(model, 5, *observed(trainer.train))
    optimizer.close()


def trainer_with_the_remedy():
    for clips in (False, True):
        model, args = gpt(), arguments(max_grad_norm=1.0 if clips else 0.0)
        optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=8)
        trainer = trainer_of(model, args, optimizer)
        own_averaging(trainer)
        reduced, said = observed(trainer.train)
        assert_averages_once(model, reduced, said)
        clipping = [text for text in said if "TrainingArguments max_grad_norm=0" in text]
        assert len(clipping) == clips, said
        stats = optimizer.stats()
        assert stats.compressed_steps == STEPS - 8, stats
        optimizer.close()


def a_trainer_that_saves_the_optimizer_is_refused():
    """It does so on one rank, which would wait there for the others."""
    for saves_only_model in (False, True):
        args = arguments(
            6, folder="models", save_strategy="steps", save_steps=3, save_only_model=saves_only_model
        )
        model = gpt()
        optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=8)
        trainer = trainer_of(model, args, optimizer)
        own_averaging(trainer)
        if saves_only_model:
            trainer.train()
            assert optimizer.stats().step == 6
        else:
            refused(trainer.train, onebit.InvalidUsage, "on rank 0 alone", "save_only_model=True")
        optimizer.close()


class Explicit:
    """A callback with the hook's own line, as a user writes it."""

    def __new__(cls, trainer, **options):
        from transformers import TrainerCallback

        class Callback(TrainerCallback):
            def on_train_begin(self, *_, **__):
                self.state = onebit.torch.State(trainer.model_wrapped, **options)
                trainer.model_wrapped.register_comm_hook(self.state, onebit.torch.ddp_hook)

        return Callback()


def attached_is_the_hook():
    """50 steps, with accumulation, and clipping of averages."""
    ends, sent = [], []
    for is_attached in (False, True):
        model = gpt()
        trainer = trainer_of(model, arguments(50, max_grad_norm=1.0, gradient_accumulation_steps=2))
        if is_attached:
            hook = onebit.torch.attach(trainer, codec="int8")
            assert hook.report() is None and hook.state is None
        else:
            hook = Explicit(trainer, codec="int8")
            trainer.add_callback(hook)
        trainer.train()
        assert_equal_on_all_ranks(model)
        ends.append(parameters_of(model))
        report = hook.report() if is_attached else hook.state.report()
        assert (report.iterations, report.dense_iterations) == (50, 2), report
        sent.append(report.bytes_sent)
        hook.state.close()
    assert torch.equal(*ends), "it trains otherwise"
    assert sent[0] == sent[1] and sent[0] < 0.5 * report.dense_bytes, (sent, report)


def checkpoint_of(folder, step):
    return str(SHARED / folder / f"checkpoint-{step}")


def assert_same_is_owed(state, other):
    """By all ranks together, and up to the rounding of its division among other ranks."""
    assert state["residuals"].keys() == other["residuals"].keys() != set()
    for name, blob in state["residuals"].items():
        owed, owed_there = (sum(residuals(each)) for each in (blob, other["residuals"][name]))
        assert owed.norm() > 0 and (owed - owed_there).norm() < 1e-6 * owed.norm(), name


def attached_saves():
    """Residuals go with each checkpoint, and a second train() goes on with the same hook."""
    model = gpt()
    trainer = trainer_of(model, arguments(folder="saved", save_strategy="steps", save_steps=10))
    hook = onebit.torch.attach(trainer)
    refused(lambda: onebit.torch.attach(trainer), onebit.InvalidUsage, "attached before")
    trainer.train()
    dist.barrier()
    saved = torch.load(pathlib.Path(checkpoint_of("saved", 20), RESIDUALS), weights_only=True)
    assert saved["iteration"] == STEPS
    assert_same_is_owed(saved, hook.state.state_dict("global"))
    assert not list(pathlib.Path(checkpoint_of("saved", 20)).glob("*.new"))
    if RANK == 0:
        torch.save(parameters_of(model), SHARED / "uninterrupted.pt")
    state = hook.state
    trainer.args.output_dir = str(SHARED / "again")
    trainer.train()
    assert hook.state is state and hook.report().iterations == 2 * STEPS
    state.close()

    trainer = trainer_of(
        gpt(), arguments(10, folder="bare", save_strategy="steps", save_steps=10, save_only_model=True)
    )
    hook = onebit.torch.attach(trainer)
    trainer.train()
    dist.barrier()
    assert not pathlib.Path(checkpoint_of("bare", 10), RESIDUALS).exists()
    hook.state.close()


def attached_resumes():
    """What was owed is owed again, on as many ranks or others."""
    from transformers import TrainerCallback

    path = checkpoint_of("saved", 10)
    saved = torch.load(pathlib.Path(path, RESIDUALS), weights_only=True)
    model = gpt()
    trainer = trainer_of(model, arguments())
    hook = onebit.torch.attach(trainer)
    loaded = {}

    class Look(TrainerCallback):
        def on_train_begin(self, *_, **__):
            loaded.update(hook.state.state_dict("global"))

    trainer.add_callback(Look())
    trainer.train(resume_from_checkpoint=path)
    assert loaded["iteration"] == 10 and trainer.state.global_step == STEPS
    assert_same_is_owed(loaded, saved)
    assert any(norm > 0 for norm in hook.report().residual_norms.values())
    assert hook.report().dense_iterations == 0  # the others were before the checkpoint
    assert_equal_on_all_ranks(model)
    apart = None
    if dist.get_world_size() == 2:
        # The state of all ranks does not say what each owes, so the last bits differ.
        whole, start = torch.load(SHARED / "uninterrupted.pt", weights_only=True), parameters_of(gpt())
        apart = float((parameters_of(model) - whole).norm() / (whole - start).norm())
        assert apart < 0.2, apart
    hook.state.close()
    return {"apart": apart}


def a_checkpoint_without_residuals_is_named():
    trainer = trainer_of(gpt(), arguments(folder="bare", steps=12, save_strategy="steps", save_steps=10))
    hook = onebit.torch.attach(trainer)
    _, said = observed(lambda: trainer.train(resume_from_checkpoint=True))
    about = [text for text in said if f"there is no {checkpoint_of('bare', 10)}" in text]
    assert len(about) == (RANK == 0), said
    hook.state.close()


def another_hook_is_named():
    from transformers import TrainerCallback

    trainer = trainer_of(gpt(), arguments(2))

    class Other(TrainerCallback):
        def on_train_begin(self, *_, **__):
            own_averaging(trainer.model_wrapped)

    trainer.add_callback(Other())
    onebit.torch.attach(trainer)
    refused(trainer.train, onebit.InvalidUsage, "another communication hook")


def one_rank_trains_alone():
    """Nothing is averaged, whether the Trainer wraps its model, as under a launcher, or not."""
    for is_averaging in (False, True):
        trainer = trainer_of(gpt(), arguments(3))
        hook = None if is_averaging else onebit.torch.attach(trainer)
        if is_averaging:
            own_averaging(trainer)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.train()
        assert trainer.state.global_step == 3
        said = [str(each.message) for each in caught if "one rank" in str(each.message)]
        assert len(said) == (hook is not None), said
        assert hook is None or (hook.report() is None and hook.state is None)


# -------------------------------------------------------------------------------------------- Accelerate


def accelerate_averages_twice():
    accelerate_training(5, lambda model: None, assert_averages_twice_in=5)


def accelerate_with_the_remedy():
    accelerate_training(STEPS, own_averaging)


def accelerate_training(steps, prepare, assert_averages_twice_in=0):
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    bare = gpt()
    optimizer = OnebitAdam(bare.named_parameters(), RATE, freeze_step=8, max_grad_norm=1.0)
    model, prepared = accelerator.prepare(bare, optimizer)
    prepare(model)

    def train():
        for batch in batches()[:steps]:
            with accelerator.accumulate(model):
                accelerator.backward(model(input_ids=batch, labels=batch).loss)
                prepared.step()
                prepared.zero_grad()

    reduced, said = observed(train)
    if assert_averages_twice_in:
        assert_averages_twice(bare, assert_averages_twice_in, reduced, said)
    else:
        assert_averages_once(bare, reduced, said)
        assert optimizer.stats().compressed_steps == steps - 8
    optimizer.close()


# --------------------------------------------------------------------------------------------- Lightning


def lightning_averages_twice():
    lightning_training(5, assert_averages_twice_in=5)


def lightning_with_the_remedy():
    lightning_training(STEPS)


def lightning_training(steps, assert_averages_twice_in=0):
    import lightning.pytorch as lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = gpt()
            self.optimizer = OnebitAdam(self.model.named_parameters(), RATE, freeze_step=8)

        def training_step(self, _batch, index):
            rows = batches()[index]
            return self.model(input_ids=rows, labels=rows).loss

        def on_train_start(self):
            if not assert_averages_twice_in:
                own_averaging(self.trainer.strategy.model)

        def configure_optimizers(self):
            return self.optimizer

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=dist.get_world_size(), strategy="ddp", max_steps=steps, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    data = torch.utils.data.DataLoader(torch.zeros(200, 1))
    reduced, said = observed(lambda: trainer.fit(module, data))
    if assert_averages_twice_in:
        assert_averages_twice(module.model, assert_averages_twice_in, reduced, said)
    else:
        assert_averages_once(module.model, reduced, said)
        assert module.optimizer.stats().compressed_steps == steps - 8
    module.optimizer.close()


# --------------------------------------------------------------------------------------------- DeepSpeed


def engine_of(model, optimizer, **config):
    import deepspeed

    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        config={"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, **config},
    )
    return engine


def train_engine(engine, steps):
    for batch in batches()[:steps]:
        engine.backward(engine(input_ids=batch, labels=batch).loss)
        engine.step()


def deepspeed_averages_twice():
    for config in ({}, {"bf16": {"enabled": True}}):
        model = gpt()
        model = model.bfloat16() if config else model
        optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=8)
        engine = engine_of(model, optimizer, **config)
        assert_averages_twice(model, 5, *observed(lambda e=engine: train_engine(e, 5)))
        optimizer.close()


def deepspeed_with_the_remedy():
    # DeepSpeed clips to 1 if nobody says otherwise.
    quiet = {"gradient_clipping": 0.0}
    for config in (quiet, {"bf16": {"enabled": True}, **quiet}, {}):
        model = gpt()
        model = model.bfloat16() if "bf16" in config else model
        optimizer = OnebitAdam(model.named_parameters(), RATE, freeze_step=8)
        engine = engine_of(model, optimizer, **config)

        def train(engine=engine):
            own_averaging(engine)
            train_engine(engine, STEPS)

        reduced, said = observed(train)
        assert_averages_once(model, reduced, said)
        clipping = [text for text in said if "gradient_clipping 0" in text]
        assert len(clipping) == (not config), said
        assert optimizer.stats().compressed_steps >= STEPS - 8
        optimizer.close()


def deepspeed_that_always_reduces_is_refused():
    for stage in (1, 2):
        model = gpt()
        engine = engine_of(
            model,
            torch.optim.AdamW(model.parameters(), RATE),
            zero_optimization={"stage": stage},
            zero_allow_untested_optimizer=True,
        )
        refused(lambda e=engine: own_averaging(e), onebit.InvalidArgument, f"ZeRO stage {stage}", "use stage 0")


def pipelines_are_refused():
    import deepspeed
    from deepspeed.pipe import PipelineModule

    module = PipelineModule([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)], num_stages=1,
                            loss_fn=torch.nn.functional.mse_loss)
    engine, *_ = deepspeed.initialize(
        model=module,
        optimizer=torch.optim.AdamW(module.parameters(), RATE),
        config={"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1},
    )
    refused(lambda: own_averaging(engine), onebit.InvalidArgument, "a pipeline engine")


FRAMEWORKS = {
    "transformers": [trainer_averages_twice, trainer_with_the_remedy,
                     a_trainer_that_saves_the_optimizer_is_refused, attached_is_the_hook, attached_saves,
                     attached_resumes, a_checkpoint_without_residuals_is_named, another_hook_is_named],
    "resumed": [attached_resumes],
    "alone": [one_rank_trains_alone],  # without a launcher's variables
    "launched": [one_rank_trains_alone],
    "accelerate": [accelerate_averages_twice, accelerate_with_the_remedy],
    "lightning": [lightning_averages_twice, lightning_with_the_remedy],
    "deepspeed": [deepspeed_averages_twice, deepspeed_with_the_remedy, deepspeed_that_always_reduces_is_refused,
                  pipelines_are_refused],
}


def begin(framework):
    """Frameworks initialize PyTorch's group by themselves."""
    if framework == "alone":
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            os.environ.pop(name, None)
    elif framework == "lightning":
        dist.init_process_group("gloo")
    elif framework == "deepspeed":
        import deepspeed

        deepspeed.init_distributed("gloo")
    elif framework == "accelerate":
        import accelerate

        accelerate.PartialState(cpu=True)
    else:
        arguments().device


def main():
    _, folder, _, framework, *names = sys.argv
    torch.set_num_threads(1)
    begin(framework)
    write(folder, found_of(FRAMEWORKS[framework], *names))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
