# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers of PyTorch on ranks that are threads: those of torch.optim in dense steps, those of the
library byte for byte, schedulers, 16 bits, scalers, states, refusals."""

import copy
import sys
import unittest

import numpy

try:
    import torch
except ImportError:
    sys.exit(77)  # skipped

import onebit
import onebit.torch
from onebit.torch.optim import OnebitAdam, OnebitLamb, ZeroOneAdam
from noisy_quadratic import SHAPES, gradient, make_step, parameters
from rank_threads_case import run_ranks

RANKS = 2
CLASSES = {
    OnebitAdam: ("one_bit_adam", {"freeze_step": 4, "bias_correction": True}),
    OnebitLamb: ("one_bit_lamb", {"freeze_step": 4}),
    ZeroOneAdam: (
        "zero_one_adam",
        {"var_freeze_step": 4, "local_step_scaler": 2, "local_step_clipper": 2},
    ),
}


def mean_gradient(parameter, step):
    return sum(gradient(parameter, rank, step) for rank in range(RANKS)) / RANKS


def in_memory_order(tensor):
    return tensor.detach().permute(sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d)))


class TorchOptimTest(unittest.TestCase):
    def assert_equal(self, found, expected):
        for one, other in zip(found, expected):
            self.assertTrue(torch.equal(one.detach(), other.detach()))

    def test_dense_steps_are_those_of_adamw(self):
        def check(comm):
            given, expected = parameters(), parameters()
            runs = []
            for kind, tensors in ((OnebitAdam, given), (torch.optim.AdamW, expected)):
                options = {}
                if kind is OnebitAdam:
                    options = {"communicator": comm, "freeze_step": "never", "max_grad_norm": 2.0}
                groups = [
                    {"params": tensors[:1], "lr": 0.1, "weight_decay": 0.2},
                    {"params": tensors[1:]},
                ]
                optimizer = kind(groups, lr=0.02, weight_decay=0.01, **options)
                scheduler = torch.optim.lr_scheduler.LambdaLR(
                    optimizer, [lambda step: 1 / (1 + step), lambda step: float(step < 6)]
                )
                runs.append((optimizer, scheduler))
            for step in range(10):
                make_step(runs[0][0], given, comm.rank, step)
                for parameter in expected:
                    parameter.grad = mean_gradient(parameter, step)
                norm = torch.nn.utils.clip_grad_norm_(expected, 2.0)
                runs[1][0].step()
                self.assertAlmostEqual(runs[0][0].last_step.grad_norm / float(norm), 1, places=4)
                for _, scheduler in runs:
                    scheduler.step()
                if step == 7:
                    for optimizer, _ in runs:
                        optimizer.param_groups[0]["weight_decay"] = 0.5
            for one, other in zip(given, expected):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)

        run_ranks(RANKS, check)

    def test_steps_are_those_of_the_library(self):
        def check(comm):
            for kind, (algorithm, options) in CLASSES.items():
                given = parameters()
                flat = numpy.concatenate([in_memory_order(p).reshape(-1).numpy() for p in given])
                segments = [onebit.Segment(p.numel(), weight_decay=0.1) for p in given]
                reference = onebit.Optimizer(
                    comm, flat, segments=segments, algorithm=algorithm, clip_norm="average", **options
                )
                optimizer = kind(given, 0.05, communicator=comm, weight_decay=0.1, **options)
                for step in range(12):
                    parts = [in_memory_order(gradient(p, comm.rank, step)) for p in given]
                    make_step(optimizer, given, comm.rank, step)
                    result = reference.step(
                        numpy.concatenate([part.reshape(-1).numpy() for part in parts]), 0.05
                    )
                    self.assertEqual(optimizer.last_step.stage, result.stage)
                    found = torch.cat([in_memory_order(p).reshape(-1) for p in given])
                    numpy.testing.assert_array_equal(found.numpy(), flat, f"{kind} {step}")
                self.assertGreater(optimizer.stats().compressed_steps, 3)

        run_ranks(RANKS, check)

    def test_ranks_begin_with_the_parameters_of_rank_0(self):
        def check(comm):
            given = parameters()
            with torch.no_grad():
                for parameter in given:
                    parameter.add_(comm.rank)
            optimizer = OnebitAdam(given, communicator=comm)
            make_step(optimizer, given, 0, 0)
            return torch.cat([p.detach().reshape(-1) for p in given])

        first, second = run_ranks(RANKS, check)
        self.assertTrue(torch.equal(first, second))
        self.assertLess(float((first[:300] - parameters()[0].detach().reshape(-1)).abs().max()), 0.01)

    def test_16_bits_are_copies_of_32(self):
        def check(comm):
            for dtype in (torch.bfloat16, torch.float16):
                given = parameters(dtype)
                optimizer = OnebitAdam(given, 1e-4, communicator=comm, freeze_step=3)
                for step in range(40):
                    make_step(optimizer, given, comm.rank, step)
                # Steps of 1e-4 are less than half a unit of most elements, and yet have an effect.
                moved = given[0].detach().float() - parameters(dtype)[0].detach().float()
                self.assertGreater(float((moved != 0).float().mean()), 0.2)
                with torch.no_grad():
                    given[0].zero_()  # as if a checkpoint had been loaded
                make_step(optimizer, given, comm.rank, 40)
                self.assertLess(float(given[0].detach().abs().max()), 0.05)

        run_ranks(RANKS, check)

    def test_what_the_program_writes_is_taken_over(self):
        def check(comm):
            for kind, (_, options) in CLASSES.items():
                given = parameters()
                optimizer = kind(given, 1e-3, communicator=comm, **options)
                step = 0
                while step < 9 or optimizer.last_step.stage != onebit.Stage.LOCAL:
                    make_step(optimizer, given, comm.rank, step)
                    step += 1
                    if kind is not ZeroOneAdam and step == 9:
                        break
                with torch.no_grad():
                    given[0].zero_()
                if kind is ZeroOneAdam:
                    with self.assertRaisesRegex(onebit.InvalidUsage, "between two syncs"):
                        make_step(optimizer, given, comm.rank, step)
                    optimizer.synchronize()
                    with torch.no_grad():
                        given[0].zero_()
                make_step(optimizer, given, comm.rank, step)
                self.assertLess(float(given[0].detach().abs().max()), 0.3)
                self.assertGreater(float(given[1].detach().abs().max()), 0.5)

        run_ranks(RANKS, check)

    def test_states_continue_bit_for_bit(self):
        def check(comm):
            for kind, (_, options) in CLASSES.items():
                for dtype in (torch.float32, torch.bfloat16):
                    given = parameters(dtype)
                    optimizer = kind(given, 0.01, communicator=comm, **options)
                    for step in range(8):
                        make_step(optimizer, given, comm.rank, step)
                    optimizer.synchronize()
                    optimizer.param_groups[0]["lr"] = 0.02
                    for kind_of_state in ("rank", "global"):
                        model = [copy.deepcopy(p.detach()) for p in given]
                        state = copy.deepcopy(optimizer.state_dict(kind_of_state))
                        again = parameters(dtype)
                        other = kind(again, 1.0, communicator=comm, **options)
                        other.load_state_dict(state)
                        with torch.no_grad():
                            for parameter, values in zip(again, model):
                                parameter.copy_(values)
                        self.assertEqual(other.param_groups[0]["lr"], 0.02)
                        for step in range(8, 14):
                            make_step(other, again, comm.rank, step)
                        if kind_of_state == "rank":
                            for step in range(8, 14):
                                make_step(optimizer, given, comm.rank, step)
                            self.assert_equal(again, given)
                        optimizer.synchronize()

        run_ranks(RANKS, check)

    def test_a_state_fits_another_number_of_ranks(self):
        def train(comm):
            given = parameters()
            optimizer = OnebitAdam(given, 0.01, communicator=comm, freeze_step=4)
            for step in range(8):
                make_step(optimizer, given, comm.rank, step)
            return optimizer.state_dict()

        state, same = run_ranks(RANKS, train)
        for number, entry in state["state"].items():
            self.assertEqual(entry["onebit"], same["state"][number]["onebit"])

        def resume(comm):
            given = parameters()
            optimizer = OnebitAdam(given, 0.01, communicator=comm, freeze_step=4)
            optimizer.load_state_dict(state)
            self.assertEqual(optimizer.stats().step, 8)
            make_step(optimizer, given, comm.rank, 8)
            return torch.cat([p.detach().reshape(-1) for p in given])

        first, *others = run_ranks(3, resume)
        for other in others:
            self.assertTrue(torch.equal(first, other))

    def test_a_scaler_is_followed(self):
        """GradScaler of PyTorch 2 hands over scale and verdict as attributes."""

        def check(comm):
            plain, scaled = parameters(), parameters()
            reference = OnebitAdam(plain, 0.01, communicator=comm, freeze_step="never")
            optimizer = OnebitAdam(scaled, 0.01, communicator=comm, freeze_step="never")
            for step in range(4):
                make_step(reference, plain, comm.rank, step)
                for parameter in scaled:
                    parameter.grad = gradient(parameter, comm.rank, step) * 1024
                optimizer.grad_scale, optimizer.found_inf = torch.tensor(1024.0), torch.tensor(0.0)
                optimizer.step()
                del optimizer.grad_scale, optimizer.found_inf
            self.assert_equal(scaled, plain)
            for parameter in scaled:
                parameter.grad = gradient(parameter, comm.rank, 4)
            if comm.rank == 1:
                scaled[1].grad[3] = float("inf")
            optimizer.step()
            self.assertEqual(optimizer.last_step.skipped, 1)
            self.assert_equal(scaled, plain)
            with self.assertRaisesRegex(onebit.InvalidUsage, "before 2.0"):
                optimizer.step(grad_scaler=None)

        run_ranks(RANKS, check)

    @unittest.skipUnless(hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"), "PyTorch 1")
    def test_pytorchs_scaler_skips_on_all_ranks(self):
        def check(comm):
            given = parameters()
            optimizer = OnebitAdam(given, 0.01, communicator=comm, freeze_step="never")
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
            scaler.scale(torch.ones(()))
            for step in range(4):
                for parameter in given:
                    parameter.grad = gradient(parameter, comm.rank, step) * scaler.get_scale()
                if (step, comm.rank) == (2, 1):
                    given[0].grad[0, 0] = float("inf")
                scaler.step(optimizer)
                scaler.update()
                self.assertEqual(optimizer.last_step.skipped, step == 2)
            return torch.cat([p.detach().reshape(-1) for p in given])

        first, second = run_ranks(RANKS, check)
        self.assertTrue(torch.equal(first, second))

    def test_a_state_between_two_syncs_continues_with_groups_of_their_own_rates(self):
        def check(comm):
            def make(tensors):
                groups = [{"params": tensors[:1], "lr": 0.1}, {"params": tensors[1:], "lr": 0.02}]
                return ZeroOneAdam(groups, communicator=comm, **CLASSES[ZeroOneAdam][1])

            given, again = parameters(), parameters()
            optimizer, step = make(given), 0
            while optimizer.last_step is None or optimizer.last_step.stage != onebit.Stage.LOCAL:
                make_step(optimizer, given, comm.rank, step)
                step += 1
            state = copy.deepcopy(optimizer.state_dict("rank"))
            other = make(again)
            other.load_state_dict(state)
            for number in range(step, step + 5):
                make_step(optimizer, given, comm.rank, number)
                make_step(other, again, comm.rank, number)
            self.assert_equal(again, given)

        run_ranks(RANKS, check)

    def test_a_parameter_that_is_frozen_later_stays(self):
        def check(comm):
            given = parameters()
            optimizer = OnebitAdam(given, 0.1, communicator=comm, weight_decay=0.1)
            make_step(optimizer, given, comm.rank, 0)
            given[0].requires_grad_(False).grad = None
            before = [copy.deepcopy(p.detach()) for p in given]
            for parameter in given[1:]:
                parameter.grad = gradient(parameter, comm.rank, 1)
            optimizer.step()
            self.assertTrue(torch.equal(given[0], before[0]))
            self.assertFalse(torch.equal(given[1], before[1]))

        run_ranks(RANKS, check)

    def test_a_backward_pass_through_changed_parameters_is_an_error(self):
        def check(comm):
            weight = torch.nn.Parameter(torch.ones(2))
            optimizer = OnebitAdam([weight], communicator=comm)
            loss = (weight * weight.exp()).sum()
            loss.backward(retain_graph=True)
            optimizer.step()
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss.backward()

        run_ranks(1, check)

    def test_groups_and_parameters_without_gradients(self):
        def check(comm):
            given = parameters()
            given[1].requires_grad_(False)
            mask = torch.zeros(SHAPES[0])
            mask[:3] = 1
            groups = [
                {"params": [given[0]], "exp_avg_mask": mask, "weight_decay": 0.0},
                {"params": given[1:], "non_freeze": True, "rare_rows": True},
            ]
            optimizer = OnebitAdam(groups, 0.01, communicator=comm, freeze_step=2, weight_decay=0.1)
            for step in range(6):
                for parameter in (given[0], given[2]):
                    parameter.grad = gradient(parameter, comm.rank, step)
                if comm.rank == 1:
                    given[2].grad = None  # zeros, where rank 0 has a gradient
                optimizer.step(lambda: 1.5)
            before = parameters()
            moved = [bool((p != b).any()) for p, b in zip(given, before)]
            self.assertEqual(moved, [True, False, True])
            self.assertTrue(torch.equal(given[0][3:], before[0][3:]))
            self.assertFalse((given[0][:3] == before[0][:3]).any())
            self.assertEqual(optimizer.step(lambda: 1.5), 1.5)
            self.assertIsNone(optimizer.state_dict()["param_groups"][0]["exp_avg_mask"])
            given[1].grad = torch.ones(SHAPES[1])
            with self.assertRaisesRegex(onebit.InvalidUsage, "required none at the first step"):
                optimizer.step()

        run_ranks(RANKS, check)

    def test_what_is_refused(self):
        def check(comm):
            given = parameters()
            with self.assertRaisesRegex(TypeError, "no option 'momentum'"):
                OnebitAdam(given, communicator=comm, momentum=0.9)
            with self.assertRaisesRegex(TypeError, "beta1 follows from params and betas"):
                OnebitAdam(given, communicator=comm, beta1=0.9)
            with self.assertRaisesRegex(onebit.InvalidUsage, "state_dict"):
                copy.deepcopy(OnebitAdam(given, communicator=comm))
            with self.assertRaisesRegex(onebit.InvalidArgument, "amsgrad"):
                OnebitAdam(given, communicator=comm, amsgrad=True)
            with self.assertRaisesRegex(onebit.InvalidArgument, "must be the same"):
                OnebitAdam(
                    [{"params": given[:1]}, {"params": given[1:], "eps": 1.0}], communicator=comm
                )
            with self.assertRaisesRegex(onebit.InvalidArgument, "var_freeze_step, .* or lr_warmup_steps"):
                ZeroOneAdam(given, communicator=comm)
            with self.assertRaisesRegex(onebit.InvalidArgument, 'needs mode="plain"'):
                onebit.torch.State(torch.nn.Linear(2, 2), codec="int8_stochastic")
            with self.assertRaisesRegex(onebit.InvalidUsage, "torch.distributed is not initialized"):
                OnebitAdam(given)
            double = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
            with self.assertRaisesRegex(onebit.InvalidArgument, "torch.float64, but must"):
                OnebitAdam([double], communicator=comm).step()
            optimizer = OnebitAdam(parameters(), communicator=comm)
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]})
            optimizer.step()
            gapped = torch.nn.Parameter(torch.zeros(3, 4)[:, :2])
            with self.assertRaisesRegex(onebit.InvalidArgument, "without gaps"):
                OnebitAdam([gapped], communicator=comm)
            optimizer = OnebitAdam(
                given, deepspeed=None, cuda_aware=False, comm_backend_name="nccl", communicator=comm
            )
            make_step(optimizer, given, comm.rank, 0)
            with self.assertRaisesRegex(onebit.InvalidUsage, "add_param_group"):
                optimizer.add_param_group({"params": [double]})
            with self.assertRaisesRegex(onebit.InvalidArgument, "another kind of optimizer"):
                optimizer.load_state_dict(torch.optim.AdamW(given).state_dict())
            state = optimizer.state_dict()
            state["param_groups"][0]["lr"] = 5.0
            damaged = bytearray(state["state"][0]["onebit"])
            damaged[-100] ^= 1
            state["state"][0]["onebit"] = bytes(damaged)
            with self.assertRaises(onebit.Corrupt):
                optimizer.load_state_dict(state)
            self.assertEqual(optimizer.param_groups[0]["lr"], 1e-3)
            given[0].grad = torch.zeros(SHAPES[0]).to_sparse()
            with self.assertRaisesRegex(onebit.InvalidArgument, "sparse"):
                optimizer.step()
            make_step(optimizer, given, comm.rank, 1)  # nothing is left of the failed one
            optimizer.param_groups[0]["lr"] = -1.0
            with self.assertRaisesRegex(onebit.InvalidArgument, "learning_rate is -1"):
                optimizer.step()
            optimizer.param_groups[0]["lr"] = 1e-3
            make_step(optimizer, given, comm.rank, 2)
            optimizer.param_groups[0]["betas"] = (0.5, 0.5)
            with self.assertRaisesRegex(onebit.InvalidUsage, "cannot change"):
                optimizer.step()
            optimizer.param_groups[0]["betas"] = (0.9, 0.999)
            given[0].data = given[0].data.clone()
            with self.assertRaisesRegex(onebit.InvalidUsage, "has moved in memory"):
                optimizer.step()

        run_ranks(1, check)

    def test_options_of_a_state_hold_in_an_optimizer_in_use(self):
        """Also those that the library's optimizer cannot change."""

        def check(comm):
            given, others = parameters(), parameters()
            first, second = [
                OnebitLamb(
                    [{"params": each[:1]}, {"params": each[1:], "no_trust_ratio": has_option}],
                    0.01, freeze_step=4, communicator=comm,
                )
                for each, has_option in ((given, True), (others, False))
            ]  # fmt: skip
            for step in range(8):
                make_step(first, given, comm.rank, step)
                make_step(second, others, comm.rank, step)
                if step == 1:
                    second.load_state_dict(first.state_dict())
            self.assert_equal(others, given)

        run_ranks(RANKS, check)


if __name__ == "__main__":
    unittest.main()
