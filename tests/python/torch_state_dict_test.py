# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's tests of torch.distributed.checkpoint.state_dict demand of an optimizer, of OnebitAdam,
OnebitLamb and ZeroOneAdam: states by the names of parameters. torch_savers_test.py writes them to files."""

import copy
import io
import sys
import unittest

try:
    import torch
    from torch.distributed.checkpoint import state_dict as tools
except ImportError:
    print("PyTorch before 2.2 has no torch.distributed.checkpoint.state_dict")
    sys.exit(77)

from torch_kinds import of_each_kind

NEEDS_FLATTENING = unittest.skipIf(torch.__version__ < "2.5", "PyTorch before 2.5 does not flatten")
NAMES = ["0.weight", "0.bias", "1.weight", "1.bias"]


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))


def train(model, optimizer, steps, inputs=None):
    for _ in range(steps):
        model(torch.ones(2, 4) if inputs is None else inputs).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def options(**given):
    return tools.StateDictOptions(**given)


class StateDictTest(unittest.TestCase):
    def assert_same(self, found, expected):
        """Two states of an optimizer, or what PyTorch made of them, are equal."""
        for groups in (found["param_groups"], expected["param_groups"]):
            for group in groups:
                group["betas"] = tuple(group["betas"])  # of a full state PyTorch makes a list
        self.assertEqual(found["param_groups"], expected["param_groups"])
        self.assertEqual(found["state"].keys(), expected["state"].keys())
        for key, entry in expected["state"].items():
            self.assertEqual(found["state"][key].keys(), entry.keys())
            for name, value in entry.items():
                other = found["state"][key][name]
                self.assertTrue(value == other if name == "onebit" else torch.equal(value, other), f"{key} {name}")

    def test_states_go_by_names(self):
        def check(make):
            model = network()
            optimizer = make(model.parameters(), lr=0.01)
            train(model, optimizer, 5)
            before = copy.deepcopy(optimizer.state_dict())
            state = tools.get_optimizer_state_dict(model, optimizer)
            self.assertEqual(state["param_groups"][0]["params"], NAMES)
            self.assert_same(
                {
                    "state": {NAMES.index(name): entry for name, entry in state["state"].items()},
                    "param_groups": [{**state["param_groups"][0], "params": [0, 1, 2, 3]}],
                },
                before,
            )
            self.assert_same(optimizer.state_dict(), before)

        of_each_kind(check)

    def test_states_are_set_without_a_step(self):
        def check(make):
            model, other = network(), network()
            optimizer, loaded = make(model.parameters(), lr=0.01), make(other.parameters(), lr=0.5)
            train(model, optimizer, 5)
            before = copy.deepcopy(other.state_dict())
            tools.get_optimizer_state_dict(other, loaded)
            self.assertEqual(loaded.stats().step, 0)
            self.assertEqual(loaded.param_groups[0]["lr"], 0.5)
            for name, tensor in other.state_dict().items():
                self.assertTrue(torch.equal(tensor, before[name]))
            state = tools.get_optimizer_state_dict(model, optimizer)
            tools.set_optimizer_state_dict(other, loaded, state)
            self.assertEqual(loaded.stats().step, 5)
            self.assert_same(loaded.state_dict(), optimizer.state_dict())
            for one, same in ((model, optimizer), (other, loaded)):
                train(one, same, 3)
            for name, tensor in model.state_dict().items():
                self.assertTrue(torch.equal(tensor, other.state_dict()[name]))

        of_each_kind(check)

    def test_options_of_states_are_followed(self):
        def check(make):
            for given in (
                {"full_state_dict": True},
                {"cpu_offload": True},
                {"full_state_dict": True, "cpu_offload": True},
                {"ignore_frozen_params": True},
            ):
                model, other = network(), network()
                for each in (model, other):
                    each[0].weight.requires_grad_("ignore_frozen_params" not in given)
                optimizer, loaded = make(model.parameters(), lr=0.01), make(other.parameters())
                train(model, optimizer, 5)
                state = tools.get_optimizer_state_dict(model, optimizer, options=options(**given))
                trained = [name for name in NAMES if model.get_parameter(name).requires_grad]
                self.assertEqual(list(state["state"]), trained)
                tools.set_optimizer_state_dict(other, loaded, state, options=options(**given))
                self.assert_same(loaded.state_dict(), optimizer.state_dict())

        of_each_kind(check)

    @NEEDS_FLATTENING
    def test_flat_states_resume_bit_for_bit(self):
        """Each value has a key of its own; a tool may have made tensors of the exact state's bytes."""
        flat = options(flatten_optimizer_state_dict=True)

        def check(make):
            for as_tensors in (False, True):
                model, other = network(), network()
                pair = []
                for each in (model, other):
                    layers = [list(layer.parameters()) for layer in each]
                    groups = [{"params": layers[0]}, {"params": layers[1], "weight_decay": 0.1}]
                    pair.append(make(groups, lr=0.01 if each is model else 0.5))
                optimizer, loaded = pair
                train(model, optimizer, 5)
                optimizer.state[model[0].weight]["added"] = torch.tensor([1.0, 2.0])
                state = tools.get_optimizer_state_dict(model, optimizer, options=flat)
                self.assertEqual(state["param_groups.1.bias.weight_decay"], 0.1)
                for key, value in state.items():
                    if as_tensors and key.endswith(".onebit"):
                        state[key] = torch.frombuffer(bytearray(bytes(value)), dtype=torch.uint8)
                file = io.BytesIO()
                torch.save(state, file)
                file.seek(0)
                state = torch.load(file, weights_only=True)
                loaded.state[other[0].weight]["added"] = None
                tools.set_optimizer_state_dict(other, loaded, state, options=flat)
                self.assert_same(loaded.state_dict(), optimizer.state_dict())
                for one, same in ((model, optimizer), (other, loaded)):
                    train(one, same, 3)
                for name, tensor in model.state_dict().items():
                    self.assertTrue(torch.equal(tensor, other.state_dict()[name]))

        of_each_kind(check)

    @NEEDS_FLATTENING
    def test_another_order_of_parameters_is_loaded(self):
        def check(make):
            for given in ({}, {"flatten_optimizer_state_dict": True}):
                for has_names in (False, True):
                    model, other = network(), network()
                    pair = []
                    for each in (model, other):
                        named = list(each.named_parameters())[:: 1 if each is model else -1]
                        pair.append(make(named if has_names else [parameter for _, parameter in named]))
                    optimizer, loaded = pair
                    train(model, optimizer, 5)
                    state = copy.deepcopy(tools.get_optimizer_state_dict(model, optimizer, options=options(**given)))
                    tools.set_optimizer_state_dict(other, loaded, state, options=options(**given))
                    for one, same in ((model, optimizer), (other, loaded)):
                        train(one, same, 3)
                    found = tools.get_optimizer_state_dict(other, loaded)["state"]
                    for name, entry in tools.get_optimizer_state_dict(model, optimizer)["state"].items():
                        self.assertEqual(found[name]["onebit"], entry["onebit"])
                        self.assertTrue(torch.equal(other.get_parameter(name), model.get_parameter(name)))

        of_each_kind(check)

    def test_groups_keep_their_options(self):
        def check(make):
            for is_empty in (False, True):
                model, other = network(), network()
                pair = []
                for each in (model, other):
                    parameters = list(each.parameters())
                    cut = 4 if is_empty else 2
                    groups = [{"params": parameters[:cut]}, {"params": parameters[cut:], "lr": 0.2}]
                    pair.append(make(groups, lr=0.1 if each is model else 0.7))
                optimizer, loaded = pair
                train(model, optimizer, 2)
                for given in ({}, {"full_state_dict": True}):
                    state = tools.get_optimizer_state_dict(model, optimizer, options=options(**given))
                    tools.set_optimizer_state_dict(other, loaded, state, options=options(**given))
                    self.assertEqual([group["lr"] for group in loaded.param_groups], [0.1, 0.2])
                    self.assert_same(loaded.state_dict(), optimizer.state_dict())

        of_each_kind(check)

    def test_what_a_scheduler_added_is_loaded(self):
        def check(make):
            model = network()
            optimizer, loaded = make(model.parameters(), lr=0.01), make(model.parameters())
            torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95**epoch)
            state = tools.get_optimizer_state_dict(model, optimizer)
            self.assertEqual(state["param_groups"][0]["initial_lr"], 0.01)
            self.assertNotIn("initial_lr", loaded.param_groups[0])
            tools.set_optimizer_state_dict(model, loaded, state)
            self.assertEqual(loaded.param_groups[0]["initial_lr"], 0.01)

        of_each_kind(check)

    def test_shared_parameters_have_one_state(self):
        class Tied(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = torch.nn.Embedding(5, 3)
                self.decoder = torch.nn.Linear(3, 5)
                self.decoder.weight = self.embedding.weight

            def forward(self, rows):
                return self.decoder(self.embedding(rows))

        def check(make):
            model = Tied()
            optimizer, loaded = make(model.parameters(), lr=0.01), make(model.parameters())
            train(model, optimizer, 2, torch.tensor([1, 2]))
            state = tools.get_optimizer_state_dict(model, optimizer)
            self.assertEqual(list(state["state"]), ["embedding.weight", "decoder.bias"])
            tools.set_optimizer_state_dict(model, loaded, state)
            self.assert_same(loaded.state_dict(), optimizer.state_dict())

        of_each_kind(check)

    def test_states_of_before_are_set(self):
        """Those of state_dict(), whose parameters have numbers."""

        def check(make):
            model = network()
            optimizer, loaded = make(model.parameters(), lr=0.01), make(model.parameters())
            train(model, optimizer, 4)
            tools.set_optimizer_state_dict(model, loaded, optimizer.state_dict())
            self.assert_same(loaded.state_dict(), optimizer.state_dict())

        of_each_kind(check)

    def test_several_optimizers_share_a_state(self):
        def check(make):
            model, other = network(), network()
            pairs = [[make(layer.parameters(), lr=0.01) for layer in each] for each in (model, other)]
            for step in range(3):
                model(torch.full((2, 4), float(step))).pow(2).sum().backward()
                for optimizer in pairs[0]:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
            state = tools.get_optimizer_state_dict(model, pairs[0])
            self.assertEqual(sorted(state["state"]), sorted(NAMES))
            tools.set_optimizer_state_dict(other, pairs[1], state)
            for optimizer, loaded in zip(*pairs):
                self.assert_same(loaded.state_dict(), optimizer.state_dict())

        of_each_kind(check)

    def test_wrappers_of_layers_do_not_change_names(self):
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        def check(make):
            model, other = network(), network()
            wrapped = torch.nn.Sequential(*[checkpoint_wrapper(layer) for layer in other])
            optimizer, loaded = make(model.parameters(), lr=0.01), make(wrapped.parameters())
            train(model, optimizer, 2)
            state = tools.get_optimizer_state_dict(model, optimizer)
            self.assertEqual(list(tools.get_optimizer_state_dict(wrapped, loaded)["state"]), NAMES)
            tools.set_optimizer_state_dict(wrapped, loaded, state)
            self.assert_same(loaded.state_dict(), optimizer.state_dict())

        of_each_kind(check)

    def test_methods_can_be_patched(self):
        """The optimizer's own state_dict() and load_state_dict() then go by names."""

        def check(make):
            model, other = network(), network()
            optimizer, loaded = make(model.parameters(), lr=0.01), make(other.parameters())
            train(model, optimizer, 4)
            expected = copy.deepcopy(optimizer.state_dict())
            tools._patch_optimizer_state_dict(model, optimizers=optimizer)
            tools._patch_optimizer_state_dict(other, optimizers=loaded)
            state = optimizer.state_dict()
            self.assertEqual(list(state["state"]), NAMES)
            loaded.load_state_dict(state)
            self.assert_same(type(loaded).state_dict(loaded), expected)

        of_each_kind(check)


if __name__ == "__main__":
    unittest.main()
