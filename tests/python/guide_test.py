# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The guide's code, in its order, as one program of two processes: guide_test.py ONEBIT_RUN GUIDE"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from needs_torch import torch  # pylint: disable=unused-import

ONEBIT_RUN, GUIDE = sys.argv[1], pathlib.Path(sys.argv[2])
BEFORE = """
import sys
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
batches = [(torch.randn(16, 256), torch.randn(16, 8)) for _ in range(8)]
"""
BEHIND = """
def train(steps):
    for inputs, targets in batches[:steps]:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        scheduler.step()

train(4)
rate = scheduler.get_last_lr()
before = [parameter.detach().clone() for parameter in model.parameters()]
save(sys.argv[1])
torch.distributed.barrier()
train(2)
load(sys.argv[1])
assert all(torch.equal(one, other) for one, other in zip(before, model.parameters()))
assert scheduler.get_last_lr() == rate
train(2)
print("the end")
torch.distributed.destroy_process_group()
"""


class GuideTest(unittest.TestCase):
    def test_the_code_runs(self):
        blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 6)
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program.py"
            program.write_text("\n".join([BEFORE, *blocks, BEHIND]), "utf-8")
            command = [ONEBIT_RUN, "-n", "2", "--tag-output", sys.executable, str(program), f"{folder}/checkpoint"]
            result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count("the end"), 2)
        self.assertIn("5 iterations: 2 dense, 0 taken back", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
