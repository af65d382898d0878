# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Boundary activations of a pipelined graph network, as differences: onebit_run -n 4 python gnnpipe.py TEXT

GNNPipe (Chen, Chen and Qian, "GNNPipe: Scaling Deep GNN Training with Pipelined Model Parallelism", 2023): rank r
has a stage, some successive layers of a deep graph network, for all vertices. In each epoch it gets the activations
of all vertices from rank r - 1 and sends those behind its layers to rank r + 1; gradients go back.

An epoch changes the activations of a vertex little. So both sides of a boundary hold what the receiver has, at first
0, and a message carries by how much the activations differ from it, in fp4 with a scale for each vertex: 4.25 bits a
number. What an epoch's message loses is part of the next one's difference. Gradients are sent in the same way. In
about every 16th epoch 72 more bytes compare what both sides hold.

GNNPipe also cuts the vertices into chunks, so that stages work at the same time, and lets a vertex use its neighbours
of the epoch before where new ones are still to come. Here a stage waits for all vertices, so that the same network
trained on one rank is what to compare with.
"""

import copy
import itertools
import math
from typing import Any, List, Optional, Tuple

import torch
from torch import nn

import onebit
from example_job import HEADER_BYTES, Report, main
from line_graph import WIDTH, GraphLayers, line_graph
from rank_links import Links

LAYERS, EPOCHS = 8, 60
FP4_ERROR = 10 ** (-16 / 20)  # of a norm, if the numbers have heavy tails (docs/collectives.md, "Which codec")
KINDS = ("activations", "gradients")

Boundary = Tuple[Optional[torch.Tensor], Optional[torch.Tensor]]  # what comes, and what goes


class Stage:
    """The layers of this rank, [vertices, WIDTH] to the same; rank 0 has the features, the last rank the loss.

    Args:
        average: the matrix by which neighbours are averaged, [vertices, vertices], on all ranks.
        classes: of the vertices, [vertices].
    """

    def __init__(self, links: Links, layers: nn.Module, features: torch.Tensor, average: torch.Tensor,
                 classes: torch.Tensor) -> None:
        self._links, self._layers = links, layers
        self._features, self._average, self._classes = features, average, classes
        self._like = torch.empty(len(features), WIDTH)
        self._optimizer = sgd(layers)

    def epoch(self) -> Tuple[torch.Tensor, Boundary, Boundary]:
        """Trains by one epoch, together with the other ranks.

        Returns:
            what the layers gave; activations at the boundaries of this rank, and gradients there, both as (received,
            sent).
        """
        links, rank, last = self._links, self._links.comm.rank, self._links.comm.size - 1
        x, gradient = self._features, None
        if rank > 0:
            x = links.recv("activations", self._like, rank - 1).requires_grad_()
        self._optimizer.zero_grad()
        y = self._layers(x, self._average)
        if rank < last:
            links.send("activations", y, rank + 1)
            gradient = links.recv("gradients", self._like, rank + 1)
            y.backward(gradient)
        else:
            nn.functional.cross_entropy(y, self._classes).backward()
        if rank > 0:
            links.send("gradients", x.grad, rank - 1)
        self._optimizer.step()
        y = y.detach()
        return y, (x.detach() if rank > 0 else None, y if rank < last else None), (gradient, x.grad)


def sgd(*layers: nn.Module) -> torch.optim.Optimizer:
    parameters = itertools.chain.from_iterable(each.parameters() for each in layers)
    return torch.optim.SGD(parameters, lr=0.03, momentum=0.9)


def dense_outputs(stages, features: torch.Tensor, average: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """The outputs in the last epoch of the same training on one rank."""
    optimizer = sgd(*stages)
    for _ in range(EPOCHS):
        y = features
        for layers in stages:
            y = layers(y, average)
        optimizer.zero_grad()
        nn.functional.cross_entropy(y, classes).backward()
        optimizer.step()
    return y.detach()


def example(comm: onebit.Communicator, text: torch.Tensor, report: Report) -> None:
    graph = line_graph(text)
    vertices, rank, last = len(graph[0]), comm.rank, comm.size - 1
    share = LAYERS // comm.size
    stages = [GraphLayers(r * share, (r + 1) * share, LAYERS) for r in range(comm.size)]
    own = copy.deepcopy(stages[rank])
    expected = dense_outputs(stages, *graph) if rank == last else None
    sends = EPOCHS * ((rank < last) + (rank > 0))
    dense = sends * (HEADER_BYTES + 4 * vertices * WIDTH)
    fp4 = sends * (HEADER_BYTES + 16 * math.ceil(2 * vertices / 16) + vertices * WIDTH // 2)
    compared = sum((1 + (call - 1) % 255) % 16 == 0 for call in range(1, EPOCHS))  # FORMAT.md, section 12
    differences = fp4 + sends // EPOCHS * compared * (HEADER_BYTES + 8)
    # Training amplifies errors: the least SNRs of its outputs are those that were seen, less 10 dB.
    cases = ((None, "plain", dense, 80), ("fp4", "ef", differences, 29), ("fp4", "plain", fp4, 10))
    for codec, mode, formula, least in cases:
        what = "full precision" if codec is None else f"{codec} {mode}"
        stage = Stage(Links(comm, KINDS, codec, mode, WIDTH), copy.deepcopy(own), *graph)
        held: List[Any] = [None, None]  # what was sent last of each kind, and how far the receiver is off at most
        errors = [0.0, 0.0]
        with report.sends(f"{what}: {EPOCHS} epochs", formula, dense):
            for _ in range(EPOCHS):
                y, *boundaries = stage.epoch()
                for kind, (_, sent) in enumerate(boundaries):
                    if sent is not None:
                        is_whole = mode == "plain" or held[kind] is None
                        difference = sent.norm() if is_whole else (sent - held[kind]).norm() + errors[kind]
                        held[kind], errors[kind] = sent, FP4_ERROR * difference.item()
        for kind, (received, sent), way in zip(KINDS, boundaries, (1, -1)):
            exact = None if received is None else torch.empty(received.shape)
            with onebit.group():
                if sent is not None:
                    comm.send(sent, rank + way)
                if exact is not None:
                    comm.recv(exact, rank - way)
            floor = math.inf
            if sent is not None:
                floor = 20 * math.log10(sent.norm() / errors[KINDS.index(kind)]) if codec else 120
            report.compare(f"{what}: {kind} of the last epoch", received, exact, floor)
        report.compare(f"{what}: outputs", y if rank == last else None, expected, least)


if __name__ == "__main__":
    main(example, __doc__, ranks=[2, 4, 8])
