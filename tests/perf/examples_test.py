# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The examples against their algorithms in float64: examples_test.py FEDERATED VARIATIONAL."""

import subprocess
import sys
import unittest

import example_oracles

# Excess losses after some rounds, from a float64 run of both algorithms that does not use
# example_oracles.py.
PUBLISHED = {
    "scallion": {1: 25.1890369483, 2: 22.6544674809, 5: 13.3145602824, 10: 4.08645974725, 20: 0.525383213121,
                 40: 0.0159324737216, 60: 0.000694646453151},
    "scafcom": {1: 24.0332724478, 2: 20.5427918736, 5: 10.4528484125, 10: 2.31862709785, 20: 0.242822355059,
                40: 0.00341944807578, 60: 2.81267272868e-05},
}
PROGRAMS = []


def run(program, method):
    done = subprocess.run([program, method], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


class ExamplesTest(unittest.TestCase):
    def assert_near(self, found, expected, relative, absolute):
        for step, (value, right) in enumerate(zip(found, expected, strict=True), 1):
            self.assertLess(abs(value - right), relative * abs(right) + absolute, f"step {step}")

    def test_federated(self):
        for method in ("scallion", "scafcom"):
            with self.subTest(method):
                expected = example_oracles.federated(method)
                for step, value in PUBLISHED[method].items():
                    self.assertAlmostEqual(expected[step - 1], value, delta=1e-9 * max(1, value))
                *rounds, (name, drift) = run(PROGRAMS[0], method)
                self.assertEqual(name, "drift")
                # The mean of the clients' control variates is what all ranks hold of it.
                self.assertLess(float(drift), 1e-6)
                self.assert_near([float(excess) for _, excess in rounds], expected, 1e-4, 1e-7)

    def test_variational(self):
        for method in ("masha1", "masha2"):
            with self.subTest(method):
                expected = example_oracles.variational(method)
                self.assertLess(expected[-1], 1e-3 * expected[0])
                found = [float(distance) for _, distance in run(PROGRAMS[1], method)]
                self.assert_near(found, expected, 1e-3, 1e-6)

    def test_usage(self):
        for program in PROGRAMS:
            done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("usage:", done.stderr)


if __name__ == "__main__":
    PROGRAMS = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
