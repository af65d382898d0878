// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Finds and opens transports that are shared objects of their own, libonebit-transport-NAME.so.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "onebit/transport.h"

namespace onebit {

// Lower-case letters and digits, a letter first; so no name can leave the folders of plugins.
bool IsTransportName(std::string_view name);

// Where plugins are looked for, in this order: the folders of `plugin_path` (colons between them),
// and the folder of the object that holds this code. After them comes what the system's loader
// searches, which has no list.
std::vector<std::string> PluginFolders(std::string_view plugin_path);

// Names of the plugins that lie in these folders, sorted; none is opened.
std::vector<std::string> FindPlugins(std::span<const std::string> folders);

// Opens the first plugin of that name and checks that it is one: its symbol, its ABI version, its
// name. It is never closed, because its functions may be called until the process ends. Any thread.
//
// kInvalidArgument: there is none. kSystemError: there is one, and it cannot be opened.
// kInvalidUsage: it is not a plugin for this library.
Result<const onebitTransport*> OpenPlugin(std::string_view name,
                                          std::span<const std::string> folders);

}  // namespace onebit
