// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Names of files that differ from process to process, from a setting that is equal in all of them.
#pragma once

#include <optional>
#include <string>

namespace onebit {

// Replaces %h by the host, %p by the process id and, if `rank` is given, %r by the rank. After a
// percent sign any other character stands for itself.
std::string ExpandPath(const std::string& pattern, std::optional<int> rank = std::nullopt);

// True if the pattern contains %`letter`.
bool HasPlaceholder(const std::string& pattern, char letter);

std::string HostName();

}  // namespace onebit
