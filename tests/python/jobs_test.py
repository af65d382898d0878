# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of processes: results that are equal on all ranks and those of the specification, bytes by
formula, a lost rank, the program of the README: jobs_test.py ONEBIT_RUN GOLDEN_FOLDER README"""

import json
import pathlib
import re
import subprocess
import sys
import unittest

from job_rank import COUNT
from rank_jobs import Jobs, ceil_to

ONEBIT_RUN, GOLDEN, README = (
    sys.argv.pop(1),
    pathlib.Path(sys.argv.pop(1)),
    pathlib.Path(sys.argv.pop(1)),
)
run_job = Jobs(ONEBIT_RUN, pathlib.Path(__file__).with_name("job_rank.py")).run


def packet_bytes(name: str, count: int) -> int:
    """Bytes of a packet of so many elements, as FORMAT.md says, sections 4 and 15."""
    if name == "dense":
        return 4 * count
    if name == "sign":
        return 4 * (ceil_to(count, 4096) // 4096) + count // 8
    return ceil_to(2 * (ceil_to(count, 128) // 128), 16) + count // 2


class JobsTest(unittest.TestCase):
    def test_bytes_and_equal_results(self):
        for ranks in (2, 4):
            found = run_job(ranks, "calls")
            self.assertEqual(sorted(found), list(range(ranks)))
            for name, first in found[0].items():
                with self.subTest(ranks=ranks, way=name):
                    for other in found.values():
                        self.assertEqual(other[name]["results"], first["results"])
                        # A packet to each other rank in each of two exchanges, behind a header.
                        expected = 2 * (ranks - 1) * (64 + packet_bytes(name, COUNT // ranks))
                        self.assertEqual(other[name]["bytes"], expected)
                        self.assertIn(other[name]["said"], (None, expected))
            errors = {name: each["error"] for name, each in found[0].items()}
            self.assertLess(errors["dense"], 1e-6)
            self.assertLess(errors["fp4"], 0.1)
            self.assertLess(errors["fp4"], errors["sign"])

    def test_results_are_those_of_the_specification(self):
        for name in ("fp4_ef_fp32", "ef_fp32_l2_block", "uint8mm_ef_fp32"):
            golden = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
            expected = {"results": [call["out"] for call in golden["calls"]]}
            found = run_job(golden["n"], "golden", str(GOLDEN / f"{name}.json"))
            self.assertEqual(found, {rank: expected for rank in range(golden["n"])}, name)

    def test_groups_on_streams_and_states(self):
        found = run_job(3, "groups")
        for each in found.values():
            self.assertEqual(each["continued"], [True, True])
            self.assertEqual(each, found[0])

    def test_a_killed_rank_is_named_and_left_out(self):
        found = run_job(3, "loss", is_failing=True)
        self.assertEqual(sorted(found), [0, 2])
        for each in found.values():
            self.assertEqual(each["error"], "PeerLost", each)
            self.assertEqual(each["failure"], "PeerLost")
            self.assertIn("rank 1 is gone", each["text"])
            self.assertEqual(each["ranks"], 2)
            self.assertEqual(each["lost"], [1])
        self.assertEqual(found[0]["result"], found[2]["result"])
        self.assertEqual(found[0]["source"], found[2]["source"])

    def test_the_program_of_the_readme(self):
        text = README.read_text(encoding="utf-8")
        program = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
        output = subprocess.run(
            [ONEBIT_RUN, "-n", "2", sys.executable, "-B", "-c", program],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        # Two exchanges with one other rank: headers, scales and codes of half a million elements.
        sent = re.findall(r"rank ([01]) of 2 sent (\d+) bytes", output)
        self.assertEqual(sorted(rank for rank, _ in sent), ["0", "1"])
        self.assertLess(max(int(number) for _, number in sent), 1000000 * 4 / 7)


if __name__ == "__main__":
    unittest.main()
