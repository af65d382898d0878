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

# Number of compilers or tests to run at once.
job_count() { echo "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"; }

# configure_and_build PRESET [TARGET...]: what is up to date costs nothing.
configure_and_build() {
  local preset=$1
  shift
  cmake --preset "$preset" &&
    cmake --build --preset "$preset" -j "$(job_count)" ${1:+--target "$@"}
}
