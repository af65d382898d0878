# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The tool from end to end: its report, its silence in a pipe, its exit status: tool_test.py TRAIN_TEXT"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from short_run import unexpected

SMALL = ["--steps", "20", "--hidden", "32,16", "--batch", "8"]


def run(tool: str, *options: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([tool, *options], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **environment})


class Folder:
    """A text to learn from and a folder for reports."""

    def __init__(self, path: str) -> None:
        self.path = pathlib.Path(path)
        self.text = self.path / "text"
        self.text.write_text("".join(f"line {i % 7} of {i % 11}\n" for i in range(2000)))

    def report(self, tool: str, *options: str) -> tuple[dict, str]:
        """Returns the JSON report and stdout of a run that must succeed."""
        file = self.path / "report.json"
        result = run(tool, "--text", str(self.text), "--json", str(file), *SMALL, *options)
        assert result.returncode == 0 and unexpected(result.stderr) == "", result
        return json.loads(file.read_text()), result.stdout


def check_report(report: dict, stdout: str) -> None:
    assert report["optimizer"] == "onebit-adam" and report["mode"] == "ef", report
    assert report["nranks"] == 2 and report["seed"] == 5, report
    assert [step["step"] for step in report["steps"]] == list(range(1, 21)), report
    assert all(0 < step["loss"] < 11 and step["bytes_sent"] > 0 for step in report["steps"]), report
    assert report["schedule"] == 4 * "F" + 16 * "1" == "".join(step["kind"] for step in report["steps"])
    assert (report["rounds"], report["dense_steps"], report["compressed_steps"]) == (20, 4, 16), report
    assert report["config"]["variance_floor"] == 0.01, report
    assert report["frozen_at"] == 4 and report["diverged_at"] is None, report
    assert [step["stage"] for step in report["steps"]] == 4 * ["dense"] + 16 * ["compressed"], report
    # From here on one bit per parameter, headers and scales.
    assert report["steps"][4]["bytes_sent"] < report["steps"][3]["bytes_sent"] / 20, report
    sent = sum(step["bytes_sent"] for step in report["steps"])
    assert report["bytes_sent_per_rank"] == report["bytes_expected"] == sent, report
    assert 0 < report["heldout_loss"] < 5.6, report
    assert report["parameters"] == 8192 + 513 * 32 + 33 * 16 + 17 * 256, report
    seconds = report["seconds"]
    parts = [seconds[part] for part in ("compute", "codec", "wire")]
    assert all(part >= 0 for part in parts) and sum(parts) <= seconds["total"] * 1.001, report
    assert f"held-out loss  {report['heldout_loss']:.4f}" in stdout, stdout


def without_times(report: dict) -> dict:
    return {name: value for name, value in report.items() if name != "seconds"}


def check_evaluations(report: dict, stdout: str, plain: dict) -> None:
    evaluations = report["evaluations"]
    assert [evaluation["step"] for evaluation in evaluations] == [5, 10, 15, 20], report
    assert evaluations[-1]["heldout_loss"] == report["heldout_loss"] == plain["heldout_loss"], report
    seconds = [0] + [evaluation["seconds"] for evaluation in evaluations]
    assert seconds == sorted(seconds), report
    # The total is a mean over the ranks, who leave the last step about together.
    assert abs(seconds[-1] - report["seconds"]["total"]) < 0.1, report
    assert "#   rank 1 sent " in stdout, stdout


def check_local_steps(report: dict, stdout: str) -> None:
    """Options of 0/1 Adam that syncs in every step up to the 11th, then in every fourth, and ends in
    between."""
    schedule = report["schedule"]
    assert schedule == 5 * "B" + 6 * "1" + "...1...1.", report
    assert report["config"]["var_freeze_step"] == 5 and report["config"]["local_step_clipper"] == 4, report
    assert "rate_tied" not in report["config"] and "freeze" not in report["config"], report
    assert (report["rounds"], report["dense_steps"], report["compressed_steps"], report["local_steps"]) \
        == (13, 5, 13, 7), report
    assert "13 of 20 steps sent something: 5 dense, 13 compressed" in stdout, stdout
    for step in report["steps"]:
        assert (step["bytes_sent"] == 0) == (step["kind"] == "."), step
    # The evaluations in the middle are made with parameters that differ, the last one is not.
    sent = sum(step["bytes_sent"] for step in report["steps"])
    sync = report["final_sync_bytes"]
    assert sync == report["steps"][-2]["bytes_sent"] > 0, report
    assert report["bytes_sent_per_rank"] == report["bytes_expected"] == sent + sync, report
    evaluations = report["evaluations"]
    assert [evaluation["step"] for evaluation in evaluations] == list(range(2, 21, 2)), report
    assert evaluations[-1]["heldout_loss"] == report["heldout_loss"], report


def check_deepspeed(report: dict, stdout: str) -> None:
    """Its letters are those of onebit_schedule --variant deepspeed."""
    assert report["schedule"] == "iFFF1F1uuuuuuuuuuuuu" == "".join(step["kind"] for step in report["steps"]), report
    assert report["config"]["variance_floor"] == 0 and "variance floor 0" in stdout, report
    assert (report["rounds"], report["compressed_steps"], report["local_steps"]) == (19, 15, 1), report


def check_outer(report: dict, stdout: str, in_processes: dict) -> None:
    """Fragments of a run whose rounds have 6 steps, and averages that take 2."""
    assert report["schedule"] == "....o..o..o..o..o..o", report
    assert report["config"]["outer"] == "every=6,merge=0.5,fragments=2,overlap=2,lr=0.7,momentum=0.9,nesterov=1"
    assert report["mode"] == "plain" and report["config"]["codec"] == "fp4", report
    outer = report["outer"]
    assert outer["averages"] == 6 and outer["skipped"] == 0, report
    assert 0 < outer["bytes"] == outer["bytes_expected"], report
    assert report["bytes_sent_per_rank"] == outer["bytes"] + report["final_sync_bytes"], report
    assert f"{outer['bytes']} bytes per rank, {outer['bytes']} by formula" in stdout, stdout
    assert [evaluation["step"] for evaluation in report["evaluations"]] == [10, 20], report
    assert report["evaluations"][-1]["heldout_loss"] == report["heldout_loss"] < 5.6, report
    for name in ("parameters_fnv1a", "heldout_loss", "outer", "steps"):
        assert report[name] == in_processes[name], (name, report, in_processes)


def check_diverged(report: dict, stdout: str) -> None:
    assert report["heldout_loss"] is None, report
    assert report["diverged_at"] == len(report["steps"]) <= 20, report
    assert f"diverged at step {report['diverged_at']}" in stdout, stdout


def check_errors(tool: str, folder: Folder) -> None:
    text = ["--text", str(folder.text)]
    usage = run(tool, "--no-such-option")
    assert usage.returncode == 2 and "--no-such-option" in usage.stderr, usage
    unwritable = run(tool, *text, "--json", "/nonexistent/folder/x.json")
    assert unwritable.returncode == 2 and "/nonexistent/folder/x.json" in unwritable.stderr, unwritable
    for percent in ("0", "101", "nan", "x"):
        wrong = run(tool, *text, "--eval-every", percent)
        assert wrong.returncode == 2 and "--eval-every" in wrong.stderr, wrong
    unused = run(tool, *text, "--optimizer", "lamb", "--freeze", "5")
    assert unused.returncode == 2 and "--freeze: has no effect" in unused.stderr, unused
    missing = run(tool, "--text", str(folder.path / "missing"))
    assert missing.returncode == 1 and "no such file" in missing.stderr, missing
    wrong = run(tool, *text, *SMALL, ONEBIT_SEGMENT_ELEMENTS="1")
    assert wrong.returncode == 1 and "ONEBIT_SEGMENT_ELEMENTS" in wrong.stderr, wrong
    unknown = run(tool, *text, *SMALL, ONEBIT_NO_SUCH_SETTING="1")
    assert unknown.returncode == 0 and "ONEBIT_NO_SUCH_SETTING" in unknown.stderr, unknown


def main() -> None:
    tool = sys.argv[1]
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        first, stdout = folder.report(tool, "-t", "2", "--seed", "5", "--check-replicas")
        check_report(first, stdout)
        again, _ = folder.report(tool, "-t", "2", "--seed", "5", "--check-replicas")
        assert without_times(first) == without_times(again)

        adam, _ = folder.report(tool, "--optimizer", "adam")
        assert adam["mode"] == "dense" and adam["frozen_at"] is None and adam["nranks"] == 4, adam
        assert adam["evaluations"] == [], adam
        sharded, stdout = folder.report(tool, "-t", "2", "--optimizer", "sharded-onebit-adam", "--check-replicas")
        assert sharded["bytes_sent_per_rank"] == sharded["bytes_expected"], sharded
        # 24 bytes for each parameter of the own part, 17 for those of all.
        assert 29 <= sharded["state_bytes_per_rank"] / sharded["parameters"] < 29.01, sharded
        assert 0 < sharded["lag"] < 1 and sharded["config"]["gather"] == "fp4", sharded
        assert "bytes of the optimizer per rank, 29.0 per parameter" in stdout, stdout
        for optimizer in ("lamb", "onebit-lamb"):
            lamb, _ = folder.report(tool, "--optimizer", optimizer, "--check-replicas")
            assert lamb["optimizer"] == optimizer and lamb["heldout_loss"] < 5.6, lamb
        check_local_steps(*folder.report(
            tool, "-t", "3", "--optimizer", "zero-one-adam", "--lr", "1e-3", "--warmup", "4",
            "--var-freeze-step", "5", "--local-step-start", "10", "--local-step-scaler", "1",
            "--local-step-clipper", "4", "--eval-every", "10", "--check-replicas"))
        check_deepspeed(*folder.report(
            tool, "-t", "2", "--optimizer", "zero-one-adam", "--variant", "deepspeed", "--lr", "1e-3",
            "--var-freeze-step", "6", "--var-update-scaler", "2"))
        check_evaluations(*folder.report(tool, "-t", "2", "--seed", "5", "--eval-every", "25"), first)
        outer = ["--optimizer", "adam", "--outer", "every=6,fragments=2,overlap=2", "--codec", "fp4",
                 "--eval-every", "50", "--check-replicas"]
        in_processes, _ = folder.report(tool, "--procs", "3", *outer)
        check_outer(*folder.report(tool, "-t", "3", *outer), in_processes)
        coarse = run(tool, "--text", str(folder.text), *SMALL, "--optimizer", "adam", "--codec", "sign",
                     "--outer", "every=6,merge=0")
        assert coarse.returncode == 0 and "give merge=0.5, or momentum=0,lr=1" in coarse.stderr, coarse
        check_diverged(*folder.report(tool, "--lr", "1e6", "--warmup", "0"))
        check_errors(tool, folder)


if __name__ == "__main__":
    main()
