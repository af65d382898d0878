# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Which ranks share a host: those on one machine, unless a variable says otherwise: same_host_test.py RANK_LOOP."""

import json
import pathlib
import re
import sys
import tempfile

import job


def commands(loop: str, words: str) -> list[list[str]]:
    """A rank for each letter, which is its ONEBIT_HOST; '-': it has none."""
    command = [loop, "2", "1000", "ef"]
    return [command if word == "-" else ["env", f"ONEBIT_HOST={word}", *command] for word in words]


def check_hosts(loop: str, words: str, text: str, hosts: list[int], **variables: str):
    """All ranks log the same hosts, and their traces say on which one each is."""
    with tempfile.TemporaryDirectory(prefix="onebit-test-") as folder:
        variables |= {"ONEBIT_DEBUG": "INFO", "ONEBIT_TRACE": f"{folder}/%r.json"}
        with job.Job(commands(loop, words), **variables) as running:
            for number, rank in enumerate(running.ranks):
                assert rank.exit_status() == 0, rank.lines
                expected = rf"rank {number} of {len(words)} on {text}, transport socket"
                assert any(re.search(expected, line) for line in rank.lines), (expected, rank.lines)
        for number, host in enumerate(hosts):
            events = json.loads(pathlib.Path(folder, f"{number}.json").read_text())
            rows = [event["args"] for event in events if event["name"] == "thread_name"]
            name = f"rank {number}: calls" if len(set(hosts)) == 1 else f"rank {number}, host {host}: calls"
            assert any(row["name"].startswith(name) for row in rows), rows
            assert {(row["rank"], row["host"], row["hosts"]) for row in rows} == {(number, host, len(set(hosts)))}, rows


def check_mismatch(loop: str, words: str, text: str):
    with job.Job(commands(loop, words)) as running:
        for rank in running.ranks:
            assert rank.exit_status() != 0, rank.lines
            assert any(text in line for line in rank.lines), (text, rank.lines)


def main() -> int:
    loop = sys.argv[1]
    check_hosts(loop, "---", "1 host of 3 ranks", [0, 0, 0])
    check_hosts(loop, "baab", "2 hosts of 2 ranks", [0, 1, 1, 0])
    check_hosts(loop, "---", "2 hosts of 2 and 1 ranks", [0, 0, 1], ONEBIT_HOST_RANKS="2")
    check_hosts(loop, "aaa", "1 host of 3 ranks", [0, 0, 0], ONEBIT_HOST_RANKS="2")
    check_mismatch(loop, "aa-", 'ONEBIT_HOST differs between ranks: rank 0 has "a", rank 2 has none')
    return 0


if __name__ == "__main__":
    sys.exit(main())
