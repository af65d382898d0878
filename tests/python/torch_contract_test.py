# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's own tests demand of every optimizer, of OnebitAdam, OnebitLamb and ZeroOneAdam.
torch_suite.md says which of those tests these are, and which do not apply."""

import copy
import io
import pickle
import sys
import unittest
import warnings

try:
    import torch
except ImportError:
    sys.exit(77)  # skipped

import onebit
from torch_kinds import of_each_kind

NEEDS_2_0 = unittest.skipIf(torch.__version__ < "2", "PyTorch before 2.0 has no hooks of steps")
NEEDS_2_1 = unittest.skipUnless(
    hasattr(torch.optim.Optimizer, "register_state_dict_pre_hook"), "PyTorch before 2.1 has no hooks of states"
)


def parameter(*shape):
    made = torch.nn.Parameter(torch.ones(shape))
    made.grad = torch.full_like(made, 0.5)
    return made


class Line:
    """A line through noise: its loss is a quadratic of a matrix and a bias."""

    def __init__(self):
        generator = torch.Generator().manual_seed(4)
        self.weight = torch.nn.Parameter(torch.randn(10, 5, generator=generator))
        self.bias = torch.nn.Parameter(torch.randn(10, generator=generator))
        self.point = torch.randn(5, generator=generator)

    def named(self):
        return [("weight", self.weight), ("bias", self.bias)]

    def parameters(self):
        return [self.weight, self.bias]

    def backward(self):
        for each in self.parameters():
            each.grad = None
        loss = (self.weight.mv(self.point) + self.bias).pow(2).sum()
        loss.backward()
        return loss

    def train(self, optimizer, steps):
        for _ in range(steps):
            self.backward()
            optimizer.step()


def copied(state):
    """A state without what it shares with the optimizer, and without names."""
    state = copy.deepcopy(state)
    for group in state["param_groups"]:
        group.pop("param_names", None)
    return state


class MadeTest(unittest.TestCase):
    """Parameters, groups and options."""

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
            with self.assertWarnsRegex(UserWarning, "duplicate parameters"):
                with self.assertRaisesRegex(ValueError, "pass it once"):
                    make([given, given])
            with self.assertRaisesRegex(TypeError, "order differs between ranks"):
                make({given, parameter(3)})
            with self.assertRaisesRegex(TypeError, "ordered collections"):
                make([{"params": {given, parameter(3)}}])
            for mixed in ([("weight", given), parameter(3)], [given, ("weight", parameter(3))]):
                with self.assertRaisesRegex(ValueError, "others have none"):
                    make(mixed)
                with self.assertRaisesRegex(ValueError, "names"):
                    make([{"params": [each]} for each in mixed])

        of_each_kind(check)

    def test_options_are_checked_when_it_is_made(self):
        wrong = [
            {"lr": -0.1}, {"lr": float("nan")}, {"lr": torch.tensor([0.1, 0.2])},
            {"weight_decay": -1.0}, {"weight_decay": float("inf")}, {"eps": -1.0}, {"eps": 0.0},
            {"betas": (1.0, 0.5)}, {"betas": (0.9, -0.1)}, {"betas": (0.9,)},
        ]  # fmt: skip

        def check(make):
            for options in wrong:
                (name,) = options
                with self.assertRaisesRegex(ValueError, f"{name} (is|are) .*must"):
                    make([parameter(2)], **options)
                with self.assertRaisesRegex(ValueError, f"{name} (is|are) .*must"):
                    make([{"params": [parameter(2)]}, {"params": [parameter(3)], **options}])
            for option in ("maximize", "foreach", "fused", "capturable", "differentiable"):
                with self.assertRaisesRegex(TypeError, f"no option '{option}'"):
                    make([parameter(2)], **{option: True})

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

    def test_scalars_and_empty_parameters_are_parameters(self):
        def check(make):
            scalar, nothing, other = parameter(), parameter(0), parameter(2)
            optimizer = make([scalar, nothing, other])
            optimizer.step()
            self.assertLess(scalar.item(), 1.0)
            state = optimizer.state_dict()
            self.assertEqual([tuple(state["state"][k]["exp_avg"].shape) for k in range(3)], [(), (0,), (2,)])
            optimizer.load_state_dict(state)

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
            with self.assertRaisesRegex(onebit.InvalidUsage, "state_dict"):
                pickle.dumps(optimizer)

        of_each_kind(check)


class StepTest(unittest.TestCase):
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

    def test_gradients_of_zero_change_nothing(self):
        def check(make):
            given, other = parameter(5, 1), parameter(3)
            given.grad.zero_()
            other.grad = None
            loss = torch.tensor([1.0])
            optimizer = make([given, other])
            for _ in range(6):
                self.assertIs(optimizer.step(lambda: loss), loss)
            self.assertTrue(torch.equal(given, torch.ones(5, 1)) and torch.equal(other, torch.ones(3)))

        of_each_kind(check)

    def test_nothing_to_train_is_no_error(self):
        def check(make):
            given = [torch.ones(2, 3), torch.ones(2)]
            optimizer = make(given)
            self.assertEqual(float(optimizer.step(lambda: torch.tensor(1))), 1.0)
            self.assertEqual(optimizer.state_dict()["state"], {})
            self.assertTrue(all(bool((each == 1).all()) for each in given))

        of_each_kind(check)

    def test_losses_fall_under_schedulers(self):
        rates = torch.optim.lr_scheduler
        schedules = [
            [],
            [lambda it: rates.StepLR(it, gamma=0.9, step_size=10)],
            [lambda it: rates.StepLR(it, gamma=0.9, step_size=10), rates.ReduceLROnPlateau],
            [lambda it: rates.ConstantLR(it, factor=0.4, total_iters=4)],
            [lambda it: rates.PolynomialLR(it, power=0.9, total_iters=4)],
            [lambda it: rates.LinearLR(it, start_factor=0.4, total_iters=4), rates.ReduceLROnPlateau],
            [lambda it: rates.ExponentialLR(it, gamma=0.99), lambda it: rates.ExponentialLR(it, gamma=0.99)],
        ]

        def check(make):
            for schedule in schedules:
                for has_groups in (False, True):
                    line = Line()
                    groups = [{"params": [line.weight]}, {"params": [line.bias], "lr": 0.01}]
                    optimizer = make(groups if has_groups else line.parameters(), weight_decay=0.1)
                    schedulers = [each(optimizer) for each in schedule]
                    start = line.backward().item()
                    for _ in range(20):
                        loss = optimizer.step(line.backward)
                        for scheduler in schedulers:
                            plateau = isinstance(scheduler, rates.ReduceLROnPlateau)
                            scheduler.step(*[loss.detach()][: int(plateau)])
                    self.assertLess(line.backward().item(), start)

        of_each_kind(check)

    def test_a_rate_may_be_a_tensor(self):
        def check(make):
            line, same = Line(), Line()
            rate = torch.tensor(0.01)
            optimizer, other = make(line.parameters(), lr=rate), make(same.parameters(), lr=float(rate))
            line.train(optimizer, 5)
            same.train(other, 5)
            self.assertTrue(torch.equal(line.weight, same.weight) and torch.equal(line.bias, same.bias))
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            optimizer.param_groups[0]["lr"].zero_()
            line.train(optimizer, 1)
            self.assertTrue(torch.equal(line.weight, same.weight))
            groups = [{"params": [line.weight], "lr": torch.tensor([0.02])}, {"params": [line.bias]}]
            mixed = make(groups, lr=0.01)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(mixed, factor=0.5, patience=0)
            for _ in range(2):
                scheduler.step(1.0)
            self.assertEqual([round(float(group["lr"]), 6) for group in mixed.param_groups], [0.01, 0.005])
            line.train(mixed, 1)

        of_each_kind(check)

    def test_groups_have_rates_and_decays_of_their_own(self):
        def check(make):
            line, others = Line(), [parameter(2), parameter(3)]
            groups = [
                {"params": line.parameters(), "lr": 0.01},
                {"params": others[:1]},
                {"params": others[1:], "lr": 0.01, "weight_decay": 0.5},
            ]
            optimizer = make(groups, lr=1e-28)
            others[1].grad.zero_()
            start = line.backward().item()
            line.train(optimizer, 20)
            self.assertLess(line.backward().item(), start)
            self.assertTrue(torch.equal(others[0], torch.ones(2)))
            self.assertLess(float(others[1].detach().max()), 1.0)

        of_each_kind(check)

    def test_a_layer_rests_while_it_is_frozen(self):
        def check(make):
            line = Line()
            optimizer = make(line.parameters(), lr=0.01, weight_decay=0.1)
            before = []
            for step in range(4):
                before.append(line.bias.detach().clone())
                line.bias.requires_grad_(step not in (1, 2))
                line.train(optimizer, 1)
            moved = [not torch.equal(*pair) for pair in zip(before, [*before[1:], line.bias])]
            self.assertEqual(moved, [True, False, False, True])

        of_each_kind(check)

    def test_profilers_see_steps(self):
        def check(make):
            optimizer = make([parameter(2)])
            with torch.autograd.profiler.profile() as profile:
                optimizer.step()
                optimizer.zero_grad()
            names, kind = {event.name for event in profile.function_events}, type(optimizer).__name__
            for call in ("step", "zero_grad"):
                self.assertIn(f"Optimizer.{call}#{kind}.{call}", names)

        of_each_kind(check)

    def test_schedulers_know_if_a_step_was_taken(self):
        def check(make):
            for is_first in (True, False):
                optimizer = make([parameter(2)])
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
                with warnings.catch_warnings(record=True) as recorded:
                    warnings.simplefilter("always")
                    if is_first:
                        optimizer.step()
                    scheduler.step()
                said = [each for each in recorded if "`optimizer.step()`" in str(each.message)]
                self.assertEqual(len(said), int(not is_first))

        of_each_kind(check)


class StateTest(unittest.TestCase):
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

    def test_two_go_on_alike_after_a_load(self):
        def check(make):
            for is_named in (False, True):
                for is_other_named in (False, True):
                    line, same = Line(), Line()
                    optimizer = make(line.named() if is_named else line.parameters(), lr=0.01)
                    line.train(optimizer, 6)
                    other = make(same.named() if is_other_named else same.parameters())
                    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
                    for _ in range(6):
                        line.train(optimizer, 1)
                        same.train(other, 1)
                        self.assertTrue(torch.equal(line.weight, same.weight) and torch.equal(line.bias, same.bias))
                    found, expected = copied(other.state_dict()), copied(optimizer.state_dict())
                    self.assertEqual(found["param_groups"], expected["param_groups"])
                    for number, entry in expected["state"].items():
                        for key in ("step", "exp_avg", "exp_avg_sq"):
                            self.assertTrue(torch.equal(found["state"][number][key], entry[key]))
                        if is_named == is_other_named:  # the exact state has names
                            self.assertEqual(found["state"][number]["onebit"], entry["onebit"])
                    if is_named or is_other_named:
                        names = other.state_dict()["param_groups"][0]["param_names"]
                        self.assertEqual(names, ["weight", "bias"])

        of_each_kind(check, ranks=2)

    def test_repeated_groups_are_described_alike(self):
        def check(make):
            line = Line()
            optimizer = make(line.parameters())
            line.train(optimizer, 1)
            expected = optimizer.state_dict()
            optimizer.param_groups.extend(optimizer.param_groups)
            found = optimizer.state_dict()
            self.assertEqual(found["param_groups"], expected["param_groups"] * 2)
            self.assertEqual(list(found["state"]), [0, 1])

        of_each_kind(check)

    def test_states_of_before_an_option_are_loaded(self):
        def check(make):
            line = Line()
            optimizer = make(line.parameters(), lr=0.01)
            line.train(optimizer, 3)
            state = copied(optimizer.state_dict())
            for group in state["param_groups"]:
                for option in ("non_freeze", "no_trust_ratio", "rare_rows"):
                    del group[option]
            optimizer.load_state_dict(state)
            line.train(optimizer, 1)
            self.assertIs(optimizer.param_groups[0]["rare_rows"], False)

        of_each_kind(check)

    def test_a_step_that_is_a_number_is_loaded(self):
        def check(make):
            line = Line()
            optimizer = make(line.parameters())
            line.train(optimizer, 3)
            state = copied(optimizer.state_dict())
            for entry in state["state"].values():
                entry["step"] = entry["step"].item()
            optimizer.load_state_dict(state)
            line.train(optimizer, 1)
            self.assertEqual(float(optimizer.state[line.weight]["step"]), 4.0)

        of_each_kind(check)

    def test_a_state_survives_a_file(self):
        def check(make):
            for is_named in (False, True):
                line = Line()
                optimizer = make(line.named() if is_named else line.parameters())
                line.train(optimizer, 3)
                state = optimizer.state_dict()
                file = io.BytesIO()
                torch.save(state, file)
                # PyTorch 1.13 loads no bytes with weights_only.
                for options in [{}, {"weights_only": True}][: 1 if torch.__version__ < "2" else 2]:
                    file.seek(0)
                    loaded = torch.load(file, **options)
                    self.assertEqual(loaded["param_groups"], state["param_groups"])
                    self.assertEqual(loaded["state"].keys(), state["state"].keys())
                    for number, entry in state["state"].items():
                        for key, value in entry.items():
                            found = loaded["state"][number][key]
                            same = value == found if key == "onebit" else torch.equal(value, found)
                            self.assertTrue(same, key)

        of_each_kind(check)

    def test_states_share_no_memory(self):
        def check(make):
            line, same = Line(), Line()
            optimizer, other = make(line.parameters()), make(same.parameters())
            line.train(optimizer, 2)
            state = optimizer.state_dict()
            other.load_state_dict(state)
            before = optimizer.state[line.weight]["exp_avg"].clone()
            state["state"][0]["exp_avg"].zero_()
            self.assertTrue(torch.equal(other.state[same.weight]["exp_avg"], before))
            state["state"][0]["exp_avg"].copy_(before)
            same.train(other, 2)
            self.assertFalse(torch.equal(other.state[same.weight]["exp_avg"], before))
            self.assertTrue(torch.equal(optimizer.state[line.weight]["exp_avg"], before))

        of_each_kind(check)

    def test_what_a_program_adds_to_a_state_survives(self):
        """As with torch.optim.Adam; also of a frozen parameter, and one that is trained later."""

        def check(make):
            line, same = Line(), Line()
            frozen, later, other_frozen = (
                torch.nn.Parameter(torch.ones(2), requires_grad=False) for _ in range(3)
            )
            optimizer = make([*line.parameters(), frozen, later])
            for number, each in enumerate((line.weight, frozen, later)):
                optimizer.state[each]["mean"] = torch.tensor([1.0, float(number)], dtype=torch.float64)
            optimizer.state[line.weight]["note"] = {"seen": [3]}
            optimizer.state[line.weight]["gone"] = 1
            later.requires_grad_(True)
            line.train(optimizer, 2)
            del optimizer.state[line.weight]["gone"]
            state = optimizer.state_dict()
            trained = parameter(2)
            other = make([*same.parameters(), other_frozen, trained])
            other.state[trained]["gone"] = 1
            other.load_state_dict(state)
            state["state"][0]["note"]["seen"].append(4)
            self.assertEqual(other.state[same.weight]["note"], {"seen": [3]})
            for _ in range(2):
                found = other.state_dict()["state"]
                for key, number in ((0, 0), (2, 1), (3, 2)):
                    expected = torch.tensor([1.0, float(number)], dtype=torch.float64)
                    self.assertTrue(torch.equal(found[key]["mean"], expected))
                self.assertNotIn("gone", {**found[0], **found[3]})
                same.train(other, 1)

        of_each_kind(check)

    def test_state_is_never_empty(self):
        def check(make):
            line = Line()
            optimizer = make(line.parameters())
            for _ in range(2):
                self.assertEqual({len(each) for each in optimizer.state.values()}, {4})
                line.train(optimizer, 1)

        of_each_kind(check)

    def test_schedulers_continue_from_a_state(self):
        def check(make):
            line, same = Line(), Line()
            optimizer = make(line.parameters(), lr=0.4)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            for _ in range(2):
                line.train(optimizer, 1)
                scheduler.step()
            other = make(same.parameters(), lr=7.0)
            other.load_state_dict(optimizer.state_dict())
            self.assertEqual(other.param_groups[0]["initial_lr"], 0.4)
            self.assertEqual(other.param_groups[0]["lr"], 0.1)
            again = torch.optim.lr_scheduler.ExponentialLR(other, 0.5, last_epoch=1)  # KeyError without it
            self.assertEqual(again.base_lrs, [0.4])

        of_each_kind(check)


class HooksTest(unittest.TestCase):
    @NEEDS_2_0
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

    @NEEDS_2_0
    def test_hooks_of_all_optimizers_come_outside(self):
        from torch.optim import optimizer as module

        def check(make):
            given, calls = parameter(2), []
            both = [make([given]), torch.optim.SGD([given], 0.1)]
            handles = [
                module.register_optimizer_step_pre_hook(lambda *_: calls.append("first")),
                module.register_optimizer_step_post_hook(lambda *_: calls.append("last")),
            ]
            for each in both:
                handles.append(each.register_step_pre_hook(lambda *_: calls.append("before")))
                handles.append(each.register_step_post_hook(lambda *_: calls.append("after")))
            for each in (*both, both[0]):
                each.step()
            self.assertEqual(calls, ["first", "before", "after", "last"] * 3)
            for handle in handles:
                handle.remove()
            for each in both:
                each.step()
            self.assertEqual(len(calls), 12)

        of_each_kind(check)

    @NEEDS_2_0
    def test_a_hook_may_replace_arguments_of_a_step(self):
        def check(make):
            optimizer = make([parameter(2)])
            optimizer.register_step_pre_hook(lambda _it, args, kwargs: ((args[0], lambda: 3.0), kwargs))
            self.assertEqual(optimizer.step(), 3.0)

        of_each_kind(check)

    @NEEDS_2_1
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

    @NEEDS_2_1
    def test_hooks_of_states_may_add_and_remove_entries(self):
        def check(make):
            optimizer = make([parameter(2, 3)])

            def add(of):
                of.state["test"] = 1

            def remove(_, state):
                state["was_there"] = state["state"].pop("test", None) is not None

            handle = optimizer.register_state_dict_post_hook(remove)
            self.assertFalse(optimizer.state_dict()["was_there"])
            handle.remove()
            handle = optimizer.register_state_dict_pre_hook(add)
            self.assertEqual(optimizer.state_dict()["state"]["test"], 1)
            optimizer.register_state_dict_post_hook(remove)
            self.assertTrue(optimizer.state_dict()["was_there"])
            self.assertNotIn("test", optimizer.state_dict()["state"])
            handle.remove()
            del optimizer.state["test"]
            self.assertFalse(optimizer.state_dict()["was_there"])

        of_each_kind(check)

    @NEEDS_2_1
    def test_hooks_of_loads_come_in_order(self):
        def check(make):
            optimizer = make([parameter(2, 3)])
            state = optimizer.state_dict()

            def change(_, given):
                given["param_groups"][0]["lr"] = 0.002

            def replace(_, given):
                given = copy.deepcopy(given)
                given["param_groups"][0]["lr"] = 0.003
                return given

            def note(of):
                of.state["seen"] = of.param_groups[0]["lr"]

            optimizer.register_load_state_dict_post_hook(note)
            handle = optimizer.register_load_state_dict_pre_hook(change)
            optimizer.load_state_dict(state)
            self.assertEqual(optimizer.state["seen"], 0.002)
            optimizer.register_load_state_dict_pre_hook(replace, prepend=True)
            optimizer.load_state_dict(state)
            self.assertEqual(optimizer.state["seen"], 0.002)
            handle.remove()
            optimizer.load_state_dict(state)
            self.assertEqual(optimizer.state["seen"], 0.003)

        of_each_kind(check)


if __name__ == "__main__":
    unittest.main()
