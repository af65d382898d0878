# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# Set-up shared by tests/run, perf/quickstart and .ci/run: packages, configure, build. Source it from
# the repository root.

# Names of the packages of the groups given, from the one list of them.
packages_of() {
  local groups="|$(IFS='|'; echo "$*")|"
  awk -v groups="$groups" '/^[^#]/ && index(groups, "|" $1 "|") && !seen[$2]++ { print $2 }' \
    cmake/debian-packages.txt
}

# Installs what is missing of the groups given. Without the right to do so it prints the line that
# somebody else can run, and fails.
install_packages() {
  local package missing=() prefix=()
  if ! command -v apt-get >/dev/null; then
    echo "This set-up knows Debian's apt only. Install these in your system's way, then give" >&2
    echo "--no-install: $(packages_of "$@" | xargs)" >&2
    return 1
  fi
  for package in $(packages_of "$@"); do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  if [ "$(id -u)" -ne 0 ]; then
    # Ask for a password only where there is somebody to type it.
    if [ -t 0 ]; then prefix=(sudo); else prefix=(sudo -n); fi
    if ! command -v sudo >/dev/null || ! "${prefix[@]}" true; then
      echo "Packages are missing and this user may not install them. As root, run:" >&2
      echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
      return 1
    fi
  fi
  prefix+=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
  echo "Installing ${#missing[@]} packages: ${missing[*]}"
  # Package lists may be absent (containers) or stale; an archive that cannot be reached shows below.
  "${prefix[@]}" update -q </dev/null || echo "apt-get update failed; trying the lists at hand" >&2
  "${prefix[@]}" install -q -y --no-install-recommends "${missing[@]}" </dev/null
}

# NVIDIA's compiler as PyPI has it, in parts of one release, and NCCL for tests that look at the real one.
cuda_wheels=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-nccl-cu13==2.28.9)
cuda_toolkit=build/cuda-toolkit

# Succeeds if this machine has an nvcc of its own that is new enough, where CMake looks for it.
has_nvcc() {
  local nvcc release
  for nvcc in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$(command -v nvcc)" /usr/local/cuda/bin/nvcc; do
    [ -x "$nvcc" ] || continue
    release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
    if printf '12.1\n%s\n' "$release" | sort --check=quiet --version-sort; then return 0; fi
  done
  return 1
}

# To compile kernels for GPUs needs no GPU, but nvcc. Where there is none it is fetched from PyPI into the
# build folder; nothing of the system changes but for Debian's pip.
install_cuda_toolkit() {
  if has_nvcc || [ -e "$cuda_toolkit/complete" ]; then return 0; fi
  python3 -m pip --version >/dev/null 2>&1 || install_packages cuda || return 1
  echo "Fetching nvcc and NCCL from PyPI into $cuda_toolkit"
  rm -rf "$cuda_toolkit"
  # Without what they depend on: these are all parts that compiling takes.
  python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-deps \
    --no-compile --only-binary=:all: --target "$cuda_toolkit" "${cuda_wheels[@]}" </dev/null &&
    touch "$cuda_toolkit/complete"
}

# Shows CMake what install_cuda_toolkit fetched.
use_cuda_toolkit() {
  if [ -e "$cuda_toolkit/complete" ] && ! has_nvcc; then
    export CUDA_HOME=$PWD/$cuda_toolkit/nvidia/cu13
  fi
}

# Number of compilers or tests to run at once.
job_count() { echo "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"; }

# configure_and_build PRESET [-DNAME=VALUE] [TARGET...]: what is up to date costs nothing.
configure_and_build() {
  local preset=$1 options=()
  shift
  if [[ ${1-} == -D* ]]; then options=("$1") && shift; fi
  use_cuda_toolkit
  cmake --preset "$preset" "${options[@]}" &&
    cmake --build --preset "$preset" -j "$(job_count)" ${1:+--target "$@"}
}
