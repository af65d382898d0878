# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks whose settings of the transport differ do not start, and are told why:
unequal_settings_test.py RANK_LOOP."""

import sys

import job


def main() -> int:
    for variable, value in (("ONEBIT_SOCKET_EAGER_BYTES", 1000), ("ONEBIT_SOCKET_EARLY_BYTES", 1000),
                            ("ONEBIT_SOCKET_SEAL", 1)):
        loop = [sys.argv[1], "3", "1000", "ef"]
        with job.Job([loop, ["env", f"{variable}={value}", *loop]]) as running:
            for rank in running.ranks:
                assert rank.exit_status() != 0, rank.lines
                assert any(variable in line for line in rank.lines), rank.lines
    return 0


if __name__ == "__main__":
    sys.exit(main())
