// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Slurm's compact notation of host names, as in SLURM_JOB_NODELIST: "rack[1-2]n[01-16,20],login".
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace onebit {

// The first host of `list`. The whole list is read, so that one with a mistake anywhere is an error
// (kInvalidUsage) instead of a host name that only looks right.
//
//   list    = entry { "," entry }
//   entry   = { text | "[" range { "," range } "]" }    at least one; each bracket multiplies
//   range   = number [ "-" number ]                      the second is not smaller
//
// A number keeps its leading zeros: the first host of "n[01-04]" is n01.
Result<std::string> FirstSlurmHost(std::string_view list);

}  // namespace onebit
