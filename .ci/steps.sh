# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# The frame of .ci/run and .ci/ecosystem: named steps, one after another, and the count of what passed. Source
# it from the repository root.

# Kernels are compiled for one GPU: a minute for each of the others would find the same mistakes.
use_one_gpu() { export CUDAARCHS=90; }

# Prints the comment at the head of a script, from its fourth line on.
print_head() { awk 'NR > 3 { if (!sub(/^# ?/, "")) exit; print }' "$1"; }

# Tests that failed and what they wrote, or how the log of a step ends: it is the end of a long output
# that is read.
failed_tests() {
  local found
  found=$(awk '/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / { show = /\*\*\*/ && !/Skipped/ }
       /^ *Start +[0-9]+: / || /^[0-9]+% tests passed/ { show = 0 }
       show' "$1")
  if [ -n "$found" ]; then tail -c 4000 <<<"$found"; else tail -n 20 "$1"; fi
}

# run_steps SCRIPT LIMIT STEP...: each step in a shell of its own, as `SCRIPT --step STEP`, stopped after
# LIMIT. all_steps has the names that there are, and those to take if none is given. Prints a summary; the
# last line is "N passed, M failed".
run_steps() {
  local script=$1 limit=$2 step begin status passed failed line log
  local total_passed=0 total_failed=0 summary='' failures=''
  shift 2
  [ $# -gt 0 ] || set -- "${all_steps[@]}"
  for step in "$@"; do
    if [[ " ${all_steps[*]} " != *" $step "* ]]; then
      echo "no step $step; there are: ${all_steps[*]}" >&2
      return 2
    fi
  done
  mkdir -p build
  for step in "$@"; do
    printf '\n==== %s\n' "$step"
    begin=$SECONDS
    status=0
    log=build/ci-$step.log
    timeout -k 30 "$limit" "$script" --step "$step" </dev/null 2>&1 | tee "$log" || status=$?
    # A step that fails without saying how much of it failed is one failure.
    passed=0 failed=0
    if [[ $(tail -n 1 "$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
      passed=${BASH_REMATCH[1]} failed=${BASH_REMATCH[2]}
    fi
    if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
    # Tests that failed at first and passed alone are shown as well: somebody should know.
    if [ "$failed" -ne 0 ] || grep -q '^what failed, once more' "$log"; then
      failures+=$'\n'"==== what failed in $step"$'\n'"$(failed_tests "$log")"$'\n'
    fi
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    printf -v line '%-10s %5d passed %5d failed %6d s\n' "$step" "$passed" "$failed" $((SECONDS - begin))
    summary+=$line
  done
  printf '%s\n==== summary\n%s\n' "$failures" "$summary"
  echo "$total_passed passed, $total_failed failed"
  [ "$total_failed" -eq 0 ]
}
