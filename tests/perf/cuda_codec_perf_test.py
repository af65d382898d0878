# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""codec_perf on a device: cuda_codec_perf_test.py CODEC_PERF STAND_IN_OF_CUDA

Names, counters and errors. On a stand-in, whose kernels run on the host, figures mean nothing.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

NAMES = {
    "EfCompress/fp32/block4096", "EfCompress/fp32/block64", "EfCompress/fp32/block1024",
    "EfCompress/fp32/block65536", "EfCompress/fp16/block4096", "EfCompress/bf16/block4096",
    "Sign/fp32/block4096", "ServerReduce/ranks8", "DecodeAverage/ranks8", "Decode/fp32",
    "Decode/bf16", "DenseReduce/ranks4", "Checksum", "AdamDense/fp32", "AdamFrozen/fp32",
    "Fp4Compress", "Fp4EfCompress", "Int8Compress", "Int2EfCompress", "Fp4Decode", "Int8Decode", "Int2Decode",
    *(f"LowBit{kernel}/ranks8/{codec}" for kernel in ("Average", "Reduce") for codec in ("fp4", "int8", "int2")),
}


def run(tool: str, folder: str, *options: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([tool, *options], capture_output=True, text=True, timeout=240,
                          env={**os.environ, "LD_LIBRARY_PATH": folder, **environment})


def main() -> None:
    tool, stand_in = sys.argv[1:]
    folder = str(pathlib.Path(stand_in).parent)
    done = run(tool, folder, "--device", "cuda:1", "--megabytes=1", "--benchmark_min_time=0.001",
               "--benchmark_format=json", CUDA_STAND_IN_DEVICES="2")
    assert done.returncode == 0, done
    results = {result["name"]: result for result in json.loads(done.stdout)["benchmarks"]}
    assert results.keys() == NAMES, sorted(results)
    for name, result in results.items():
        assert not result.get("error_occurred"), result
        for counter in ("gbps", "moved_gbps", "copy_gbps", "ceiling_share"):
            assert isinstance(result[counter], float) and result[counter] > 0, (name, counter, result)
        assert abs(result["moved_gbps"] / result["copy_gbps"] - result["ceiling_share"]) < 1e-6, result
    # Each element costs 8 bytes of reading, and 4 and a bit of writing, besides scales.
    compress = results["EfCompress/fp32/block4096"]
    assert 3.03 < compress["moved_gbps"] / compress["gbps"] < 3.04, compress
    # Eight packets of 4 bits and of a scale of 2 bytes for 128 elements, and 4 bytes written.
    average = results["LowBitAverage/ranks8/fp4"]
    assert abs(average["moved_gbps"] / average["gbps"] - (8 * (0.5 + 2 / 128) + 4) / 4) < 1e-3, average

    with tempfile.TemporaryDirectory() as broken:
        (pathlib.Path(broken) / "libcuda.so.1").touch()
        none = run(tool, broken, "--device", "cuda")
    assert none.returncode == 77 and none.stderr.count("\n") == 1, none
    assert "no CUDA: its driver cannot be loaded" in none.stderr, none
    for wrong in (["--device", "gpu"], ["--device"], ["--megabytes", "0"]):
        done = run(tool, folder, *wrong)
        assert done.returncode == 2 and wrong[0] in done.stderr, done


if __name__ == "__main__":
    main()
