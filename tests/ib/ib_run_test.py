# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""tests/ib/run without RDMA: says so, or measures two hosts of perf/lab over TCP: ib_run_test.py ROOT BUILD"""

import json
import pathlib
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "processes"))

import hosts  # pylint: disable=wrong-import-position


def main() -> int:
    root, build = map(pathlib.Path, sys.argv[1:])
    tool = [str(root / "tests" / "ib" / "run"), "--build", str(build)]

    def check(two: hosts.TwoHosts) -> None:
        other = two.on(1, [])
        arguments = ["--rsh", shlex.join(other[:-1]), "--address", two.addresses[0], other[-1]]
        plain = subprocess.run(two.on(0, [*tool, *arguments]), capture_output=True, text=True, check=False)
        assert plain.returncode == 77 and "no active RDMA port on this host and" in plain.stderr, plain
        done = subprocess.run(two.on(0, [*tool, *arguments, "--without-rdma", "--sweep=-b 64K -e 64K -n 2"]),
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
        report = json.loads((build / "ib.json").read_text(encoding="utf-8"))
        for part in ("ucx dense", "ucx ef", "socket dense", "socket ef", "ucx rendezvous dense"):
            assert report[part]["results"][0]["out_of_place"]["nwrong"] == 0, report[part]
        assert report["results"]["equal_calls"] > 50, report
        print(done.stdout)

    return hosts.run(check)


if __name__ == "__main__":
    sys.exit(main())
