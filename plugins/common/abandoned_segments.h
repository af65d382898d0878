// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Removes shared memory that killed processes have left behind.
#pragma once

#include <string>
#include <string_view>

namespace onebit::plugin {

// UCX gives its segments names for a moment only, but a process that is killed in that moment
// leaves up to 16 MiB.
inline constexpr std::string_view kUcxSegments = "ucx_shm_posix_";

// Removes the files of this user in `folder` whose names begin so and which no process has open,
// whatever container it runs in. Returns how many. Errors leave files where they are.
int RemoveAbandonedSegments(std::string_view prefix = kUcxSegments,
                            const std::string& folder = "/dev/shm");

}  // namespace onebit::plugin
