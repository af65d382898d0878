// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Small files that hold a secret.
#pragma once

#include <string>

#include "base/status.h"

namespace onebit {

// Returns the content of a regular file of this user, up to 4096 bytes, that nobody else may read
// or write. Errors name the path and what to do.
Result<std::string> ReadPrivateFile(const std::string& path);

// Like ReadPrivateFile, but errors are kInvalidUsage and name ONEBIT_SECRET_FILE. White space at
// the end is kept.
Result<std::string> ReadSecretFile(const std::string& path);

}  // namespace onebit
