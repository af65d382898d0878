// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A file by which rank 0 tells the others where it waits, and the key of the job. Only its owner
// may read it.
#pragma once

#include <string>

#include "base/status.h"
#include "comm/unique_id.h"

namespace onebit {

// Replaces what is at `path` in one step. Returns the file's content.
Result<std::string> WriteRendezvousFile(const std::string& path, const UniqueId& id);

// Refuses files of other users, and those that others may read or write.
Result<UniqueId> ReadRendezvousFile(const std::string& path);

// If its content is still `content`; another job may have replaced it. Throws nothing.
void RemoveRendezvousFile(const std::string& path, const std::string& content) noexcept;

// Makes the folder of `path` for this user alone, or finds that it is.
Status MakePrivateFolderOf(const std::string& path);

}  // namespace onebit
