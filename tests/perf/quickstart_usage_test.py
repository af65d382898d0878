# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A folder without tools is refused before anything is written, and a second run shows its own
figures: quickstart_usage_test.py SOURCE_DIR ALL_REDUCE_PERF TRAIN_TEXT ONEBIT_RUN"""

import pathlib
import re
import subprocess
import sys
import tempfile


def main() -> None:
    script = pathlib.Path(sys.argv[1]) / "perf" / "quickstart"
    with tempfile.TemporaryDirectory() as folder:
        own = pathlib.Path(folder) / "quickstart"  # of somebody else
        own.write_text("keep")
        for options, text in [
            (["--build", folder], "has no all_reduce_perf"),
            (["--build", f"{folder}/absent"], "has no all_reduce_perf"),
            (["--build"], "--build needs a folder"),
            (["--fast"], "usage:"),
        ]:
            result = subprocess.run([script, "--quick", "--no-install", *options],
                                    capture_output=True, text=True, timeout=60)
            assert result.returncode == 2 and text in result.stderr, (options, result)
        assert [path.name for path in pathlib.Path(folder).iterdir()] == ["quickstart"]
        assert own.read_text() == "keep"

        build = pathlib.Path(folder) / "build"
        (build / "perf").mkdir(parents=True)
        for tool in sys.argv[2:]:
            (build / "perf" / pathlib.Path(tool).name).symlink_to(tool)
        earlier = build / "quickstart.out" / "sweep-threads-ef.json"
        earlier.parent.mkdir()
        earlier.write_text("of an earlier run")
        result = subprocess.run([script, "--quick", "--no-install", "--build", build],
                                capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result
        assert "4 threads" in result.stdout and "256 KiB" in result.stdout, result
        # Processes, or why there are none.
        assert ("4 processes" in result.stdout) != ("leaving out ranks" in result.stderr), result
        # Hosts with several ranks, or why there are none.
        has_hosts = "2 hosts x 2, 1 Gbit/s" in result.stdout
        assert has_hosts != ("leaving out hosts with several ranks" in result.stderr), result
        lines = re.findall(r"^\[(\d)/(\d)\] about \d+ s left: .*/perf/\w+ ", result.stderr, re.MULTILINE)
        runs = (8 if "4 processes" in result.stdout else 4) + has_hosts
        assert lines == [(str(number), str(runs)) for number in range(1, runs + 1)], result.stderr
        assert "earlier" not in earlier.read_text()
        assert not list(earlier.parent.glob("*.json.*"))


if __name__ == "__main__":
    main()
