// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Clears up after a launcher that was killed and cannot do it itself.
#pragma once

#include <sys/types.h>

#include <string>

#include "perf/common/child_process.h"

namespace onebit::perf {

// A process of its own that waits for the end of this one. If that comes before the destructor, it
// kills what was started, down to what wrapper scripts have started, and removes the folder. (The
// death signal of a child reaches the child alone.)
class JobGuard {
 public:
  // folder: "" if there is none. Make it before the first child. Throws ToolError.
  explicit JobGuard(const std::string& folder);
  // The regular end: there is nothing left to clear up.
  ~JobGuard();
  JobGuard(const JobGuard&) = delete;
  JobGuard& operator=(const JobGuard&) = delete;

  // Takes the number of one more process group to be killed, a pid_t. Closed on exec. Whoever leads
  // the group writes it before it starts anything: the launcher may die at any moment.
  int groups() const { return pipe_.number(); }

 private:
  Descriptor pipe_;
  pid_t process_ = 0;
};

}  // namespace onebit::perf
