# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What the optimizers know of parameters: names, order, kinds, what the program writes to them; and their
state as PyTorch's tools see it. Ranks are threads."""

import copy
import io
import sys
import unittest
import warnings
from unittest import mock

try:
    import torch
except ImportError:
    sys.exit(77)  # skipped

import onebit
from onebit.torch.optim import OnebitAdam, OnebitLamb, ZeroOneAdam
from rank_threads_case import errors_of_ranks, run_ranks

RANKS = 2
CLASSES = {
    OnebitAdam: {"freeze_step": 4},
    OnebitLamb: {"freeze_step": 4},
    ZeroOneAdam: {"var_freeze_step": 4, "local_step_scaler": 2, "local_step_clipper": 2},
}
NAMES = ["first.weight", "first.bias", "second.weight", "second.bias"]
SAME = [(5, 5), (5,), (5, 5), (5,)]  # shapes that do not tell an order


def named(names=None, dtype=torch.float32):
    generator = torch.Generator().manual_seed(7)
    made = {
        name: torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype))
        for name, shape in zip(NAMES, SAME)
    }
    return [(name, made[name]) for name in (names or NAMES)]


def make_step(optimizer, rank, step):
    for group in optimizer.param_groups:
        for number, parameter in enumerate(group["params"]):
            generator = torch.Generator().manual_seed(1000 * step + 10 * number + rank)
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.grad = (parameter.detach().float() - 1 + 0.3 * noise).to(parameter.dtype)
    optimizer.step()


def weights(pairs):
    return {name: parameter.detach().clone() for name, parameter in pairs}


class NamesTest(unittest.TestCase):
    def assert_equal(self, found, expected):
        for name, tensor in found.items():
            self.assertTrue(torch.equal(tensor, expected[name]), name)

    def test_ranks_with_another_order_are_refused_before_anything_is_copied(self):
        kept = {}

        def check(comm):
            names = NAMES if comm.rank == 0 else [NAMES[2], NAMES[1], NAMES[0], NAMES[3]]
            pairs = named(names)
            with torch.no_grad():
                for _, parameter in pairs:
                    parameter.add_(comm.rank)
            before = weights(pairs)
            kept[comm.rank] = (pairs, before)
            OnebitAdam(pairs, communicator=comm)

        for error in errors_of_ranks(3, check):
            self.assertIsInstance(error, onebit.InvalidArgument)
            self.assertRegex(
                str(error),
                r"parameter 0 on rank 1 is parameter 'second.weight' .* on rank 0 parameter "
                r"'first.weight'.*nothing was copied",
            )
        for pairs, before in kept.values():
            self.assert_equal(weights(pairs), before)

    def test_ranks_whose_parameters_have_no_names_are_compared_by_shape(self):
        def check(comm):
            shapes = [(3, 4), (4,)] if comm.rank == 0 else [(3, 4), (4,), (2,)]
            OnebitAdam([torch.nn.Parameter(torch.zeros(s)) for s in shapes], communicator=comm)

        for error in errors_of_ranks(RANKS, check):
            self.assertRegex(str(error), r"parameter 2 on rank 1 is .*\(2,\).* on rank 0 missing")

        def check_types(comm):
            dtype = torch.float16 if comm.rank == 1 else torch.float32
            OnebitAdam([torch.nn.Parameter(torch.zeros(2, dtype=dtype))], communicator=comm)

        for error in errors_of_ranks(RANKS, check_types):
            self.assertRegex(str(error), "float16, but on rank 0 .*float32")

        def check_groups(comm):
            optimizer = OnebitAdam([torch.nn.Parameter(torch.zeros(2))], communicator=comm)
            optimizer.add_param_group({"params": torch.nn.Parameter(torch.zeros(2 + comm.rank))})

        for error in errors_of_ranks(RANKS, check_groups):
            self.assertRegex(str(error), r"\(3,\)")

    def test_ranks_without_names_are_compared_by_their_elements(self):
        """The same weights in another order; other weights, as of other seeds, tell nothing."""
        kept = {}

        def check(comm):
            tensors = [parameter for _, parameter in named()]
            if comm.rank == 1:
                tensors = [tensors[2], tensors[1], tensors[0], tensors[3]]
            kept[comm.rank] = (tensors, [tensor.detach().clone() for tensor in tensors])
            OnebitAdam(tensors, communicator=comm)

        for error in errors_of_ranks(3, check):
            self.assertRegex(str(error), "parameter 0 on rank 1 .* elements of parameter 2 of rank 0, but on rank 0")
        for tensors, before in kept.values():
            self.assertTrue(all(torch.equal(one, other) for one, other in zip(tensors, before)))

        def check_values(comm):
            torch.manual_seed(comm.rank)
            OnebitAdam([torch.nn.Parameter(torch.randn(5, 5)) for _ in range(2)], communicator=comm)

        run_ranks(RANKS, check_values)

    def test_the_order_of_elements_in_memory_is_compared(self):
        def images(is_last):
            values = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(1))
            return torch.nn.Parameter(values.to(memory_format=torch.channels_last) if is_last else values)

        def check(comm):
            OnebitAdam([("filters", images(comm.rank == 1))], communicator=comm)

        for error in errors_of_ranks(RANKS, check):
            self.assertRegex(str(error), r"on rank 1 .*in the order \(0, 2, 3, 1\).*nothing was copied")

        def check_states(comm):
            pairs = [("filters", images(True))]
            optimizer = OnebitAdam(pairs, communicator=comm)
            make_step(optimizer, comm.rank, 0)
            state = optimizer.state_dict()
            other = images(False)
            before = other.detach().clone()
            with self.assertRaisesRegex(onebit.InvalidArgument, "memory_format that it had"):
                OnebitAdam([("filters", other)], communicator=comm).load_state_dict(state)
            self.assertTrue(torch.equal(other, before))

        run_ranks(RANKS, check_states)

    def test_parameters_cannot_change_after_the_first_step(self):
        def check(comm):
            for change in ("replaced", "removed"):
                optimizer = OnebitAdam(named(), communicator=comm)
                make_step(optimizer, comm.rank, 0)
                params = optimizer.param_groups[0]["params"]
                if change == "replaced":
                    params[0] = torch.nn.Parameter(torch.zeros(5, 5))
                else:
                    del params[0]
                with self.assertRaisesRegex(onebit.InvalidUsage, "param_groups after the first step"):
                    optimizer.step()

        run_ranks(RANKS, check)

    def test_names_of_wrapped_and_compiled_models_are_the_same(self):
        def check(comm):
            prefix = ["module.", "_orig_mod.module."][comm.rank]
            pairs = [(prefix + name, parameter) for name, parameter in named()]
            optimizer = OnebitAdam(pairs, communicator=comm)
            make_step(optimizer, comm.rank, 0)
            state = optimizer.state_dict()
            other = OnebitAdam(named(), communicator=comm)
            other.load_state_dict(state)
            self.assertEqual(other.param_groups[0]["param_names"], NAMES)

        run_ranks(RANKS, check)

    def test_a_state_in_another_order_is_refused(self):
        swapped = [NAMES[2], NAMES[1], NAMES[0], NAMES[3]]

        def check(comm):
            for kind, options in CLASSES.items():
                pairs = named()
                optimizer = kind([parameter for _, parameter in pairs], 0.01, communicator=comm, **options)
                for step in range(6):
                    make_step(optimizer, comm.rank, step)
                state = copy.deepcopy(optimizer.state_dict())
                of_model = weights(pairs)
                others = named(swapped)
                with torch.no_grad():
                    for name, parameter in others:  # the model has loaded its weights by name
                        parameter.copy_(of_model[name])
                other = kind([parameter for _, parameter in others], 0.5, communicator=comm, **options)
                with self.assertRaisesRegex(onebit.InvalidArgument, "in another order: parameter 0"):
                    other.load_state_dict(state)
                self.assert_equal(weights(others), of_model)
                self.assertEqual(other.param_groups[0]["lr"], 0.5)
                self.assertEqual(other.stats().step, 0)

        run_ranks(1, check)

    def test_a_state_is_loaded_by_names(self):
        """Parameters and groups may come in another order, and from a model that is wrapped."""

        def train(optimizer, pairs, rank, steps):
            for step in steps:
                for number, (_, parameter) in enumerate(sorted(pairs)):
                    generator = torch.Generator().manual_seed(1000 * step + 10 * number + rank)
                    parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
                optimizer.step()

        def groups_of(pairs, prefix=""):
            given = [(prefix + name, parameter) for name, parameter in pairs]
            return [
                {"params": [pair for pair in given if pair[0].endswith("bias")], "weight_decay": 0.0},
                {"params": [pair for pair in given if pair[0].endswith("weight")], "weight_decay": 0.1},
            ]

        def check(comm):
            for kind, options in CLASSES.items():
                for dtype in (torch.float32, torch.bfloat16):
                    pairs, others = named(dtype=dtype), named(NAMES[::-1], dtype)
                    optimizer = kind(groups_of(pairs, "module."), 0.01, communicator=comm, **options)
                    train(optimizer, pairs, comm.rank, range(8))
                    optimizer.state[dict(pairs)["first.bias"]]["mark"] = 7
                    state = copy.deepcopy(optimizer.state_dict())
                    other = kind(groups_of(others)[::-1], 0.5, communicator=comm, **options)
                    other.load_state_dict(state)
                    self.assertEqual([group["weight_decay"] for group in other.param_groups], [0.1, 0.0])
                    self.assertEqual(other.param_groups[0]["lr"], 0.01)
                    self.assertEqual(other.state[dict(others)["first.bias"]]["mark"], 7)
                    train(optimizer, pairs, comm.rank, range(8, 12))
                    train(other, others, comm.rank, range(8, 12))
                    self.assert_equal(weights(others), weights(pairs))
                    again = named(NAMES[::-1], dtype)  # in use, whose moments and order go
                    third = kind(groups_of(again)[::-1], 0.5, communicator=comm, **options)
                    train(third, again, comm.rank, range(3))
                    before = weights(again)
                    damaged = copy.deepcopy(state)
                    blob = bytes(state["state"][2]["onebit"])
                    damaged["state"][2]["onebit"] = blob[:-1]
                    with self.assertRaises(onebit.Error):
                        third.load_state_dict(damaged)
                    self.assert_equal(weights(again), before)
                    self.assertEqual(third.stats().step, 3)
                    third.load_state_dict(state)
                    train(third, again, comm.rank, range(8, 12))
                    self.assert_equal(weights(again), weights(pairs))

        run_ranks(RANKS, check)

    def test_a_layer_may_be_frozen_after_a_resume(self):
        def check(comm):
            for has_names in (False, True):
                for kind, options in CLASSES.items():
                    pairs, others = named(), named()
                    made = [
                        kind(each if has_names else [parameter for _, parameter in each], 0.01,
                             communicator=comm, **options)
                        for each in (pairs, others)
                    ]  # fmt: skip
                    for step in range(8):  # 0/1 Adam then is at a sync
                        make_step(made[0], comm.rank, step)
                    frozen = others[2][1].requires_grad_(False)
                    made[1].load_state_dict(made[0].state_dict())
                    before = frozen.clone()
                    for step in range(8, 12):
                        for _, parameter in others:
                            parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
                        made[1].step()
                        self.assertTrue(torch.equal(frozen, before))
                    self.assertFalse(torch.equal(others[0][1], pairs[0][1]))
                    frozen.requires_grad_(True)
                    made[1].load_state_dict(made[1].state_dict())
                    make_step(made[1], comm.rank, 12)
                    self.assertFalse(torch.equal(frozen.detach(), before))

        run_ranks(RANKS, check)

    def test_frozen_parameters_are_known_by_their_names(self):
        """Their states have what the program has added, in one group and in groups of another order."""

        def check(comm):
            for sort in (list, groups_by_end):
                pairs, others = named(), named(NAMES[::-1])
                for name, parameter in (*pairs, *others):
                    parameter.requires_grad_(not name.endswith("bias"))
                optimizer = OnebitAdam(sort(pairs), communicator=comm)
                for _, parameter in pairs:
                    parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
                optimizer.step()
                for name, parameter in pairs:
                    optimizer.state[parameter]["mark"] = name
                other = OnebitAdam(sort(others), communicator=comm)
                other.load_state_dict(optimizer.state_dict())
                for name, parameter in others:
                    self.assertEqual(other.state[parameter]["mark"], name)

        def groups_by_end(pairs):
            ends = list(dict.fromkeys(name.split(".")[0] for name, _ in pairs))
            return [{"params": [pair for pair in pairs if pair[0].startswith(end)]} for end in ends]

        run_ranks(1, check)

    def test_names_on_one_side_only_are_warned_of(self):
        def check(comm):
            for has_names in (True, False):
                saved, given = (named(), [parameter for _, parameter in named()])[:: 1 if has_names else -1]
                state = OnebitAdam(saved, communicator=comm).state_dict()
                with warnings.catch_warnings(record=True) as recorded:
                    warnings.simplefilter("always")
                    OnebitAdam(given, communicator=comm).load_state_dict(state)
                where = "state" if has_names else "optimizer"
                found = [str(each.message) for each in recorded]
                self.assertEqual(len(found), 1)
                self.assertEqual(recorded[0].filename, __file__)
                self.assertRegex(found[0], f"have names in the {where}, but not .*named_parameters")

        run_ranks(1, check)

    def test_parameters_are_named_where_moments_are_not_finite(self):
        def check(comm):
            for has_names, name in ((True, "parameter 'first.bias'"), (False, "parameter 1 of group 0")):
                pairs = named()
                given = pairs if has_names else [parameter for _, parameter in pairs]
                optimizer = OnebitAdam(given, communicator=comm)
                make_step(optimizer, comm.rank, 0)
                for key, value in (("exp_avg", float("nan")), ("exp_avg_sq", -1.0)):
                    state = optimizer.state_dict()
                    state["state"][1][key][2] = value
                    other = OnebitAdam(
                        named() if has_names else [p for _, p in named()], 0.5, communicator=comm
                    )
                    with self.assertRaisesRegex(onebit.InvalidArgument, rf"^{key} of {name} .*not finite"):
                        other.load_state_dict(state)
                    self.assertEqual((other.stats().step, other.param_groups[0]["lr"]), (0, 0.5))
                    optimizer.state[pairs[1][1]][key][2] = value
                    for _ in range(2):
                        with self.assertRaisesRegex(onebit.InvalidArgument, rf"^{key} of {name} .*not finite"):
                            optimizer.step()
                    optimizer.state[pairs[1][1]][key][2] = 0.5

        run_ranks(1, check)

    def test_parameters_are_named_where_they_have_moved(self):
        def check(comm):
            for has_names, name in ((True, "parameter 'second.bias'"), (False, "parameter 1 of group 1")):
                pairs = named()
                cut = [pairs[:2], pairs[2:]]
                if not has_names:
                    cut = [[parameter for _, parameter in each] for each in cut]
                optimizer = OnebitAdam([{"params": each} for each in cut], communicator=comm)
                make_step(optimizer, comm.rank, 0)
                pairs[3][1].data = torch.ones(5)
                with self.assertRaisesRegex(onebit.InvalidUsage, rf"^{name} of shape \(5,\) has moved"):
                    optimizer.step()

        run_ranks(1, check)

    def test_a_state_of_other_shapes_or_another_number_is_refused(self):
        def check(comm):
            state = OnebitAdam(named(), communicator=comm).state_dict()
            shapes = [(5, 5), (5,), (25,), (5,)]
            other = OnebitAdam(
                [torch.nn.Parameter(torch.ones(s)) for s in shapes], communicator=comm
            )
            with self.assertRaisesRegex(onebit.InvalidArgument, r"parameter 2 is .*\(25,\)"):
                other.load_state_dict(state)
            with self.assertRaisesRegex(ValueError, "4 parameters"):
                OnebitAdam(named()[:3], communicator=comm).load_state_dict(state)
            del state["state"][1]["onebit"]
            with self.assertRaisesRegex(onebit.InvalidArgument, "no entry 'onebit' for .*first.bias"):
                OnebitAdam(named(), communicator=comm).load_state_dict(state)

        run_ranks(1, check)

    def test_some_names_are_not_enough(self):
        def check(comm):
            pairs = named()
            with self.assertRaisesRegex(ValueError, "others have none"):
                OnebitAdam([pairs[0], pairs[1][1]], communicator=comm)
            groups = [{"params": pairs[:2]}, {"params": pairs[2:], "lr": 0.5}]
            optimizer = OnebitAdam(groups, communicator=comm)
            self.assertEqual(optimizer.param_groups[1]["param_names"], NAMES[2:])

        run_ranks(1, check)


class StateTest(unittest.TestCase):
    def test_state_has_steps_and_moments_of_each_parameter(self):
        def check(comm):
            given = [parameter for _, parameter in named()]
            ours = OnebitAdam(
                given, 0.01, communicator=comm, freeze_step="never", weight_decay=0.1
            )
            others = [parameter for _, parameter in named()]
            theirs = torch.optim.AdamW(others, 0.01, weight_decay=0.1)
            self.assertEqual(len(ours.state), 4)  # or tools would take a step to fill it
            self.assertEqual(float(ours.state[given[0]]["exp_avg"].abs().sum()), 0.0)
            for step in range(5):
                make_step(ours, comm.rank, step)
                make_step(theirs, comm.rank, step)
            for parameter, other in zip(given, others):
                for key in ("step", "exp_avg", "exp_avg_sq"):
                    expected = torch.as_tensor(theirs.state[other][key], dtype=torch.float32)
                    torch.testing.assert_close(ours.state[parameter][key], expected)
            state = ours.state_dict()
            self.assertEqual(set(state["state"]), {0, 1, 2, 3})
            torch.optim.AdamW(others).load_state_dict(
                {
                    "state": {
                        number: {key: value for key, value in each.items() if key != "onebit"}
                        for number, each in state["state"].items()
                    },
                    "param_groups": theirs.state_dict()["param_groups"],
                }
            )

        run_ranks(1, check)

    def test_state_is_a_dictionary(self):
        def check(comm):
            pairs = named()
            optimizer = OnebitAdam(pairs, 0.01, communicator=comm)
            make_step(optimizer, comm.rank, 0)
            state = optimizer.state[pairs[0][1]]
            state["note"] = torch.tensor([1.5])
            state |= {"mask": [1, 2]}
            self.assertIsInstance(state, dict)
            self.assertIs(optimizer.state[pairs[0][1]], state)
            keys = ["step", "exp_avg", "exp_avg_sq", "onebit", "note", "mask"]
            self.assertEqual(list(reversed(state)), keys[::-1])
            for made in (dict(state), {**state}, state.copy(), state | {}, {} | state):
                self.assertEqual((type(made), list(made)), (dict, keys))
                self.assertTrue(torch.equal(made["exp_avg"], state["exp_avg"]))
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            for made in (copy.deepcopy(state), torch.load(file)):
                self.assertEqual(list(made), keys)
                made["exp_avg"].zero_()
                self.assertGreater(float(state["exp_avg"].abs().sum()), 0.0)
            self.assertIn("'note': tensor([1.5000])", repr(state))
            self.assertEqual(state.pop("mask"), [1, 2])
            self.assertNotIn("mask", state)

        run_ranks(1, check)

    def test_what_is_written_to_moments_is_taken_over(self):
        def check(comm):
            for via_state_dict in (False, True):
                pairs = named()
                optimizer = OnebitAdam(pairs, 0.01, communicator=comm, freeze_step="never")
                for step in range(3):
                    make_step(optimizer, comm.rank, step)
                parameter = pairs[0][1]
                if via_state_dict:
                    state = optimizer.state_dict()
                    state["state"][0]["exp_avg"].zero_()
                    optimizer.load_state_dict(state)
                else:
                    optimizer.state[parameter]["exp_avg"].zero_()
                parameter.grad = torch.full_like(parameter, 0.5)
                optimizer.step()
                expected = torch.full_like(parameter, 0.05)
                torch.testing.assert_close(
                    optimizer.state[parameter]["exp_avg"], expected.detach()
                )
            optimizer.state[parameter]["step"].add_(1)
            with self.assertRaisesRegex(onebit.InvalidUsage, "counts the steps"):
                optimizer.step()
            with self.assertRaisesRegex(onebit.InvalidUsage, "cannot be removed"):
                optimizer.state[parameter].clear()
            optimizer.state.clear()
            with self.assertRaisesRegex(onebit.InvalidUsage, "replaced or removed"):
                optimizer.step()

        run_ranks(1, check)

    def test_damage_to_one_parameter_changes_nothing(self):
        """On any rank, although each loads only a part of what differs between them."""

        def check(comm):
            for kind, options in CLASSES.items():
                pairs, others = named(), named()
                optimizer = kind(pairs, 0.01, communicator=comm, **options)
                other = kind(others, 0.5, communicator=comm, **options)
                for step in range(8):
                    make_step(optimizer, comm.rank, step)
                    make_step(other, comm.rank, step + 100)
                state = optimizer.state_dict()
                before = copy.deepcopy(other.state_dict())
                for number in range(4):
                    blob = bytes(state["state"][number]["onebit"])
                    places = {0, 1, blob.index(b"digest") + 10, len(blob) // 2, len(blob) - 1}
                    flipped = [blob[:k] + bytes([blob[k] ^ 4]) + blob[k + 1 :] for k in sorted(places)]
                    for damaged in (*flipped, blob[:-1], blob[: len(blob) // 2], b"", 7, None, blob + b"1"):
                        wrong = copy.deepcopy(state)
                        wrong["state"][number]["onebit"] = damaged
                        with warnings.catch_warnings(), self.assertRaises(onebit.Error):
                            warnings.simplefilter("ignore")  # a name may be what is damaged
                            other.load_state_dict(wrong)
                wrong = copy.deepcopy(state)
                wrong["state"][1]["onebit"] = wrong["state"][3]["onebit"]
                with warnings.catch_warnings(), self.assertRaises(onebit.Error):
                    warnings.simplefilter("ignore")  # two have one name
                    other.load_state_dict(wrong)
                self.assertNotEqual(state["state"][1]["onebit"], bytes(len(bytes(state["state"][1]["onebit"]))))
                after = other.state_dict()
                self.assertEqual(after["param_groups"], before["param_groups"])
                for number, entry in before["state"].items():
                    self.assertEqual(after["state"][number]["onebit"], entry["onebit"])
                other.load_state_dict(state)
                make_step(optimizer, comm.rank, 8)
                make_step(other, comm.rank, 8)
                for (_, one), (_, two) in zip(pairs, others):
                    self.assertTrue(torch.equal(one, two))

        run_ranks(RANKS, check)

    def test_one_file_resumes_all_ranks_bit_for_bit(self):
        def save(comm):
            results = []
            for kind, options in CLASSES.items():
                for dtype in (torch.float32, torch.bfloat16):
                    for saved_at in (3, 8, 9):
                        plain, pairs = named(dtype=dtype), named(dtype=dtype)
                        reference = kind(plain, 0.01, communicator=comm, **options)
                        optimizer = kind(pairs, 0.01, communicator=comm, **options)
                        for step in range(14):
                            if step == saved_at:
                                state = optimizer.state_dict()
                                of_model = weights(pairs)
                            make_step(reference, comm.rank, step)
                            make_step(optimizer, comm.rank, step)
                        results.append(
                            (kind, options, dtype, saved_at, state, of_model, weights(plain))
                        )
                        for name, tensor in weights(pairs).items():
                            same = torch.equal(tensor, dict(plain)[name].detach())
                            self.assertTrue(same, f"{kind} {dtype} {saved_at}: a save changes the run")
            return results

        first, second = run_ranks(RANKS, save)
        expected = [[row[-1] for row in rows] for rows in (first, second)]
        file = io.BytesIO()
        torch.save([row[4] for row in first], file)  # rank 0 only
        file.seek(0)
        states = torch.load(file)

        def resume(comm):
            for row, state, mine in zip(first, states, expected[comm.rank % RANKS]):
                kind, options, dtype, saved_at, _, _, _ = row
                pairs = named(dtype=dtype)
                optimizer = kind(pairs, 1.0, communicator=comm, **options)
                optimizer.load_state_dict(state)
                self.assertEqual(optimizer.stats().step, saved_at)
                for step in range(saved_at, 14):
                    make_step(optimizer, comm.rank, step)
                if comm.size == RANKS:
                    for name, tensor in weights(pairs).items():
                        self.assertTrue(torch.equal(tensor, mine[name]), f"{kind} {saved_at} {name}")

        run_ranks(RANKS, resume)
        run_ranks(3, resume)

    def test_what_is_owed_is_the_same_at_another_size(self):
        def save(comm):
            optimizer = OnebitAdam(named(), 0.01, communicator=comm, freeze_step=4)
            for step in range(9):
                make_step(optimizer, comm.rank, step)
            return optimizer.state_dict(), optimizer.state_dict("global")

        (state, whole), _ = run_ranks(RANKS, save)

        def resume(comm):
            found = []
            for each in (state, whole):
                optimizer = OnebitAdam(named(), 0.01, communicator=comm, freeze_step=4)
                optimizer.load_state_dict(each)
                found.append(optimizer.state_dict("global")["state"])
            return found

        for exact, of_all in run_ranks(3, resume):
            for number in range(4):
                self.assertEqual(exact[number]["onebit"], of_all[number]["onebit"])

    def test_states_of_before_are_loaded(self):
        def check(comm):
            pairs, again = named(), named()
            optimizer = OnebitAdam(pairs, 0.01, communicator=comm, freeze_step=4)
            for step in range(6):
                make_step(optimizer, comm.rank, step)
            blob = optimizer._native.export_state("rank")
            groups = optimizer.state_dict()["param_groups"]
            state = {"state": {}, "param_groups": groups}
            state["onebit"] = torch.frombuffer(bytearray(blob), dtype=torch.uint8)
            other = OnebitAdam(again, 1.0, communicator=comm, freeze_step=4)
            other.load_state_dict(state)
            for step in range(6, 9):
                make_step(optimizer, comm.rank, step)
                make_step(other, comm.rank, step)
            for name, tensor in weights(again).items():
                self.assertTrue(torch.equal(tensor, dict(pairs)[name].detach()))

        run_ranks(RANKS, check)

    def test_a_lone_save_is_an_error_on_all_ranks(self):
        """At once, while the others are in a step; without the save training goes on."""

        def check(comm):
            pairs = named()
            optimizer = OnebitAdam(pairs, 0.01, communicator=comm, freeze_step=2)
            for step in range(4):
                make_step(optimizer, comm.rank, step)
            if comm.rank == 0:
                optimizer.state_dict()
            else:
                make_step(optimizer, comm.rank, 4)

        for error in errors_of_ranks(RANKS, check):
            self.assertIsInstance(error, onebit.Mismatch)
        self.assertRegex(str(errors_of_ranks(RANKS, check)[0]), r"state_dict\(\) is collective: all ranks must call it")

    def test_a_closed_optimizer_says_so(self):
        def check(comm):
            optimizer = OnebitAdam(named(), communicator=comm)
            make_step(optimizer, comm.rank, 0)
            optimizer.close()
            for call in (
                optimizer.step,
                optimizer.state_dict,
                optimizer.stats,
                optimizer.synchronize,
                optimizer.rewarm,
                lambda: optimizer.load_state_dict({"state": {}, "param_groups": []}),
                lambda: optimizer.add_param_group({"params": []}),
            ):
                with self.assertRaisesRegex(onebit.InvalidUsage, "this OnebitAdam is closed"):
                    call()
            optimizer.close()

        run_ranks(1, check)


class WritesTest(unittest.TestCase):
    def test_a_box_holds(self):
        """p.data.clamp_() does not raise the version of p."""

        def check(comm):
            for kind, options in CLASSES.items():
                for dtype in (torch.float32, torch.bfloat16):
                    pairs = named(dtype=dtype)
                    optimizer = kind(pairs, 0.01, communicator=comm, **options)
                    for step in range(5 if kind is ZeroOneAdam else 12):  # syncs only
                        make_step(optimizer, comm.rank, step)
                        largest = max(float(p.detach().abs().max()) for _, p in pairs)
                        if step > 0:
                            self.assertLess(largest, 0.3, f"{kind} {dtype} {step}")
                        for _, parameter in pairs:
                            parameter.data.clamp_(-0.05, 0.05)

        run_ranks(RANKS, check)

    def test_between_two_syncs_it_is_refused(self):
        def check(comm):
            for dtype in (torch.float32, torch.bfloat16):
                pairs = named(dtype=dtype)
                optimizer = ZeroOneAdam(pairs, 0.01, communicator=comm, **CLASSES[ZeroOneAdam])
                step = 0
                while step == 0 or optimizer.last_step.stage != onebit.Stage.LOCAL:
                    make_step(optimizer, comm.rank, step)
                    step += 1
                pairs[1][1].data.mul_(0.5)
                with self.assertRaisesRegex(onebit.InvalidUsage, "'first.bias' .* between two syncs"):
                    make_step(optimizer, comm.rank, step)
                with self.assertRaisesRegex(onebit.InvalidUsage, "between two syncs"):
                    optimizer.state_dict("rank")
                with self.assertWarnsRegex(UserWarning, "undoes .*'first.bias'"):
                    optimizer.synchronize()
                make_step(optimizer, comm.rank, step)

        run_ranks(1, check)

    def test_a_write_to_any_element_is_noticed(self):
        """Also to the first and last ones of the pieces in which parameters are compared."""

        def check(comm):
            for kind, options in CLASSES.items():
                for dtype in (torch.float32, torch.float16, torch.bfloat16):
                    parameter = torch.nn.Parameter(torch.ones(70001, dtype=dtype))
                    optimizer = kind([parameter], 1e-4, communicator=comm, **options)
                    for element in (0, 32767, 32768, 65535, 65536, 70000):
                        parameter.data[element] = 7.0
                        parameter.grad = torch.zeros_like(parameter)
                        optimizer.step()
                        self.assertGreater(float(parameter.detach()[element]), 6.9, f"{kind} {dtype} {element}")

        with mock.patch.dict(CLASSES, {ZeroOneAdam: {"var_freeze_step": 20}}):
            run_ranks(1, check)

    def test_elements_that_are_not_written_keep_their_masters(self):
        def check(comm):
            pairs = named(dtype=torch.bfloat16)
            parameter = pairs[0][1]
            optimizer = OnebitAdam(pairs, 1e-4, communicator=comm, freeze_step="never")
            start = parameter.detach().float().clone()
            for step in range(40):
                make_step(optimizer, comm.rank, step)
                parameter.data[0, 0] = 7.0
            moved = (parameter.detach().float() - start)[1:]
            self.assertGreater(float((moved != 0).float().mean()), 0.2)

        run_ranks(1, check)


class KindsTest(unittest.TestCase):
    def refused(self, tensor, pattern, name="layer.weight"):
        def check(comm):
            with self.assertRaisesRegex(onebit.InvalidArgument, f"{name}.*{pattern}"):
                OnebitAdam([(name, tensor)], communicator=comm)

        run_ranks(1, check)

    def test_what_has_no_dense_elements_here_is_named(self):
        ones = torch.nn.Parameter
        self.refused(ones(torch.ones(2, device="meta")), "device 'meta'")
        self.refused(ones(torch.ones(2, 2).to_sparse()), "layout torch.sparse_coo")
        self.refused(ones(torch.zeros(2, dtype=torch.float64)), "torch.float64")
        self.refused(ones(torch.zeros(3, 4)[:, :2]), "without gaps")
        lazy = torch.nn.LazyLinear(3)
        self.refused(lazy.weight, "run the model on one batch")
        part = ones(torch.ones(4))
        part._fsdp_flattened = True
        self.refused(part, "belongs to FSDP")
        quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
        self.refused(ones(quantized, requires_grad=False), "quantized")

    def test_shards_are_named(self):
        try:
            from torch.distributed.tensor import DTensor
        except ImportError:
            self.skipTest("PyTorch before 2.5 has no torch.distributed.tensor")
        import torch.distributed as dist
        from torch.distributed.tensor import distribute_tensor, init_device_mesh

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            mesh = init_device_mesh("cpu", (1,))
            shard = torch.nn.Parameter(distribute_tensor(torch.ones(4), mesh))
            self.assertIsInstance(shard, DTensor)
            self.refused(shard, "is a DTensor: FSDP2")
        finally:
            dist.destroy_process_group()

    def test_a_sparse_gradient_is_named(self):
        def check(comm):
            table = torch.nn.Embedding(5, 3, sparse=True)
            optimizer = OnebitAdam(table.named_parameters(), communicator=comm)
            table(torch.tensor([1, 2])).sum().backward()
            with self.assertRaisesRegex(onebit.InvalidArgument, "'weight' .*sparse=False"):
                optimizer.step()

        run_ranks(1, check)

    def test_momentum_that_cycles_is_refused_with_the_remedy(self):
        def check(comm):
            optimizer = OnebitAdam(named(), communicator=comm)
            torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
            with self.assertRaisesRegex(onebit.InvalidUsage, "cycle_momentum=False"):
                make_step(optimizer, 0, 0)
            optimizer = OnebitAdam(named(), communicator=comm)
            scheduler = torch.optim.lr_scheduler.OneCycleLR(
                optimizer, 0.1, total_steps=10, cycle_momentum=False
            )
            for step in range(3):
                make_step(optimizer, 0, step)
                scheduler.step()

        run_ranks(1, check)

    def test_frozen_parameters_of_any_type_are_copied(self):
        def check(comm):
            values = [torch.full((3,), comm.rank), torch.full((3,), 2.5 + comm.rank, dtype=torch.float64)]
            frozen = [torch.nn.Parameter(each, requires_grad=False) for each in values]
            OnebitAdam([*frozen, torch.nn.Parameter(torch.ones(2))], communicator=comm)
            self.assertEqual([float(each[0]) for each in frozen], [0.0, 2.5])

        run_ranks(RANKS, check)


if __name__ == "__main__":
    unittest.main()
