# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A set-user-ID program opens nothing that its caller names: secure_execution_test.py JOIN_PROBE."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

NOBODY = 65534


def run(program: pathlib.Path, **variables: str) -> str:
    """What the program prints, started by a user without rights."""
    environment = {"RANK": "0", "WORLD_SIZE": "1", "ONEBIT_TRANSPORT": "local"} | variables
    ended = subprocess.run([program], env=environment, user=NOBODY, group=NOBODY, extra_groups=[],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True,
                           timeout=60)
    return ended.stdout


def check(folder: pathlib.Path, probe: str):
    ordinary, raised = folder / "ordinary", folder / "raised"
    for program in (ordinary, raised):
        shutil.copyfile(probe, program)
    ordinary.chmod(0o755)
    raised.chmod(0o4755)
    log = folder / "log"
    trace = folder / "trace"
    named = {"ONEBIT_DEBUG_FILE": str(log), "ONEBIT_PLUGIN_PATH": str(folder), "ONEBIT_TRACE": str(trace)}

    text = run(raised, **named)
    assert "join: no error" in text, text
    for name in named:
        assert f"environment variable {name} is ignored: it names files" in text, text
        assert f"\n{name}=\n" in text, text
    assert not log.exists() and not trace.exists()
    # A setting that names no file holds.
    assert "\nONEBIT_HEARTBEAT_MS=250\n" in run(raised, ONEBIT_HEARTBEAT_MS="250")

    text = run(raised, ONEBIT_SECRET_FILE=str(folder / "secret"))
    assert "join: invalid usage: environment variable ONEBIT_SECRET_FILE" in text, text

    meeting = {"WORLD_SIZE": "2", "ONEBIT_RENDEZVOUS": str(folder / "meet"),
               "ONEBIT_CONNECT_TIMEOUT_MS": "300"}
    text = run(raised, **meeting)
    assert "join: invalid usage" in text and "more rights than its caller" in text, text
    assert not (folder / "meet").exists()

    # The same program opens all of that for its own user.
    folder.chmod(0o777)
    text = run(ordinary, **named)
    assert "is ignored" not in text and f"\nONEBIT_DEBUG_FILE={log}\n" in text, text
    assert log.exists() and trace.exists()
    text = run(ordinary, **meeting)
    assert "join: timed out" in text, text


def main() -> int:
    if os.geteuid() != 0:
        print("only root can make such a program")
        return 77
    with tempfile.TemporaryDirectory(prefix="onebit-test-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        if os.statvfs(folder).f_flag & os.ST_NOSUID:
            print(f"{folder} is on a file system that is mounted nosuid")
            return 77
        if "NoNewPrivs:\t1" in pathlib.Path("/proc/self/status").read_text():
            print("no process here can gain rights")
            return 77
        check(folder, sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
