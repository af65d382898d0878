# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Biases in front of BatchNorm stay where AdamW leaves them, and nothing warns of them.

    batch_norm_test.py [--study]

--study trains on scikit-learn's digits (Debian: python3-sklearn), with 2 and 4 ranks and three seeds, and
prints a table.
"""

import contextlib
import os
import sys
import tempfile
import unittest

try:
    import torch  # pylint: disable=unused-import
except ImportError:
    sys.exit(77)  # skipped

import batch_norm

ONEBIT = ("OnebitAdam", "ZeroOneAdam", "OnebitLamb")


@contextlib.contextmanager
def logged():
    """A list that has the lines of the library's log when the block is over."""
    lines = []
    with tempfile.TemporaryFile("w+") as log:
        sys.stderr.flush()
        saved = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            log.seek(0)
            lines.extend(line for line in log if "onebit" in line)


class BatchNormTest(unittest.TestCase):
    steps = 120

    def train(self, name, **options):
        with logged() as lines:
            outcome = batch_norm.train(
                name, 2, 0, self.steps, batch_norm.generated_images, **options
            )
        return outcome, [line for line in lines if "parameters of segments" in line]

    def test_biases_stay_where_adamw_leaves_them(self):
        expected, _ = self.train("AdamW")
        for name in (*ONEBIT, "ShardedOnebitAdam"):
            with self.subTest(name):
                outcome, warnings = self.train(name)
                self.assertEqual(warnings, [])
                self.assertLess(outcome.largest, 3 * expected.largest)
                if name != "OnebitLamb":  # whose learning rate is another one
                    self.assertGreater(outcome.accuracy, expected.accuracy - 0.03)

    def test_scales_across_layers_throw_them_and_the_watch_says_so(self):
        for name in ONEBIT:
            with self.subTest(name):
                outcome, warnings = self.train(name, scales="fused")
                self.assertGreater(outcome.largest, 10)
                self.assertEqual(len(warnings), 1)


def study():
    """Prints held-out loss and accuracy, the largest parameter and the warnings of each run."""
    steps = 600
    print("ranks seed optimizer          loss    accuracy largest warnings")
    for ranks in (2, 4):
        for seed in range(3):
            for name in ("AdamW", *ONEBIT, "ShardedOnebitAdam", "Lamb"):
                with logged() as lines:
                    outcome = batch_norm.train(name, ranks, seed, steps, batch_norm.digits)
                print(
                    f"{ranks:5} {seed:4} {name:17} {outcome.loss:.4f} {outcome.accuracy:10.4f} "
                    f"{outcome.largest:8.2f} {len(lines):8}",
                    flush=True,
                )
                for line in lines:
                    print("     ", line.strip())


if __name__ == "__main__":
    if "--study" in sys.argv:
        study()
    else:
        unittest.main()
