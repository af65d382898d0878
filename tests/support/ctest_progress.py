# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs ctest, and says how long it takes and where it is: ctest_progress.py BUILD_FOLDER CTEST ARGUMENT...

CTest keeps what each test took in former runs. How much of that passes in a second depends on the machine and
on what else it does, so it is measured while the tests run; the pace of the last run is the first guess.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import time

SECONDS_BETWEEN_LINES = 30
LISTED = re.compile(r"^ *Test +#\d+: (\S+)", re.MULTILINE)
ENDED = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+)")
ENOUGH = 0.05  # of all work, before its own pace counts


def read_costs(build: pathlib.Path) -> dict[str, float]:
    """Seconds that each test took, by name; empty before the first run."""
    try:
        lines = (build / "Testing" / "Temporary" / "CTestCostData.txt").read_text("utf-8").splitlines()
    except OSError:
        return {}
    rows = (line.rsplit(" ", 2) for line in lines[: lines.index("---") if "---" in lines else None])
    return {name: float(seconds) for name, runs, seconds in rows if int(runs) > 0}


def text_of(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Progress:
    """Tests to be run, those done, and an estimate of the time that the others take."""

    def __init__(self, names: list[str], costs: dict[str, float], pace: float | None):
        known = [costs[name] for name in names if name in costs]
        mean = sum(known) / len(known) if known else 1.0
        self._costs = {name: costs.get(name, mean) for name in names}
        self._pace = pace  # seconds of tests in a second
        self._all = sum(self._costs.values())
        self._left = set(names)

    def end(self, name: str) -> None:
        self._left.discard(name)

    @property
    def done(self) -> float:
        """Seconds of the tests that have ended."""
        return self._all - sum(self._costs[name] for name in self._left)

    def seconds_left(self, elapsed: float) -> float | None:
        """None: nobody can know yet."""
        done = self.done
        pace = done / elapsed if elapsed > 0 and done >= ENOUGH * self._all else self._pace
        return None if pace is None else (self._all - done) / pace

    def line(self, elapsed: float) -> str:
        left = self.seconds_left(elapsed)
        estimate = "no estimate yet" if left is None else f"about {text_of(left)} left"
        count = len(self._costs)
        return f"-- {count - len(self._left)} of {count} tests, {text_of(elapsed)} so far, {estimate}"


def main(arguments: list[str]) -> int:
    build, command = pathlib.Path(arguments[0]), arguments[1:]
    listed = subprocess.run([*command, "-N"], stdout=subprocess.PIPE, text=True, check=False)
    names = LISTED.findall(listed.stdout)
    pace_file = build / "tests.pace"
    pace = json.loads(pace_file.read_text()) if pace_file.exists() else None
    progress = Progress(names, read_costs(build), pace)
    print(progress.line(0), flush=True)
    begin = said = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as tests:
        for line in tests.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            ended = ENDED.match(line)
            if ended is None:
                continue
            progress.end(ended[1])
            now = time.monotonic()
            if now - said >= SECONDS_BETWEEN_LINES:
                said = now
                print(progress.line(now - begin), flush=True)
    if progress.done > 0:
        pace_file.write_text(json.dumps(progress.done / (time.monotonic() - begin)))
    return tests.returncode if tests.returncode >= 0 else 128 - tests.returncode


if __name__ == "__main__":
    # ctest gets the terminal's signals as well, and ends as it sees fit.
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
