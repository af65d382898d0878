// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Finds and opens plugins: transports in a shared object libonebit-transport-NAME.so.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "onebit/transport.h"

namespace onebit {

// True for lower-case letters and digits, a letter first. No such name leads out of a folder.
bool IsTransportName(std::string_view name);

// The folders that are searched for plugins, in this order: those of `plugin_path` (colons between
// them), then the folder of the object that holds this code, and the folder `onebit` in it. The
// search path of the system's loader follows, but cannot be listed.
std::vector<std::string> PluginFolders(std::string_view plugin_path);

// Names of the plugins in these folders, sorted. Opens none.
std::vector<std::string> FindPlugins(std::span<const std::string> folders);

// Opens the first plugin of that name and checks its symbol, its ABI version and its name. It is
// never closed, because its functions may be called until the process ends. Thread-safe.
//
// Errors: kInvalidArgument, there is no such plugin; kSystemError, it cannot be opened;
// kInvalidUsage, it is not a plugin for this library.
Result<const onebitTransport*> OpenPlugin(std::string_view name,
                                          std::span<const std::string> folders);

}  // namespace onebit
