# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebit_info prints every setting, as text and as JSON: info_test.py ONEBIT_INFO"""

import json
import os
import pathlib
import subprocess
import sys


def run(*command: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=60,
                          env={**os.environ, **environment})


def main() -> None:
    tool = sys.argv[1]
    text = run(tool, ONEBIT_DEBUG="INFO")
    assert text.returncode == 0 and "transports: local" in text.stdout, text

    report = json.loads(run(tool, "--json", ONEBIT_DEBUG="INFO").stdout)
    assert "local" in report["transports"], report
    settings = {row["name"]: row for row in report["settings"]}
    assert settings["ONEBIT_DEBUG"]["value"] == "INFO", settings
    assert settings["ONEBIT_DEBUG"]["source"] == "environment", settings
    assert all(name in text.stdout for name in settings), text

    machine = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for variables, name, source in (({}, machine, "machine"), ({"ONEBIT_HOST": "a"}, "a", "ONEBIT_HOST"),
                                    ({"ONEBIT_HOST_RANKS": "4"}, "4 successive ranks", "ONEBIT_HOST_RANKS")):
        assert f"host of this process: {name} ({source})\n" in run(tool, **variables).stdout, variables
        host = json.loads(run(tool, "--json", **variables).stdout)["host"]
        assert host == {"name": name, "source": source}, host

    for options in ([], ["--json"]):
        shown = run(tool, *options, ONEBIT_SECRET="correct horse battery staple")
        assert "(not shown)" in shown.stdout and "battery" not in shown.stdout, shown

    for options in ([], ["--json"]):
        unknown = run(tool, *options, ONEBIT_HEARTBEATS_MS="1")
        assert unknown.returncode == 0 and "ONEBIT_HEARTBEATS_MS" not in unknown.stdout, unknown
        assert unknown.stderr.count("ONEBIT_HEARTBEATS_MS is unknown and ignored; "
                                    "did you mean ONEBIT_HEARTBEAT_MS?") == 1, unknown
    bad = run(tool, ONEBIT_HEARTBEAT_MS="0")
    assert bad.returncode == 1 and "ONEBIT_HEARTBEAT_MS" in bad.stderr, bad
    assert run(tool, "--nonsense").returncode == 2


if __name__ == "__main__":
    main()
