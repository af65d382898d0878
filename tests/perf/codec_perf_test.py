# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks that scripts rely on, briefly: codec_perf_test.py CODEC_PERF

Checks their names and counters, not how fast they are: machines are shared. Options that neither the tool nor Google
Benchmark knows are refused.
"""

import json
import subprocess
import sys

# The names and user counters that scripts read.
COUNTERS = {
    "EfCompress/fp32/block4096": {"gbps", "ceiling_share"},
    "EfCompressMultiPass/fp32": {"gbps", "fused_speedup"},
    "DecodeAverage/ranks8": {"gbps", "ceiling_share"},
    "Decode/fp32": {"gbps", "ceiling_share"},
}


def main() -> None:
    names = "|".join(COUNTERS)
    command = [sys.argv[1], f"--benchmark_filter=^({names})$", "--benchmark_min_time=0.001",
               "--benchmark_format=json"]
    print(" ".join(command), flush=True)
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=240, check=True)
    results = {result["name"]: result for result in json.loads(run.stdout)["benchmarks"]}
    assert results.keys() == COUNTERS.keys(), run.stdout
    for name, counters in COUNTERS.items():
        result = results[name]
        assert not result.get("error_occurred"), result
        for counter in counters:
            assert isinstance(result[counter], float) and result[counter] > 0, (name, counter, result)

    unknown = subprocess.run([sys.argv[1], "--no-such-option"], capture_output=True, text=True, timeout=60, check=False)
    assert unknown.returncode == 2 and "--no-such-option" in unknown.stderr, unknown


if __name__ == "__main__":
    main()
