# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a classifier with NumPy alone: onebit_run -n 4 python numpy_trainer.py

Each process learns from data of its own. Gradients are averaged in 4 bits, with error feedback.
"""

import numpy

import onebit

FEATURES, HIDDEN, CLASSES, BATCH, STEPS = 32, 128, 10, 64, 200


def main() -> None:
    with onebit.init() as comm:
        common = numpy.random.default_rng(0)
        answers = common.standard_normal((FEATURES, CLASSES))
        weights = [
            (common.standard_normal(shape) / shape[0] ** 0.5).astype(numpy.float32)
            for shape in ((FEATURES, HIDDEN), (HIDDEN, CLASSES))
        ]
        # One for each tensor: it keeps what its calls have lost, and sends it with later ones.
        compressors = [onebit.Compressor(comm, w.size, codec="fp4") for w in weights]

        data = numpy.random.default_rng([1, comm.rank])
        for step in range(STEPS):
            points = data.standard_normal((BATCH, FEATURES)).astype(numpy.float32)
            classes = (points @ answers).argmax(1)
            hidden = numpy.maximum(points @ weights[0], 0)
            scores = hidden @ weights[1]
            shares = numpy.exp(scores - scores.max(1, keepdims=True))
            shares /= shares.sum(1, keepdims=True)
            loss = -numpy.log(shares[numpy.arange(BATCH), classes]).mean()

            of_scores = shares.copy()
            of_scores[numpy.arange(BATCH), classes] -= 1
            of_scores /= BATCH
            of_hidden = (of_scores @ weights[1].T) * (hidden > 0)
            gradients = [points.T @ of_hidden, hidden.T @ of_scores]
            with onebit.group():  # both in the same messages
                for gradient, compressor in zip(gradients, compressors):
                    comm.all_reduce(gradient, op="avg", compressor=compressor)
            for w, gradient in zip(weights, gradients):
                w -= 0.5 * gradient
            if comm.rank == 0 and (step % 50 == 0 or step == STEPS - 1):
                print(f"step {step}: loss {loss:.3f}", flush=True)

        sent = comm.stats().bytes_sent
        dense = STEPS * sum(2 * (comm.size - 1) * w.nbytes // comm.size for w in weights)
        print(f"rank {comm.rank} sent {sent} bytes; full precision needs {dense}")


if __name__ == "__main__":
    main()
