# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The lines of docs/trainers.md, each in its trainer as it is published: trainers_test.py ONEBIT_RUN PAGE"""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

from framework_settings import ENVIRONMENT  # pylint: disable=wrong-import-position
from rank_jobs import Jobs  # pylint: disable=wrong-import-position

PAGE = pathlib.Path(sys.argv.pop(2))
JOBS = Jobs(sys.argv.pop(1), pathlib.Path(__file__).with_name("trainers_rank.py"))
# Two of 8 steps are in full precision, and then 4 bits of 32 travel, or 8. OnebitAdam has not frozen yet.
SHARES = {
    "DistributedDataParallel": 0.45,
    "HSDP": 0.45,
    "FSDP2": 0.5,
    "A mesh whose loop is not yours": 0.5,
    "nanoGPT": 0.45,
    "Hugging Face Trainer": 0.45,
    "Accelerate": 0.45,
    "Lightning": 0.45,
    "DeepSpeed": 1.1,
}
ON_MESHES = ("HSDP", "A mesh whose loop is not yours")
NOT_RUN = {"torchtitan"}  # needs GPUs
ELSEWHERE = {"Trainers that stay as they are"}  # unmodified_trainers_test


class TrainersTest(unittest.TestCase):
    def test_every_section_is_run(self):
        headings = set(re.findall(r"^## (.*)$", PAGE.read_text("utf-8"), re.MULTILINE))
        self.assertEqual(headings, {*SHARES, *NOT_RUN, *ELSEWHERE})

    def test_the_lines_compress(self):
        for heading, most in SHARES.items():
            with self.subTest(heading):
                ranks = 4 if heading in ON_MESHES else 2
                found = JOBS.run(ranks, str(PAGE.resolve()), heading, **ENVIRONMENT)
                self.assertEqual(sorted(found), list(range(ranks)))
                for each in found.values():
                    self.assertGreater(each["share"], 0.0)
                    self.assertLess(each["share"], most)
                print(f"{heading}: {found[0]['share']:.3f} of the bytes of full precision", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
