// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Cleans up after a launcher that was killed and cannot do it itself.
#pragma once

#include <sys/types.h>

#include <string>

#include "perf/common/child_process.h"

namespace onebit::perf {

// A separate process that waits for the end of this one. If this process ends before the destructor
// runs, the guard kills the job's process groups, including whatever wrapper scripts have started,
// and removes the folder. (The death signal of a child reaches the child alone.)
class JobGuard {
 public:
  // folder: "" if there is none. Construct the guard before the first child. Throws ToolError.
  explicit JobGuard(const std::string& folder);
  // The regular end: nothing is left to clean up.
  ~JobGuard();
  JobGuard(const JobGuard&) = delete;
  JobGuard& operator=(const JobGuard&) = delete;

  // Accepts the number of one more process group to be killed, a pid_t. Closed on exec. The leader
  // of the group writes it before it starts anything, because the launcher may die at any moment.
  int groups() const { return pipe_.number(); }

 private:
  Descriptor pipe_;
  pid_t process_ = 0;
};

}  // namespace onebit::perf
