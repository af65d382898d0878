# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A rank that trains on its Toy by a DiLoCo."""

import copy

from diloco_reference import BETA1, BETA2, EPS, EVERY, RATE, Toy
from needs_torch import torch
from onebit.torch.outer import DiLoCo


class Trainer:
    """A rank that trains on its Toy, or on that of another number."""

    def __init__(self, comm, offset=0, toy=None, **options):
        self.toy = Toy(comm.rank if toy is None else toy, offset)
        self.parameters = [torch.nn.Parameter(each.clone()) for each in self.toy.start.chunk(2)]
        self.inner = torch.optim.Adam(self.parameters, RATE, (BETA1, BETA2), EPS)
        self.outer = DiLoCo(self.parameters, self.inner, communicator=comm, **{"every": EVERY, **options})
        self.seen = []  # global parameters after each step

    @property
    def x(self):
        return torch.cat([each.detach() for each in self.parameters])

    @property
    def global_x(self):
        with self.outer.global_parameters():
            return self.x

    def set_gradients(self):
        gradient = self.toy.gradient(self.x, self.outer.steps + 1)
        for parameter, part in zip(self.parameters, gradient.chunk(2)):
            parameter.grad = part.clone()

    def steps(self, count):
        for _ in range(count):
            self.set_gradients()
            self.outer.step()
            self.seen.append(self.global_x)
        return self

    def states(self, kind):
        model = [each.detach().clone() for each in self.parameters]
        return copy.deepcopy((model, self.inner.state_dict(), self.outer.state_dict(kind)))

    def load(self, states):
        model, inner, outer = states
        with torch.no_grad():
            for parameter, values in zip(self.parameters, model):
                parameter.copy_(values)
        self.inner.load_state_dict(inner)
        self.outer.load_state_dict(outer)
        return self
