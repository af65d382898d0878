# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The output of onebit_schedule, character by character: schedule_tool_test.py ONEBIT_SCHEDULE"""

import json
import pathlib
import subprocess
import sys
import tempfile

# A run small enough to be worked out by hand: everything that doubles does so within a hundred steps.
SMALL = ["--algorithm", "zero-one-adam", "--var-freeze-step", "40", "--var-update-scaler", "4",
         "--local-step-scaler", "16", "--local-step-clipper", "8"]

DEEPSPEED = """\
  1- 10  i F F F F F 1 F 1 F
 11- 20  1 F 1 1 1 F 1 1 1 F
 21- 30  1 1 1 F 1 1 1 F 1 1
 31- 40  1 F 1 1 1 1 1 1 1 F
 41- 50  1 u u u u u u u u u
 51- 60  u u u u u u u u . u
 61- 70  . u . u . u . u . u
 71- 80  . u . . . u . . . u
 81- 90  . . . u . . . u . .
 91-100  . . . . . u . . . .
"""
DEEPSPEED_VOLUME = ("steps 1-100: i 1, F 14, 1 26, u 29, . 30; 279 bits per element, 2.79 a step; "
                    "31.0 % of the rounds saved; 5.73x less than fp16\n")

PAPER = """\
  0-  9  B B B B B 1 B 1 B 1
 10- 19  B 1 B 1 1 1 B 1 1 1
 20- 29  B 1 1 1 B 1 1 1 B 1
 30- 39  1 1 1 1 1 1 B 1 1 1
 40- 49  1 1 1 1 1 1 1 1 1 1
 50- 59  1 1 1 1 1 1 . 1 . 1
 60- 69  . 1 . 1 . 1 . 1 . 1
 70- 79  . 1 . . . 1 . . . 1
 80- 89  . . . 1 . . . 1 . .
 90- 99  . . . . . 1 . . . .
"""
PAPER_VOLUME = ("steps 0-99: B 14, 1 55, . 31; 293 bits per element, 2.93 a step; "
                "31.0 % of the rounds saved; 5.46x less than fp16\n")

ONEBIT = """\
 998-1001  F F F 1
steps 998-1001: F 3, 1 1; 97 bits per element, 24.25 a step; 0.0 % of the rounds saved; \
1.32x less than fp32
"""

WRONG = {
    (): "--steps A:B",
    ("--steps", "5"): "5 is not a range",
    ("--steps", "9:5"): "9:5 is not a range",
    ("--steps", "1:x"): "1:x is not a range",
    ("--steps", "1:1000000000"): "more than",
    ("--steps", "0:5", "--freeze-step", "2"): "counts its steps from 1",
    ("--steps", "1:5"): "--freeze-step N must be given",
    ("--steps", "1:5", "--freeze-step", "-1"): "--freeze-step N must be given",
    ("--steps", "1:5", "--freeze-step", "-2"): "--freeze-step N must be given",
    ("--steps", "1:5", "--freeze-step", "0"): "freezeStep is 0",
    ("--steps", "1:5", "--variant", "deepspeed"): "100000",
    ("--steps", "1:5", "--freeze-step", "2", "--lr", "1"): "--lr: the steps",
    ("--steps", "1:5", "--freeze-step", "2", "--rate-tied"): "rateTied is set",
    ("--steps", "1:5", "--freeze-step", "2", "--algorithm", "adam"): "adam is not onebit-adam|",
    ("--steps", "1:5", "--freeze-step", "2", "--gradients", "int8"): "int8 is not fp16|fp32",
    ("--steps", "1:5", *SMALL, "--freeze-step", "2"): "freezeStep is set",
    ("--steps", "1:5", *SMALL, "--variant", "deepspeed", "--rate-tied"): "rateTied is set",
    ("--steps", "1:5", *SMALL, "--lr", "nan"): "nan is not a number",
    ("--steps", "1:5", *SMALL, "--lr-warmup", "-1"): "--lr-warmup",
    ("--steps", "1:5", *SMALL, "--lr-decay", "exponential:2:5"): "exponential:FACTOR:STEPS",
    ("--steps", "1:5", *SMALL, "--lr-decay", "slow"): "slow is not constant",
    ("--steps", "1:5", *SMALL, "--rate-tied", "--total-steps", "5"): "--lr-decay cosine",
    ("--steps", "1:5", *SMALL, "--lr-decay", "linear"): "--lr-decay needs --rate-tied",
    ("--steps", "1:5", *SMALL, "--total-steps", "5"): "--total-steps needs --rate-tied",
    ("--steps", "1:5", *SMALL, "--lr", "0.1"): "--lr needs --rate-tied",
    ("--steps", "1:5", *SMALL, "--lr-warmup", "5"): "--lr-warmup needs --rate-tied",
    ("--steps", "1:5", "--algorithm", "zero-one-adam"): "varFreezeStep must be set",
    ("--volume", "--freeze-step", "5"): "--steps A:B must be given",
    ("--steps", "1:5", "--freeze-step", "2", "--json", "/nonexistent/folder/x"): "/nonexistent/folder/x",
    ("--volumes",): "--volumes",
}


class Tool:
    def __init__(self, path: str):
        self.path = path

    def run(self, *options: str) -> subprocess.CompletedProcess:
        return subprocess.run([self.path, *options], capture_output=True, text=True, timeout=60)

    def output(self, *options: str) -> str:
        result = self.run(*options)
        assert result.returncode == 0 and result.stderr == "", (options, result)
        return result.stdout


def same(found: str, expected: str) -> None:
    assert found == expected, f"printed\n{found}\ninstead of\n{expected}"


def check_schedules(tool: Tool) -> None:
    same(tool.output("--steps", "1:100", *SMALL, "--variant", "deepspeed"),
         DEEPSPEED + DEEPSPEED_VOLUME)
    same(tool.output("--steps", "0:99", *SMALL), PAPER + PAPER_VOLUME)
    same(tool.output("--steps", "0:99", *SMALL, "--volume"), PAPER_VOLUME)
    for algorithm in "onebit-adam", "onebit-lamb":
        same(tool.output("--steps", "998:1001", "--freeze-step", "1000", "--algorithm", algorithm,
                         "--gradients", "fp32"), ONEBIT)


def check_rates(tool: Tool) -> None:
    method = ["--algorithm", "zero-one-adam", "--lr-warmup", "2"]
    rows = lambda *options: tool.output("--steps", "0:9", *method, *options).splitlines()[0]
    same(rows(), "  0-  9  B B 1 1 1 1 1 1 1 1")
    same(rows("--rate-tied", "--lr-decay", "exponential:0.5:3"), "  0-  9  B B 1 1 1 . 1 . . .")
    same(rows("--rate-tied", "--lr-decay", "linear"), "  0-  9  B B 1 1 1 1 . 1 . .")
    same(rows("--rate-tied", "--lr-decay", "cosine", "--total-steps", "4"),
         "  0-  9  B B 1 . . . . . . .")
    same(rows("--lr", "0"), "  0-  9  F F . . . . . . . .")
    same(rows("--dense-step-feeds-momentum"), "  0-  9  F F 1 1 1 1 1 1 1 1")


def check_json(tool: Tool, folder: pathlib.Path) -> None:
    path = folder / "steps.json"
    tool.output("--steps", "1:100", *SMALL, "--variant", "deepspeed", "--json", str(path))
    report = json.loads(path.read_text())
    same(report["kinds"], "".join(row[9:].replace(" ", "") for row in DEEPSPEED.splitlines()))
    assert report["counts"] == {"i": 1, "F": 14, "B": 0, "1": 26, "u": 29, ".": 30}, report
    assert (report["first"], report["last"]) == (1, 100), report
    assert (report["dense_steps"], report["compressed_steps"], report["rounds"]) == (14, 55, 69)
    assert report["bits_per_element"] == 279 and report["bits_per_element_and_step"] == 2.79, report
    assert abs(report["rounds_saved"] - 0.31) < 1e-12, report
    assert abs(report["reduction"] - 1600 / 279) < 1e-12, report
    assert report["config"] == {
        "algorithm": "zero-one-adam", "variant": "deepspeed", "dense_bits": 16, "lr": 1.0,
        "lr_decay": "constant", "total_steps": 100, "rate_tied": False,
        "dense_step_feeds_momentum": False, "var_freeze_step": 40, "var_update_scaler": 4,
        "local_step_scaler": 16, "local_step_clipper": 8}, report


def check_usage(tool: Tool) -> None:
    for options, text in WRONG.items():
        result = tool.run(*options)
        assert result.returncode == 2, (options, result)
        assert text in result.stderr and result.stdout == "", (options, result)
    assert "--var-freeze-step" in tool.output("--help")


def main() -> None:
    tool = Tool(sys.argv[1])
    check_schedules(tool)
    check_rates(tool)
    check_usage(tool)
    with tempfile.TemporaryDirectory() as folder:
        check_json(tool, pathlib.Path(folder))


if __name__ == "__main__":
    main()
