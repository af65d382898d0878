# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's own tests demand of every optimizer, of OnebitAdam, OnebitLamb and ZeroOneAdam.

Does not apply:
    foreach, fused, capturable, differentiable, maximize: there are no such options.
    complex parameters: refused.
    deepcopy and pickle of an optimizer: refused, because ranks would have to join anew; of a model it
        works.
    a group that is added after the first step: refused, because the state of all parameters is one.
    betas that change: refused, because the schedule follows from them.
"""

import copy
import sys
import unittest

try:
    import torch
except ImportError:
    sys.exit(77)  # skipped

import onebit
from onebit.torch.optim import OnebitAdam, OnebitLamb, ZeroOneAdam
from rank_threads_case import run_ranks

KINDS = {OnebitAdam: {}, OnebitLamb: {}, ZeroOneAdam: {"var_freeze_step": 4}}
HAS_HOOKS = hasattr(torch.optim.Optimizer, "register_state_dict_pre_hook")


def of_each_kind(check):
    """Calls check(make), where make(params, **options) makes an optimizer, for each class."""

    def on_rank(comm):
        for kind, options in KINDS.items():
            check(lambda params, k=kind, o=options, **more: k(params, communicator=comm, **o, **more))

    run_ranks(1, on_rank)


def parameter(*shape):
    made = torch.nn.Parameter(torch.ones(*shape))
    made.grad = torch.full_like(made, 0.5)
    return made


class TorchContractTest(unittest.TestCase):
    def test_params_are_checked(self):
        def check(make):
            with self.assertRaisesRegex(TypeError, "iterable"):
                make(torch.nn.Parameter(torch.ones(2)))
            with self.assertRaisesRegex(ValueError, "empty"):
                make([])
            with self.assertRaises(TypeError):
                make([1.0])
            with self.assertRaisesRegex(ValueError, "leaf"):
                make([torch.ones(2, requires_grad=True) * 2])
            given = parameter(2)
            with self.assertRaisesRegex(ValueError, "more than one"):
                make([{"params": [given]}, {"params": [given]}])

        of_each_kind(check)

    def test_groups_have_defaults_and_options_of_their_own(self):
        def check(make):
            optimizer = make([{"params": [parameter(2)]}, {"params": [parameter(3)], "lr": 0.5}], lr=0.1)
            self.assertEqual([group["lr"] for group in optimizer.param_groups], [0.1, 0.5])
            self.assertEqual(optimizer.defaults["lr"], 0.1)
            optimizer.add_param_group({"params": parameter(4)})
            self.assertEqual(optimizer.param_groups[2]["lr"], 0.1)
            self.assertEqual(len(optimizer.state), 3)
            self.assertIn("Parameter Group 2", repr(optimizer))
            optimizer.step()
            with self.assertRaises(onebit.InvalidUsage):
                optimizer.add_param_group({"params": [parameter(1)]})

        of_each_kind(check)

    def test_gradients_are_set_to_zero_or_none(self):
        def check(make):
            given = parameter(2)
            optimizer = make([given])
            optimizer.zero_grad(set_to_none=False)
            self.assertEqual(given.grad.tolist(), [0.0, 0.0])
            optimizer.zero_grad(set_to_none=True)
            self.assertIsNone(given.grad)
            optimizer.step()  # a parameter without a gradient is no error

        of_each_kind(check)

    def test_a_closure_is_called_once_with_gradients_enabled(self):
        def check(make):
            given, calls = parameter(2), []

            def closure():
                calls.append(torch.is_grad_enabled())
                return 7.0

            self.assertEqual(make([given]).step(closure), 7.0)
            self.assertEqual(calls, [True])

        of_each_kind(check)

    def test_a_state_survives_a_round_trip(self):
        def check(make):
            given, other = parameter(2, 3), parameter(2, 3)
            optimizer = make([given], lr=0.1)
            optimizer.step()
            state = optimizer.state_dict()
            before = copy.deepcopy(state)
            again = make([other], lr=0.2)
            again.load_state_dict(state)
            self.assertEqual(again.param_groups[0]["lr"], 0.1)
            self.assertEqual(set(state), {"state", "param_groups"})
            loaded = again.state_dict()
            self.assertEqual(loaded["param_groups"], before["param_groups"])
            for key, value in before["state"][0].items():
                if key != "onebit":
                    self.assertTrue(torch.equal(loaded["state"][0][key], value))
                    self.assertTrue(torch.equal(state["state"][0][key], value))
            again.param_groups[0]["lr"] = 0.9  # what was loaded is not shared
            self.assertEqual(state["param_groups"][0]["lr"], 0.1)
            with self.assertRaisesRegex(ValueError, "parameter groups"):
                make([{"params": [parameter(2)]}, {"params": [parameter(2)]}]).load_state_dict(state)

        of_each_kind(check)

    @unittest.skipUnless(hasattr(torch.optim.Optimizer, "register_step_pre_hook"), "PyTorch before 2.0")
    def test_hooks_of_steps_are_called(self):
        def check(make):
            optimizer, calls = make([parameter(2)]), []
            before = optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
            optimizer.register_step_post_hook(lambda *_: calls.append("after"))
            optimizer.step()
            before.remove()
            optimizer.step()
            self.assertEqual(calls, ["before", "after", "after"])

        of_each_kind(check)

    @unittest.skipUnless(HAS_HOOKS, "PyTorch before 2.1")
    def test_hooks_of_states_are_called_and_may_change_them(self):
        def check(make):
            optimizer, calls = make([parameter(2)], lr=0.1), []
            optimizer.register_state_dict_pre_hook(lambda _: calls.append("saves"))

            def complete(_, state):
                self.assertIn("onebit", state["state"][0])
                return {**state, "note": 1}

            optimizer.register_state_dict_post_hook(complete)
            optimizer.register_load_state_dict_post_hook(lambda _: calls.append("loaded"))

            def change(_, state):
                groups = [{**group, "lr": 0.3} for group in state["param_groups"]]
                return {**state, "param_groups": groups}

            optimizer.register_load_state_dict_pre_hook(change)
            state = optimizer.state_dict()
            self.assertEqual(state["note"], 1)
            optimizer.load_state_dict(state)
            self.assertEqual(optimizer.param_groups[0]["lr"], 0.3)
            self.assertEqual(calls, ["saves", "loaded"])

        of_each_kind(check)

    def test_models_are_copied_and_averaged(self):
        def check(make):
            model = torch.nn.Linear(3, 2)
            optimizer = make(model.parameters(), lr=0.1)
            average = torch.optim.swa_utils.AveragedModel(model)
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            average.update_parameters(model)
            same = copy.deepcopy(model)
            self.assertTrue(torch.equal(same.weight, model.weight))
            self.assertTrue(torch.equal(average.module.weight, model.weight))
            with self.assertRaisesRegex(onebit.InvalidUsage, "state_dict"):
                copy.deepcopy(optimizer)

        of_each_kind(check)


if __name__ == "__main__":
    unittest.main()
