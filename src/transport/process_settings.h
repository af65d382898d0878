// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The settings table of this process: the library's own rows and those that transports declare.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/settings.h"
#include "base/status.h"

namespace onebit {

// Reads the environment and sets up the log at the first call, and never again. An error (a value
// that does not parse, a log file that cannot be opened) names its variable and stays for the life
// of the process. The first call that succeeds logs a warning for each unknown ONEBIT_* variable.
// Thread-safe.
//
// A plugin is opened here only if the environment may hold a variable for it: if ONEBIT_X_... is
// neither the library's nor that of a known transport, and there is a plugin x.
Result<const SettingsTable*> ProcessSettings();

// The same table with the rows of all plugins that can be found, for display. It opens them all; a
// plugin that cannot be opened has no rows here and a line in the log.
Result<const SettingsTable*> ListedSettings();

// Names of the transports that are linked in, then of the plugins that were found, each sorted.
std::vector<std::string> ListedTransports();

// Folders in which this process looks for plugins; without plugin_path when the settings are in
// error.
std::vector<std::string> ProcessPluginFolders();

// The environment as it was when the library first looked at it. Lives as long as the process.
std::span<const char* const> EarlyEnvironment();

}  // namespace onebit
