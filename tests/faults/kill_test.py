# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Kills and stops one of 4 processes at a chosen message: kill_test.py FAULT_RANK [all]

Survivors must name the victim in time and hold whole residuals, over shared memory and over TCP. Without
"all" every phase has its turn once for each signal, by either way in turns. Then another one dies while the
survivors rebind.
"""

import sys

import fault_job
import job


def main() -> int:
    ways = [fault_job.Programs(sys.argv[1], "socket", variables)
            for variables in job.SOCKET_WAYS.values()]
    cases = fault_job.all_cases()
    if sys.argv[2:] != ["all"]:
        turn = {}
        for number, case in enumerate(cases):
            # 7 is coprime to the number of cases of a phase.
            turn.setdefault((case.how, case.phase), []).append((number * 7 % 10, number, case))
        cases = [min(of_phase)[2] for of_phase in turn.values()]
    for number, case in enumerate(cases):
        for programs in ways if sys.argv[2:] == ["all"] else [ways[number % 2]]:
            seconds = fault_job.check(programs, case)
            print(f"{case}: all survivors know after {seconds:.2f} s", flush=True)
    for exchanges in (1, 2):
        for number, words in enumerate(("message=0", "message=1", "message=3 after=1")):
            fault_job.check_rebind(ways[(number + exchanges) % 2], exchanges, words)
            print(f"killed in a rebind ({words}), {exchanges} exchange(s): the others go on", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
