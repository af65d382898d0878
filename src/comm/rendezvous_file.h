// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A file with which rank 0 publishes its address and the job's key. Only its owner may read it.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "comm/unique_id.h"

namespace onebit {

// Fails if the process that a file names, possibly one of a job that has ended, still needs it.
using CheckFormer = std::function<Status(const UniqueId&)>;

// Makes the file in one step, in place of one that `check_former` accepts as free. Returns its
// content.
Result<std::string> WriteRendezvousFile(const std::string& path, const UniqueId& id,
                                        const CheckFormer& check_former);

// Refuses files of other users, and those that others may read or write.
Result<UniqueId> ReadRendezvousFile(const std::string& path);

// Removes the file if its content is still `content`; another job may have replaced it. Does not
// throw.
void RemoveRendezvousFile(const std::string& path, const std::string& content) noexcept;

// Creates the folder of `path` for this user alone, or checks that it is private.
Status MakePrivateFolderOf(const std::string& path);

}  // namespace onebit
