# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Kills and stops one of 4 processes at a chosen message: kill_test.py FAULT_RANK PLUGIN_PATH [all]

Survivors must name the victim in time and hold whole residuals. Without "all" every phase has its
turn once for each signal. Then another one dies while the survivors rebind.
"""

import sys

import fault_job


def main() -> int:
    programs = fault_job.Programs(*sys.argv[1:3])
    cases = fault_job.all_cases()
    if sys.argv[3:] != ["all"]:
        turn = {}
        for number, case in enumerate(cases):
            # 7 is coprime to the number of cases of a phase.
            turn.setdefault((case.how, case.phase), []).append((number * 7 % 10, number, case))
        cases = [min(of_phase)[2] for of_phase in turn.values()]
    for case in cases:
        seconds = fault_job.check(programs, case)
        print(f"{case}: all survivors know after {seconds:.2f} s", flush=True)
    for exchanges in (1, 2):
        for words in ("message=0", "message=1", "message=3 after=1"):
            fault_job.check_rebind(programs, exchanges, words)
            print(f"killed in a rebind ({words}), {exchanges} exchange(s): the others go on", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
