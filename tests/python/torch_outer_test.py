# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Outer optimizers on ranks that are threads: trajectories of a reference, states, bytes, buffers, averages
that are not finite, refusals."""

import copy
import json
import pathlib
import threading
import unittest
import warnings

import onebit
from diloco_reference import EVERY, RANKS, Run, loss_at, trained
from diloco_trainer import Trainer
from needs_torch import torch
from onebit.torch.outer import DiLoCo
from rank_threads_case import errors_of_ranks, run_ranks

DATA = pathlib.Path(__file__).with_name("data") / "diloco.json"
STEPS = 60
HEADER = 64
STREAMING = {"fragments": 2, "overlap": 2}
# Chunks of 8 elements, as the reference has them.
SMALL = {"chunk_alignment": 8}
SPARSE = {"codec": "topk", "outer_lr": 1, "outer_momentum": 0, "merge": 0}
SPARSE["compressor"] = {"k": 80, "block": 320, "hops": 1, "ef_decay": 0.95, "values": "float32"}
# For each run of the reference its own options, and those of the class. The library's sparse blocks are longer.
RUNS = {
    "dense_P1": ({}, {"codec": None, "merge": 0}),
    "dense_P2_tau2_a5": ({**STREAMING, "merge": 0.5}, {**STREAMING, "codec": None}),
    "dense_P2_tau2_rebase": (
        {**STREAMING, "merge": "rebase"},
        {**STREAMING, "codec": None, "merge": "rebase"},
    ),
    "sign_P1": ({"codec": "sign"}, {"codec": "sign", "merge": 0, "compressor": SMALL}),
    "e2m1_P2_tau2_a5": (
        {**STREAMING, "codec": "fp4", "merge": 0.5},
        {**STREAMING, "codec": "fp4", "mode": "ef", "compressor": SMALL},
    ),
    "two_P1": ({"codec": "int2"}, {"codec": "int2", "merge": 0, "compressor": SMALL}),
    "sparseloco": ({"codec": "topk", "rate": 1, "momentum": 0, "decay": 0.95}, SPARSE),
}
# At these offsets rounded scales leave codes furthest from a border: gradients that change by 3e-5 of them change none.
OFFSETS = {"e2m1_P2_tau2_a5": 27, "two_P1": 27}
EXACT_STATES = [
    {**STREAMING, "codec": "fp4", "mode": "ef"},
    {**STREAMING, "codec": None, "merge": "rebase"},
    {"fragments": 2, "codec": "sign", "overlap": 5},
    SPARSE,
]


def quietly(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function()


def warnings_of(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(each.message) for each in caught]


class OuterTest(unittest.TestCase):
    def assert_close(self, found, expected, what, most=1e-4):
        expected = torch.as_tensor(expected, dtype=torch.float64)
        self.assertLess(float((found.double() - expected).abs().max()), most, what)

    def test_the_reference_is_that_of_another_program(self):
        oracles = json.loads(DATA.read_text(encoding="utf-8"))
        self.assertEqual(oracles.keys(), RUNS.keys())
        for name, oracle in oracles.items():
            found = trained(Run(oracle["off"], **RUNS[name][0]), STEPS)
            for step, loss in oracle["loss"].items():
                self.assertAlmostEqual(loss_at(found["path"][int(step) - 1]), loss, 9, name)
            self.assert_close(found["path"][-1], oracle["x_g"], name, 1e-9)
            self.assert_close(found["x_0"], oracle["x_0"], name, 1e-9)
            self.assert_close(found["owed_by_0"], oracle["e0"], name, 1e-9)
            self.assert_close(found["owed_by_chunks"], oracle["s"], name, 1e-9)
            if oracle["kinds"] is not None:
                self.assertEqual(found["kinds"], oracle["kinds"], name)

    def test_trajectories_are_those_of_the_reference(self):
        oracles = json.loads(DATA.read_text(encoding="utf-8"))
        offsets = {**{name: each["off"] for name, each in oracles.items()}, **OFFSETS}
        for name, (of_reference, options) in RUNS.items():
            more = {"top": (8, 32), "has_exact_scales": False}
            expected = trained(Run(offsets[name], **of_reference, **more), STEPS)

            def train(comm, name=name, options=options):
                trainer = Trainer(comm, offsets[name], **options)
                trainer.steps(STEPS)
                return trainer.seen, trainer.x, trainer.outer.report()

            ranks = quietly(lambda train=train: run_ranks(RANKS, train))
            for seen, _, report in ranks:
                self.assertEqual(report.steps, STEPS)
                for step, (x, first, wanted) in enumerate(zip(seen, ranks[0][0], expected["path"]), 1):
                    self.assertTrue(torch.equal(x, first), f"{name}: ranks differ at {step}")
                    self.assert_close(x, wanted, f"{name} at {step}")
            self.assert_close(ranks[0][1], expected["x_0"], name)
            if options.get("mode") == "ef" or options["codec"] in ("sign", "int2", "topk"):
                norm = float(torch.tensor(ranks[0][2].residual_norms).norm())
                self.assertAlmostEqual(norm, float(expected["owed_by_0"].norm()), 3, name)

    def test_one_step_at_rate_1_arrives_at_the_parameters(self):
        """The sign of the pseudo-gradient is right."""

        def train(comm):
            for momentum in (0, 0.9):
                options = {"outer_lr": 1, "outer_momentum": momentum, "nesterov": False, "merge": 0}
                trainer = Trainer(comm, codec=None, **options)
                trainer.steps(EVERY - 1)
                trainer.set_gradients()
                with torch.no_grad():  # in steps of 1/64, whose differences are exact
                    for parameter in trainer.parameters:
                        parameter.copy_((64 * parameter).round() / 64)
                        parameter.grad.zero_()
                trainer.inner.param_groups[0]["lr"] = 0
                trainer.outer.step()
                self.assertTrue(torch.equal(trainer.global_x, trainer.x))
                self.assertFalse(torch.equal(trainer.x, trainer.toy.start.float()))

        run_ranks(1, train)

    def test_inner_steps_go_on_beside_an_average(self):
        has_gone_on = threading.Event()

        def train(comm):
            trainer = Trainer(comm, **STREAMING, codec="fp4").steps(2)
            if comm.rank == 1:  # it submits nothing before the other one is a step further
                self.assertTrue(has_gone_on.wait(60))
            trainer.steps(2)
            self.assertEqual(trainer.outer.steps, 4)
            if comm.rank == 0:
                has_gone_on.set()
            return trainer.steps(1).global_x

        first, second = run_ranks(2, train)
        self.assertTrue(torch.equal(first, second))

    # ------------------------------------------------------------------------------------ checkpoints

    def test_exact_states_continue_bit_for_bit(self):
        for options in EXACT_STATES:
            for position in range(2 * EVERY, 3 * EVERY):

                def train(comm, options=options, position=position):
                    trainer = Trainer(comm, **options).steps(position)
                    is_in_flight = any(each.get("flight") for each in trainer.outer.state_dict("rank")["fragments"])
                    states = trainer.states("rank")
                    trainer.steps(2 * EVERY)
                    outer = trainer.outer.state_dict("rank")
                    trainer.outer.close()
                    resumed = Trainer(comm, **options).steps(3).load(states).steps(2 * EVERY)
                    again = resumed.outer.state_dict("rank")
                    for one, other in zip(outer["fragments"], again["fragments"]):
                        for key in ("values", "momentum", "residual"):
                            if one[key] is not None:
                                self.assertTrue(torch.equal(one[key], other[key]), key)
                        self.assertEqual(one["rounds"], other["rounds"])
                    self.assertEqual(outer["steps"], again["steps"])
                    self.assertTrue(torch.equal(trainer.x, resumed.x))
                    resumed.outer.close()
                    return is_in_flight

                with self.subTest(options=options, position=position):
                    flights = quietly(lambda train=train: run_ranks(2, train))
                    if options.get("overlap") == 2:
                        self.assertEqual(flights, [position % 3 != 2] * 2)

    def test_portable_states_fit_other_numbers_of_ranks(self):
        for options in ({**STREAMING, "codec": "fp4", "mode": "ef"}, {"codec": "fp4"}):
            saved = run_ranks(4, lambda comm, o=options: Trainer(comm, **o).steps(10).outer.state_dict())
            for each in saved:
                self.assertEqual(each["steps"], 10)
                for one, other in zip(each["fragments"], saved[0]["fragments"]):
                    self.assertTrue(torch.equal(one["values"], other["values"]))

            def resume(comm, options=options, state=saved[1]):
                trainer = Trainer(comm, **options)
                trainer.outer.load_state_dict(state)
                values = torch.cat([each["values"] for each in state["fragments"]])
                self.assertTrue(torch.equal(trainer.x, values))
                self.assertTrue(torch.equal(trainer.global_x, values))
                trainer.steps(20)
                self.assertEqual(trainer.outer.steps, 30)
                self.assertLess(loss_at(trainer.global_x), loss_at(values))
                found = trainer.global_x
                trainer.outer.close()  # averages in flight end before the communicator does
                return found

            found = run_ranks(3, resume)
            for x in found[1:]:
                self.assertTrue(torch.equal(x, found[0]))

    def test_a_flush_leaves_nothing_in_flight_or_owed(self):
        def train(comm):
            trainer = Trainer(comm, **STREAMING, codec="sign")
            trainer.steps(10)
            report = trainer.outer.report()
            self.assertGreater(min(report.residual_norms), 0)
            trainer.outer.flush()
            self.assertEqual(trainer.outer.report().residual_norms, [0.0, 0.0])
            # Step 9 had one in flight, and the flush ends a round of each fragment.
            self.assertEqual(trainer.outer.report().rounds, report.rounds + 3)
            trainer.outer.adopt_global_parameters()
            self.assertTrue(torch.equal(trainer.x, trainer.global_x))
            return trainer.x

        first, second = run_ranks(2, train)
        self.assertTrue(torch.equal(first, second))

    def test_states_of_something_else_are_refused(self):
        def train(comm):
            trainer = Trainer(comm, codec="fp4", mode="ef", fragments=2)
            trainer.steps(8)
            before = trainer.states("rank")
            state = before[2]
            other = {**state, "fragments": state["fragments"][::-1]}
            damaged = copy.deepcopy(state)
            damaged["fragments"][1]["residual"] = damaged["fragments"][1]["residual"][:50]
            short = copy.deepcopy(state)
            short["fragments"][0]["values"] = torch.zeros(3)
            for wrong, text in (
                ({}, "is not what state_dict"),
                ({**state, "rank": 1 - comm.rank}, f"is of rank {1 - comm.rank} of 2, but this is rank"),
                ({**state, "ranks": 3}, "of 3, but this is rank"),
                ({**state, "fragments": state["fragments"][:1]}, "as many fragments"),
                ({**state, "kind": "none"}, "is not a StateKind"),
                ({**state, "steps": -1}, "steps of the state is -1"),
                (other, "has the parameter 'parameter 1' of shape"),
                (short, "not a tensor of 16 elements"),
                (damaged, "the residual of fragment 1"),
            ):
                with self.assertRaisesRegex((onebit.InvalidArgument, onebit.Corrupt), text):
                    trainer.outer.load_state_dict(wrong)
            after = trainer.outer.state_dict("rank")
            for one, other in zip(state["fragments"], after["fragments"]):
                for key in ("values", "momentum", "residual"):
                    self.assertTrue(torch.equal(one[key], other[key]))
            trainer.steps(EVERY)  # and goes on
            dense = Trainer(comm, codec=None, outer_momentum=0, fragments=2)
            with self.assertRaisesRegex(onebit.InvalidArgument, "has one outer momentum, and this DiLoCo none"):
                dense.outer.load_state_dict(state)

        run_ranks(2, train)

    # ---------------------------------------------------------------------------------- what is sent

    def test_bytes_are_those_of_the_formula(self):
        elements, ranks = 1 << 16, 4
        chunk = elements // ranks

        def train(comm):
            parameters = [torch.nn.Parameter(torch.randn(elements)) for _ in range(2)]
            inner = torch.optim.SGD(parameters, lr=0.1)
            found = []
            for codec in ("fp4", None):
                outer = DiLoCo(parameters, inner, every=2, fragments=2, codec=codec, communicator=comm)
                before = outer.report().bytes_sent
                for parameter in parameters:
                    parameter.grad = torch.randn(elements)
                for _ in range(6):
                    outer.step()
                report = outer.report()
                self.assertEqual(report.rounds, 6)
                found.append((report.bytes_sent - before, report.round_bytes, report.dense_round_bytes))
                outer.close()
            return found

        for (sent, by_formula, dense), (dense_sent, dense_by_formula, _) in run_ranks(ranks, train):
            # Codes and a scale of two bytes for each 128; in both exchanges to each of the others.
            packet = chunk // 2 + chunk // 128 * 2
            messages = 2 * (ranks - 1)
            self.assertEqual(sent, 3 * by_formula)
            self.assertEqual(by_formula, 2 * messages * (packet + HEADER))
            self.assertEqual(dense, 2 * messages * 4 * chunk)
            self.assertEqual(dense_by_formula, dense)
            self.assertEqual(dense_sent, 3 * (dense + 2 * messages * HEADER))

    def test_fragments_are_balanced_whole_parameters(self):
        def sizes(comm):
            sizes = [1, 90, 5, 5, 40, 60, 1]
            parameters = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
            inner = torch.optim.SGD(parameters, lr=1)
            found = []
            for fragments in (1, 2, 3, 7):
                outer = DiLoCo(parameters, inner, every=7, fragments=fragments, communicator=comm)
                found.append([len(each["values"]) for each in outer.state_dict("rank")["fragments"]])
                outer.close()
            return found

        (found,) = run_ranks(1, sizes)
        self.assertEqual(found, [[202], [101, 101], [91, 50, 61], [1, 90, 5, 5, 40, 60, 1]])

    def test_scales_of_signs_restart_at_parameters(self):
        def train(comm):
            # The border is inside of a rank's chunk.
            parameters = [torch.nn.Parameter(torch.zeros(size)) for size in (64, 192)]
            inner = torch.optim.SGD(parameters, lr=1)
            options = {"codec": "sign", "mode": "plain", "merge": 0, "outer_lr": 1, "outer_momentum": 0}
            outer = DiLoCo(parameters, inner, every=1, communicator=comm, **options)
            for parameter, size in zip(parameters, (1.0, 1e-3)):
                parameter.grad = torch.full_like(parameter, -size)
            outer.step()
            return [each.detach() for each in parameters]

        for large, small in run_ranks(2, train):
            torch.testing.assert_close(large, torch.full((64,), 1.0))
            torch.testing.assert_close(small, torch.full((192,), 1e-3))

    # -------------------------------------------------------------------------------- kinds of models

    def test_parameters_of_16_bits_follow_global_ones_of_32(self):
        def train(comm):
            parameter = torch.nn.Parameter(torch.linspace(-1, 1, 64).to(torch.bfloat16))
            inner = torch.optim.SGD([parameter], lr=0.01)
            outer = DiLoCo([parameter], inner, every=2, codec=None, merge=0, communicator=comm)
            for step in range(8):
                parameter.grad = torch.full_like(parameter, comm.rank + step)
                outer.step()
            (state,) = outer.state_dict("rank")["fragments"]
            self.assertEqual(state["values"].dtype, torch.float32)
            self.assertTrue(torch.equal(parameter.detach(), state["values"].to(torch.bfloat16)))
            self.assertFalse(torch.equal(state["values"], state["values"].to(torch.bfloat16).float()))
            return state["values"]

        first, second = run_ranks(2, train)
        self.assertTrue(torch.equal(first, second))

    def test_running_statistics_become_their_average(self):
        def train(comm):
            torch.manual_seed(comm.rank)
            model = torch.nn.Sequential(
                torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(144, 2)
            )
            mask = torch.full((3,), -torch.inf)
            model.register_buffer("constants", torch.cat([mask, torch.tensor([1 / 3])]))
            constants = model.constants.clone()
            inner = torch.optim.SGD(model.parameters(), lr=0.1)
            outer = DiLoCo(model, inner, every=4, fragments=2, communicator=comm)
            norm, means = model[1], []
            for step in range(8):
                generator = torch.Generator().manual_seed(10 * step + comm.rank)
                inputs = torch.randn(8, 1, 8, 8, generator=generator) + comm.rank
                inner.zero_grad()
                model(inputs).square().sum().mul(1e-3).backward()
                means.append(norm.running_mean.clone())  # as the forward pass left it
                outer.step()
                means.append(norm.running_mean.clone())
            self.assertTrue(torch.equal(model.constants, constants))
            self.assertEqual(int(norm.num_batches_tracked), 8)
            with outer.global_parameters():
                self.assertTrue(torch.equal(norm.running_mean, means[-1]))
            return means

        first, second = run_ranks(2, train)
        for number, (one, other) in enumerate(zip(first, second)):
            is_averaged = number in (7, 15)  # behind steps 4 and 8
            self.assertEqual(torch.equal(one, other), is_averaged, number)
        for number in (7, 15):
            mean = (first[number - 1] + second[number - 1]) / 2
            torch.testing.assert_close(first[number], mean)

    def test_ranks_begin_with_all_tensors_of_rank_0(self):
        def begin(comm):
            torch.manual_seed(comm.rank)
            model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
            model[2].weight.requires_grad_(False)
            model[1].num_batches_tracked.fill_(comm.rank + 5)
            inner = torch.optim.SGD(model.parameters(), lr=0.1)
            DiLoCo(model, inner, every=4, communicator=comm).close()
            return model.state_dict()

        first, second = run_ranks(2, begin)
        for name, tensor in first.items():
            self.assertTrue(torch.equal(tensor, second[name]), name)

    def test_several_inner_optimizers_and_closures(self):
        def train(comm):
            parameters = [torch.nn.Parameter(torch.ones(5)) for _ in range(2)]
            both = [torch.optim.SGD([each], lr=rate) for each, rate in zip(parameters, (0.1, 0.2))]
            outer = DiLoCo(
                parameters, both, every=2, codec=None, merge=0, outer_momentum=0, communicator=comm
            )
            for each in parameters:
                each.grad = torch.full((5,), float(comm.rank))
            outer.step()
            with self.assertRaisesRegex(onebit.InvalidUsage, "one inner optimizer"):
                outer.step(lambda: 0)
            outer.step()
            outer.close()
            found = [float(each.detach()[0]) for each in parameters]
            single = torch.optim.SGD(parameters, lr=0.1)
            with DiLoCo(parameters, single, every=2, communicator=comm) as outer:
                self.assertEqual(outer.step(lambda: 7), 7)
            return found

        for found in run_ranks(2, train):
            # Rank 1 has made two steps of each, rank 0 none that moves; .7 of their mean are applied.
            self.assertAlmostEqual(found[0], 1 - 0.7 * 0.1, 5)
            self.assertAlmostEqual(found[1], 1 - 0.7 * 0.2, 5)

    def test_a_step_that_a_scaler_skips_counts(self):
        class Scaler:
            """The part of a GradScaler that counts here: it steps unless the gradient is not finite."""

            def step(self, optimizer):
                gradients = [each.grad for group in optimizer.param_groups for each in group["params"]]
                if all(bool(each.isfinite().all()) for each in gradients):
                    optimizer.step()

        def train(comm):
            parameter = torch.nn.Parameter(torch.ones(5))
            inner = torch.optim.SGD([parameter], lr=0.1)
            options = {"codec": None, "merge": 0, "outer_momentum": 0, "outer_lr": 1}
            outer = DiLoCo([parameter], inner, every=2, communicator=comm, **options)
            for step in range(4):
                parameter.grad = torch.ones(5)
                if step == comm.rank:
                    parameter.grad[2] = float("inf")
                outer.step(scaler=Scaler())
            self.assertEqual(outer.steps, 4)
            return float(parameter.detach()[0])

        for found in run_ranks(2, train):
            self.assertAlmostEqual(found, 1 - 0.1 - 0.2, 5)

    # -------------------------------------------------------------------------- what can be wrong

    def test_averages_that_are_not_finite_are_skipped_and_counted(self):
        for options in ({"codec": "fp4"}, {"codec": "sign"}, {"codec": None}):

            def train(comm, options=options):
                trainer = Trainer(comm, **options).steps(EVERY + 1)
                before, values = trainer.global_x, trainer.x
                if comm.rank == 1:
                    with torch.no_grad():
                        trainer.parameters[1][3] = float("nan")
                trainer.steps(EVERY)
                report = trainer.outer.report()
                self.assertEqual((report.rounds, report.skipped_rounds), (2, 1))
                self.assertTrue(torch.equal(trainer.global_x, before))
                self.assertEqual(bool(trainer.x.isfinite().all()), comm.rank != 1)
                self.assertFalse(torch.equal(trainer.x[:16], values[:16]))  # inner steps go on
                if comm.rank == 1:
                    trainer.outer.adopt_global_parameters()
                    trainer.inner.state.clear()
                trainer.steps(EVERY)
                self.assertEqual(trainer.outer.report().skipped_rounds, 1)
                self.assertFalse(torch.equal(trainer.global_x, before))
                return trainer.global_x

            found = []
            texts = warnings_of(lambda train=train, found=found: found.extend(run_ranks(2, train)))
            self.assertTrue(torch.equal(*found))
            (text,) = [each for each in texts if "not finite" in each]
            self.assertIn("parameter 0, parameter 1: not finite on rank 1 after step 12", text)

    def test_coarse_feedback_under_momentum_is_warned_of_once(self):
        for options, is_warned in (
            ({"codec": "sign", "merge": 0}, True),
            ({"codec": "int2", "merge": 0.2}, True),
            ({"codec": "sign", "merge": "rebase"}, True),
            ({"codec": "sign"}, False),
            ({"codec": "sign", "merge": 0, "mode": "plain"}, False),
            ({"codec": "fp4", "mode": "ef", "merge": 0}, False),
            (SPARSE, False),
        ):
            with self.subTest(options=options):
                texts = warnings_of(lambda o=options: run_ranks(2, lambda comm: Trainer(comm, **o).steps(7)))
                self.assertEqual(len(texts), int(is_warned), texts)
                for text in texts:
                    self.assertIn("merge=0.5", text)
                    self.assertIn("outer_momentum=0", text)

    def test_wrong_arguments_are_refused(self):
        parameter = torch.nn.Parameter(torch.zeros(8))
        inner = torch.optim.SGD([parameter], lr=1)
        double = torch.nn.Parameter(torch.zeros(8, dtype=torch.float64))
        frozen = torch.nn.Parameter(torch.zeros(8), requires_grad=False)
        meta = torch.nn.Parameter(torch.zeros(8, device="meta"))
        other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=1)
        for arguments, options, text in (
            (([parameter], inner), {"every": 0}, "every is 0, but must be an integer >= 1"),
            (([parameter], inner), {"every": 2.5}, "every is 2.5"),
            (([parameter], inner), {"overlap": 4}, r"overlap is 4, but must be an integer from 0 to 3 \(every"),
            (([parameter], inner), {"fragments": 2}, "fragments is 2, but must be an integer from 1 to 1"),
            (([parameter], inner), {"merge": 1}, r"merge is 1, but must be in \[0, 1\), or \"rebase\""),
            (([parameter], inner), {"merge": "none"}, "merge is 'none'"),
            (([parameter], inner), {"outer_lr": 0}, "outer_lr is 0"),
            (([parameter], inner), {"outer_lr": float("nan")}, "outer_lr is nan"),
            (([parameter], inner), {"outer_momentum": 1}, "outer_momentum is 1"),
            (([parameter], inner), {"codec": "auto"}, "is for onebit.torch.State"),
            (([parameter], inner), {"codec": "fp5"}, "is not a Codec"),
            (([parameter], inner), {"compressor": {"mask": None}}, "compressor has mask"),
            (([parameter], inner), {"compressor": [64]}, r"compressor is \[64\], but must be a dict"),
            (([parameter], inner), {"codec": None, "mode": "ef"}, "mode='ef' belongs to codec, which is None"),
            (([parameter], inner), {"codec": None, "compressor": {"k": 4}}, "compressor=.* belongs to codec"),
            (([parameter], inner), {"nesterov": "no"}, "nesterov is 'no', but must be True or False"),
            (([parameter, parameter], inner), {}, "model has a parameter twice"),
            (([double], inner), {}, "'parameter 0' is of torch.float64"),
            (([frozen], inner), {}, "no parameter that requires a gradient"),
            (([meta], inner), {}, "has no memory"),
            ((["weight"], inner), {}, "has a str where a parameter was expected"),
            (([parameter], other), {}, "trains 1 parameters that model does not have"),
            (([parameter], []), {}, "is an empty list"),
            (([parameter], [3]), {}, "inner_optimizer is a int"),
            (([parameter], None), {}, "inner_optimizer is a NoneType"),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(onebit.InvalidArgument, text):
                DiLoCo(*arguments, **{"every": 4, **options})
        with self.assertRaisesRegex(TypeError, "model is a set"):
            DiLoCo({parameter}, inner, every=4)

        def own(comm):
            adam = onebit.torch.optim.OnebitAdam([parameter], communicator=comm)
            sharded = onebit.torch.optim.ShardedOnebitAdam([parameter], freeze_step="never", communicator=comm)
            for averaging in (adam, sharded):
                with self.assertRaisesRegex(onebit.InvalidArgument, "averages gradients itself in every step"):
                    DiLoCo([parameter], averaging, every=4, communicator=comm)
            with self.assertRaisesRegex(onebit.InvalidArgument, "error feedback would make its result biased"):
                DiLoCo([parameter], inner, every=4, codec="int8_stochastic", mode="ef", communicator=comm)
            outer = DiLoCo([parameter], inner, every=4, communicator=comm)
            with self.assertRaisesRegex(onebit.InvalidUsage, "cannot be copied"):
                copy.deepcopy(outer)
            outer.close()
            for use in (outer.step, outer.flush, outer.state_dict, outer.report, outer.shrink):
                with self.assertRaisesRegex(onebit.InvalidUsage, "this DiLoCo is closed"):
                    use()
            self.assertIsNone(comm.failure)
            comm.barrier()  # it stays open

        run_ranks(1, own)

    def test_parameters_that_come_to_train_later_are_refused(self):
        def train(comm):
            parameter, frozen = (torch.nn.Parameter(torch.ones(8)) for _ in range(2))
            frozen.requires_grad_(False)
            inner = torch.optim.SGD([parameter, frozen], lr=1)
            outer = DiLoCo([parameter, frozen], inner, every=2, communicator=comm)
            outer.step()
            frozen.requires_grad_()
            frozen.grad = torch.ones(8)
            with self.assertRaisesRegex(onebit.InvalidArgument, "required no gradient when DiLoCo was made"):
                outer.step()
            self.assertEqual(outer.steps, 1)
            self.assertTrue(torch.equal(frozen.detach(), torch.ones(8)))  # nothing was stepped

        run_ranks(2, train)

    def test_nothing_uses_global_parameters_as_a_ranks_own(self):
        def train(comm):
            trainer = Trainer(comm, codec="fp4").steps(EVERY + 2)
            outer, own = trainer.outer, trainer.x.clone()
            state = outer.state_dict("rank")
            with outer.global_parameters():
                self.assertFalse(torch.equal(trainer.x, own))
                outer.state_dict("rank")  # reads none of them
                for use in (outer.step, outer.flush, outer.state_dict, lambda: outer.load_state_dict(state)):
                    with self.assertRaisesRegex(onebit.InvalidUsage, "inside a block of global_parameters"):
                        use()
            self.assertTrue(torch.equal(trainer.x, own))
            outer.flush()

        run_ranks(2, train)

    def test_arguments_that_differ_between_ranks_are_refused(self):
        def make(comm, options, shape):
            parameter = torch.nn.Parameter(torch.zeros(shape))
            inner = torch.optim.SGD([parameter], lr=1)
            DiLoCo([parameter], inner, communicator=comm, **{"every": 4, **options})

        for options, shape, text in (
            ({"every": 5}, (8,), "option 0 on rank 1 is every=5, but on rank 0 every=4: all ranks must pass the same options"),
            ({"codec": None}, (8,), "option 1 on rank 1 is codec=None, but on rank 0 codec=fp4"),
            ({}, (7,), r"parameter 0 on rank 1 is 'parameter 0' of shape \(7,\), but on rank 0"),
        ):
            errors = errors_of_ranks(
                2, lambda comm, o=options, s=shape: make(comm, o if comm.rank else {}, s if comm.rank else (8,))
            )
            for error in errors:
                self.assertRegex(str(error), text)
                self.assertIsInstance(error, onebit.InvalidArgument)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}")
    torch.set_num_threads(1)
    unittest.main()
