# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A sweep tool on device memory: cuda_sweep_test.py TOOL STAND_IN_OF_CUDA STAND_IN_OF_NCCL [--procs]

The arguments after the tool are the files of the stand-ins, which this process' loader then finds under
the names of the driver and of NCCL. What is checked are results, counters and errors; times mean
nothing on a stand-in.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

DEVICES = 3
# Tools whose calls cannot be made in place, and are none of NCCL's collectives.
OUT_OF_PLACE = ("alltoall_perf", "sendrecv_perf")


class Tool:
    def __init__(self, path: str, *libraries: str):
        self.path = path
        self.name = pathlib.Path(path).name
        self.is_exact = False  # dense calls over NCCL are the library's
        self.folders = [str(pathlib.Path(library).parent) for library in libraries]

    def command(self, *options: str) -> list[str]:
        device = [] if "--device" in options else ["--device", "cuda"]
        command = [self.path, *device, *options]
        print(" ".join(command), flush=True)
        return command

    def environment(self, folders: list[str] | None = None, devices: int = DEVICES) -> dict[str, str]:
        before = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        path = ":".join(filter(None, [*(self.folders if folders is None else folders), *before]))
        return {**os.environ, "LD_LIBRARY_PATH": path, "ONEBIT_DEBUG": "NONE",
                "ONEBIT_NCCL_NATIVE_DENSE": "0" if self.is_exact else "1",
                "CUDA_STAND_IN_DEVICES": str(devices)}

    def run(self, *options: str, folders: list[str] | None = None, devices: int = DEVICES
            ) -> subprocess.CompletedProcess:
        return subprocess.run(self.command(*options), capture_output=True, text=True, timeout=120,
                              env=self.environment(folders, devices))

    def sweep(self, *options: str) -> dict:
        """Returns the report of a sweep that must succeed."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "out.json"
            done = self.run("-n", "3", "-c", "1", "-J", str(file), *options)
            assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
            report = json.loads(file.read_text())
        assert report["out_of_bounds"] == {"count": 0, "okay": "true"}, report
        assert report["config"]["device"] == "cuda", report["config"]
        return report


def check(tool: Tool, report: dict, transport: str, mode: str) -> None:
    assert report["results"], report
    for row in report["results"]:
        assert row["device"] == "cuda" and row["transport"] == transport, row
        assert row["mode"] == mode and row["out_of_place"]["nwrong"] == 0, row
        assert row["out_of_place"]["time"] > 0, row
        if tool.name in OUT_OF_PLACE:
            assert row["in_place"]["nwrong"] is None, row
        else:
            assert row["in_place"]["nwrong"] == 0 and row["in_place"]["time"] > 0, row
        assert row["wire_bytes"] == row["wire_bytes_bound"], row
        # NCCL makes dense calls itself unless it has no such collective, and counts no bytes.
        is_native = transport == "nccl" and mode == "dense" and tool.name not in OUT_OF_PLACE
        assert (row["wire_bytes"] is None) == (is_native and not tool.is_exact), row


def check_sweeps(tool: Tool) -> None:
    for transport in ("local", "nccl"):
        for mode in ("dense", "sign", "ef"):
            report = tool.sweep("-t", "3", "--transport", transport, "--mode", mode,
                                "-b", "1K", "-e", "256K", "-f", "16")
            check(tool, report, transport, mode)
            devices = [place["device"] for place in report["config"]["devices"]]
            assert devices == [0, 1, 2], report["config"]
        report = tool.sweep("-t", "2", "--transport", transport, "--mode", "ef", "-b", "0",
                            "-e", "990", "-i", "330", "-d", "all", "--block", "tensor")
        check(tool, report, transport, "ef")
    tool.is_exact = True
    report = tool.sweep("-t", "3", "--transport", "nccl", "--mode", "dense", "-b", "1K", "-e", "64K",
                        "-f", "64")
    check(tool, report, "nccl", "dense")
    # More ranks than devices, and all on one.
    for device, expected in ("cuda", [0, 1, 2, 0]), ("cuda:1", [1, 1, 1, 1]):
        report = tool.sweep("-t", "4", "--device", device, "--mode", "ef", "-b", "4K", "-e", "4K")
        check(tool, report, "local", "ef")
        devices = [place["device"] for place in report["config"]["devices"]]
        assert devices == expected, report["config"]


def check_errors(tool: Tool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "libcuda.so.1").touch()
        for words, done in (
                ("no CUDA: its driver cannot be loaded", tool.run("-t", "1", "-b", "1K", folders=[folder])),
                ("no CUDA: its driver", tool.run("-t", "1", "-b", "1K", devices=0)),
                ("there are 3 CUDA devices", tool.run("-t", "1", "--device", "cuda:3")),
        ):
            assert done.returncode == 1 and words in done.stderr, (words, done)
    for words, options in (("is not cpu, cuda or cuda:N", ["--device", "gpu"]),
                           ("add --device cuda", ["--device", "cpu", "--transport", "nccl"])):
        done = tool.run(*options)
        assert done.returncode == 2 and words in done.stderr, (words, done)


def rank_of(launcher: int, rank: int) -> int:
    """Returns the process of a rank."""
    children = [child for thread in pathlib.Path(f"/proc/{launcher}/task").iterdir()
                for child in (thread / "children").read_text().split()]
    variable = f"RANK={rank}".encode()
    found = [int(child) for child in children
             if variable in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")]
    assert len(found) == 1, (children, found)
    return found[0]


def check_loss(tool: Tool) -> None:
    """Streams that wait for a dead rank continue, and the other ranks fail with an error that names it."""
    command = tool.command("--procs", "3", "--mode", "ef", "-b", "64K", "-e", "64M", "-i", "64",
                           "-n", "1", "-w", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=tool.environment(), start_new_session=True) as launcher:
        try:
            row = next((line for line in launcher.stdout if re.match(r" +\d+ ", line)), None)
            assert row, launcher.communicate(timeout=60)
            os.kill(rank_of(launcher.pid, 1), signal.SIGKILL)
            _, errors = launcher.communicate(timeout=60)
        except BaseException:
            os.killpg(launcher.pid, signal.SIGKILL)
            raise
    assert launcher.returncode != 0, errors
    assert errors.count("rank 1") >= 2 and "lost" in errors, errors


def main() -> None:
    tool = Tool(*sys.argv[1:4])
    if "--procs" in sys.argv[4:]:
        for mode in ("dense", "ef"):
            report = tool.sweep("--procs", "3", "--mode", mode, "-b", "1K", "-e", "64K", "-f", "64")
            check(tool, report, "socket", mode)
            assert len({place["pid"] for place in report["config"]["devices"]}) == 3, report
        check_loss(tool)
        return
    check_sweeps(tool)
    check_errors(tool)


if __name__ == "__main__":
    main()
