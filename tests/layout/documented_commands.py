# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Makes sure that every command of README.md and docs/ works.

    documented_commands.py ROOT BUILD_FOLDER

docs/several-hosts.md needs hosts, and has a test of its own: tests/perf/hosts_guide_test.py. Of the other pages
each command of a ```sh block must be in COMMANDS below, and nothing may be there that no page says.
Most are run here, long ones in a reduced form; the rest names the script that runs it.
"""

import pathlib
import subprocess
import sys

from markdown_files import code_blocks, user_pages


class Run(str):
    """A command for the shell, at the root of the project; {build} is the build folder."""


class RunWhereAble(Run):
    """The same; where this user or machine lacks network namespaces or matplotlib, it ends with UNAVAILABLE."""

    UNAVAILABLE = 77


class RunBy:
    """A script of the project that runs the command, and how it says so."""

    def __init__(self, script: str, text: str):
        self.script, self.text = script, text


SCHEDULE = ("--steps 0:99 --algorithm zero-one-adam --var-freeze-step 40 --var-update-scaler 4 "
            "--local-step-scaler 16 --local-step-clipper 8")

ALIGN = ('map((map(select(.name == "onebit_clock"))[0].args | (.unix_ns - .steady_ns) / 1000) as $shift | '
         'map(if .ts then .ts += $shift else . end)) | add')

COMMANDS = {
    f"build/release/perf/onebit_schedule {SCHEDULE}": Run(f"{{build}}/perf/onebit_schedule {SCHEDULE}"),
    "./perf/quickstart": Run("./perf/quickstart --quick --no-install --build {build}"),
    "./tests/run": RunBy(".ci/run", "tests/run --no-install"),
    "cmake --preset release": RunBy("tests/setup.sh", 'cmake --preset "$preset"'),
    "cmake --build --preset release": RunBy("tests/setup.sh", 'cmake --build --preset "$preset"'),
    "cmake --install build/release --prefix /usr/local":
        RunBy("tests/package/install_test", '"$cmake" --install "$build" --prefix'),
    "cc -std=c11 demo.c $(pkg-config --cflags --libs onebit) -o demo":
        RunBy("tests/package/install_test", "pkg-config --cflags --libs onebit"),
    "onebit_run -n 4 ./demo": RunBy("tests/layout/readme_program.py", '[*launcher, "-n", "4", binary]'),
    "build/release/perf/all_reduce_perf --procs 4 -b 1M -e 64M -f 4 --mode ef":
        Run("{build}/perf/all_reduce_perf --procs 4 -b 1K -e 64K -f 4 --mode ef -n 2"),
    "build/release/perf/train_text --procs 4 --optimizer onebit-adam --steps 500":
        Run("{build}/perf/train_text --procs 4 --optimizer onebit-adam --steps 5 --batch 4 "
                     "--hidden 16,16"),
    "build/release/perf/train_text --procs 4 --steps 500 --survive 2@250":
        Run("{build}/perf/train_text --procs 4 --steps 8 --batch 4 --hidden 16,16 --survive 2@4"),
    "build/release/perf/reduce_scatter_perf --procs 4 -b 1M -e 16M -f 4 --codec fp4 -c 1":
        Run("{build}/perf/reduce_scatter_perf --procs 4 -b 1K -e 64K -f 8 --codec fp4 -c 1 -n 2"),
    "build/release/perf/alltoallv_perf --procs 4 -b 1M -e 16M -f 4 --codec int8 --block 1024":
        Run("{build}/perf/alltoallv_perf --procs 4 -b 16K -e 256K -f 16 --codec int8 --block 1024 -n 2"),
    "build/release/perf/examples/federated scallion": Run("{build}/perf/examples/federated scallion"),
    "build/release/perf/examples/variational masha2": Run("{build}/perf/examples/variational masha2"),
    "onebit_run -n 4 python perf/examples/parallel/ulysses.py src/codec/FORMAT.md":
        RunBy("tests/python/parallel_examples_test.py", 'Found("ulysses")'),
    "onebit_run -n 4 python perf/examples/parallel/moe.py src/codec/FORMAT.md":
        RunBy("tests/python/parallel_examples_test.py", 'Found("moe")'),
    "onebit_run -n 4 python perf/examples/parallel/ring_attention.py src/codec/FORMAT.md":
        RunBy("tests/python/parallel_examples_test.py", 'Found("ring_attention")'),
    "onebit_run -n 4 python perf/examples/parallel/gnnpipe.py src/codec/FORMAT.md":
        RunBy("tests/python/parallel_examples_test.py", 'Found("gnnpipe")'),
    "build/release/perf/group_perf --procs 4":
        Run("{build}/perf/group_perf --procs 4 --tensors 20 --max-elements 2000"),
    "./perf/lab run --hosts 4 --rate 1gbit -- build/release/perf/train_text --steps 40 --batch 256 --optimizer adam --transport socket --overlap":
        RunWhereAble("./perf/lab run --hosts 2 --rate 1gbit -- {build}/perf/train_text --steps 3 --batch 4 "
                     "--hidden 16,16 --optimizer adam --transport socket --overlap"),
    "build/release/perf/soak --procs 4 --seconds 60": RunBy("tests/studies/CMakeLists.txt", "soak_ranks_socket --procs 4"),
    "./perf/compare": Run(
        "rm -f {build}/documented.json && ./perf/compare --build {build} --links shm --hosts 2 --sizes 1K "
        "--systems onebit-dense,onebit-ef --repetitions 1 --output {build}/documented.json"),
    "./perf/report build/release/compare.json --html build/release/compare.html --update docs/performance.md":
        RunWhereAble("cp docs/performance.md {build}/documented.md && PATH=/usr/bin:$PATH ./perf/report "
                     "{build}/documented.json --html {build}/documented.html --update {build}/documented.md"),
    "./perf/compare --ranks-per-host 4 --hosts 4 --links 100mbit --sizes 4M --output build/release/shared.json":
        RunWhereAble("rm -f {build}/shared.json; ./perf/lab run --hosts 2 --rate 1gbit --build {build} -- true || exit $?; "
                     "./perf/compare --build {build} --ranks-per-host 2 --hosts 2 --links 1gbit --sizes 64K --systems "
                     "onebit-dense,onebit-ef,onebit-fp4 --repetitions 1 --output {build}/shared.json"),
    "./perf/report build/release/shared.json --markdown":
        RunWhereAble("[ -e {build}/shared.json ] || exit 77; ./perf/report {build}/shared.json --markdown"),
    "./perf/lab run --hosts 4 --rate 1gbit -- build/release/perf/all_reduce_perf -b 64M -e 64M "
    "--transport socket --mode ef -c 1":
        RunWhereAble("./perf/lab run --hosts 4 --rate 1gbit -- {build}/perf/all_reduce_perf -b 64K -e 64K "
                     "--transport socket --mode ef -c 1"),
    "build/release/perf/codec_perf": RunBy("tests/perf/codec_perf_test.py", "sys.argv[1]"),
    "./perf/studies/time_to_loss --hosts 4 --rates 100mbit,1gbit":
        RunBy("tests/studies/time_to_loss_test.py", 'str(STUDIES / "time_to_loss")'),
    "./perf/replay": RunWhereAble("./perf/replay --build {build} --quick --rows InfiniBand"),
    "./tests/gpu/make-deps": RunBy("tests/gpu/run_test.py", 'FOLDER / "make-deps"'),
    "./tests/gpu/run": RunBy("tests/gpu/run_test.py", 'FOLDER / "run"'),
    "./tests/gpu/run --pack build/pack": RunBy("tests/gpu/gpu_pack_test.py", '"--pack", str(packed)'),
    "./tests/gpu/run --no-build --build build/pack --deps build/pack --out out --quick":
        RunBy("tests/gpu/gpu_pack_test.py", '"--build", str(packed), "--deps", str(packed)'),
    "./tests/ib/run OTHER_HOST": RunBy("tests/ib/ib_run_test.py", 'root / "tests" / "ib" / "run"'),
    "ONEBIT_UCX_NET_DEVICES=mlx5_0:1 build/release/perf/onebit_run --hosts a,b build/release/perf/all_reduce_perf "
    "--transport ucx -b 1M -e 256M -f 4 --mode ef -c 1":
        Run("ONEBIT_UCX_TLS=tcp ONEBIT_UCX_NET_DEVICES=lo {build}/perf/onebit_run -n 2 {build}/perf/all_reduce_perf "
            "--transport ucx -b 64K -e 64K --mode ef -c 1"),
    "ONEBIT_TRACE=trace.%r.json onebit_run -n 4 onebit_all_reduce_perf -b 4M -e 4M --mode ef":
        Run("ONEBIT_TRACE={build}/documented.%r.json {build}/perf/onebit_run -n 4 {build}/perf/all_reduce_perf "
            "-b 64K -e 64K --mode ef -n 2"),
    f"jq -s '{ALIGN}' trace.*.json > all.json":  # each file has the clock of its process
        Run(f"jq -s '{ALIGN}' {{build}}/documented.?.json > {{build}}/documented_all.json && [ $(jq "
            "'map(select(.ts and .ts < 1.7e15)) | length' {build}/documented_all.json) = 0 ]"),
    "build/release/perf/onebit_info": Run("{build}/perf/onebit_info"),
    "mpirun -np 4 build/release/perf/all_reduce_perf --transport mpi --mode ef":
        RunBy("tests/mpi/sweep_test.py", '"--transport", "mpi"'),
    "ONEBIT_NCCL_RULES=default ONEBIT_NCCL_STATS=stderr LD_PRELOAD=/usr/lib/libonebit-nccl-preload.so "
    "torchrun --nproc-per-node 8 train.py":
        RunBy("tests/ecosystem/nccl_clients_test.py", 'preload, ONEBIT_NCCL_RULES="default"'),
    "python -c 'import onebit, os; print(os.path.dirname(onebit.library_path()))'":
        RunBy(".ci/ecosystem", "-c 'import onebit, os; print(os.path.dirname(onebit.library_path()))'"),
    "torchrun --nproc-per-node 4 train.py":
        RunBy("tests/ecosystem/torchrun_test.py", '"--nproc-per-node", "4"'),
    "torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint host0:29500 train.py":
        RunBy("tests/ecosystem/torchrun_test.py", '"--rdzv-backend", "c10d"'),
    "ONEBIT_TORCH_DDP=fp4 torchrun --nproc-per-node 4 train.py":
        RunBy("tests/python/torch_ddp_variable_test.py", '"torch.distributed.run", "--nproc-per-node"'),
    "onebit_run -n 4 --ddp fp4 python train.py":
        RunBy("tests/python/torch_ddp_variable_test.py", '"--ddp", "fp4,dense_iterations=1"'),
}


def commands_of(page: str) -> list[str]:
    """The lines of the page's ```sh blocks, without comments; a backslash joins a line to the next."""
    lines = [line for language, content in code_blocks(page) if language == "sh"
             for line in content.replace("\\\n", " ").splitlines()]
    commands = [" ".join(line.split("  #")[0].split()) for line in lines]
    return [command for command in commands if command]


def problem_with(root: pathlib.Path, build: str, how: Run | RunBy) -> str | None:
    if isinstance(how, RunBy):
        return None if how.text in (root / how.script).read_text() else f"{how.script} does not run it"
    run = subprocess.run(how.format(build=build), shell=True, cwd=root, text=True, timeout=240,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         check=False)
    if isinstance(how, RunWhereAble) and run.returncode == RunWhereAble.UNAVAILABLE:
        print(run.stdout)
        return None
    return f"exit status {run.returncode}\n{run.stdout}" if run.returncode else None


def main() -> int:
    root, build = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    said = {command: page.relative_to(root) for page in user_pages(root) if page.name != "several-hosts.md"
            for command in commands_of(page.read_text(encoding="utf-8"))}
    problems = [f"{command}: no page says so any more" for command in COMMANDS if command not in said]
    for command, page in said.items():
        if command not in COMMANDS:
            problems.append(f"{page}: {command}: not in COMMANDS of tests/layout/documented_commands.py")
            continue
        problem = problem_with(root, build, COMMANDS[command])
        print(f"{'FAILED' if problem else 'ok':6} {page}: {command}", flush=True)
        if problem:
            problems.append(f"{page}: {command}: {problem}")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
