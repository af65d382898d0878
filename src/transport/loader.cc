// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Opens plugins with dlopen and explains its failures.
#include "transport/loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "transport/transport.h"
#include "transport/variants.h"

namespace onebit {
namespace {

constexpr size_t kLongestName = 32;

// The folder of the object that holds this code, libonebit.so or a program; empty if unknown.
std::string FolderOfThisCode() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&FolderOfThisCode), &info) == 0 ||
      info.dli_fname == nullptr) {
    return "";
  }
  // dladdr may know a program by its name alone, without a folder; /proc has the whole path.
  std::error_code error;
  std::filesystem::path path(info.dli_fname);
  if (!path.has_parent_path()) path = std::filesystem::read_symlink("/proc/self/exe", error);
  return std::filesystem::absolute(path, error).parent_path().string();
}

std::string LastDlError() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

Status NotFound(std::string_view name, std::string_view file, std::span<const std::string> folders,
                std::string_view reason) {
  std::string places;
  for (const std::string& folder : folders) AppendFormat(&places, "{}, ", folder);
  return Error(Code::kInvalidArgument,
               "there is no transport \"{}\": {} is not in {}the system's library path ({}); "
               "install it, or name its folder in ONEBIT_PLUGIN_PATH",
               name, file, places, reason);
}

Result<const onebitTransport*> Check(void* handle, std::string_view name, std::string_view path) {
  const auto get =
      reinterpret_cast<onebitTransportGetFunction>(dlsym(handle, ONEBIT_TRANSPORT_SYMBOL));
  if (get == nullptr) {
    return Error(Code::kInvalidUsage, "{} is not a transport plugin: it has no symbol {}", path,
                 ONEBIT_TRANSPORT_SYMBOL);
  }
  const onebitTransport* functions = get();
  if (functions == nullptr) {
    return Error(Code::kInvalidUsage, "{} has no table of functions", path);
  }
  const auto properties = Transport::PropertiesOf(functions, nullptr);
  if (!properties.ok()) {
    return Error(properties.status().code(), "{}: {}; install a plugin of this library's version",
                 path, properties.status().text());
  }
  const char* own_name = properties.value().name;
  if (own_name == nullptr || own_name != name) {
    return Error(Code::kInvalidUsage, "{} says that its name is \"{}\", not \"{}\"", path,
                 own_name == nullptr ? "" : own_name, name);
  }
  return functions;
}

}  // namespace

bool IsTransportName(std::string_view name) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && name.size() <= kLongestName && is_letter(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

std::vector<std::string> PluginFolders(std::string_view plugin_path) {
  std::vector<std::string> folders;
  while (!plugin_path.empty()) {
    const std::string_view folder = plugin_path.substr(0, plugin_path.find(':'));
    plugin_path.remove_prefix(std::min(plugin_path.size(), folder.size() + 1));
    if (!folder.empty()) folders.emplace_back(folder);
  }
  // Packages keep plugins out of the folder of libraries, because no program links them.
  if (const std::string own = FolderOfThisCode(); !own.empty()) {
    folders.push_back(own);
    folders.push_back(own + "/onebit");
  }
  return folders;
}

std::vector<std::string> FindPlugins(std::span<const std::string> folders) {
  std::set<std::string> names;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      auto name = TransportOfFile(entry->path().filename().string());
      if (name) names.insert(std::move(*name));
    }
  }
  return {names.begin(), names.end()};
}

Result<const onebitTransport*> OpenPlugin(std::string_view name,
                                          std::span<const std::string> folders) {
  if (!IsTransportName(name)) {
    return Error(Code::kInvalidArgument,
                 "there is no transport \"{}\": a name is lower-case letters and digits", name);
  }
  ONEBIT_ASSIGN_OR_RETURN(const std::string file, PluginFile(name));
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + file;
    if (access(path.c_str(), F_OK) != 0) continue;
    // A broken plugin is an error, even if a later folder has another one.
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      return Error(
          Code::kSystemError,
          "transport {} cannot be opened: {}; install what it needs, or use another build of it",
          name, LastDlError());
    }
    return Check(handle, name, path);
  }
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return NotFound(name, file, folders, LastDlError());
  return Check(handle, name, file);
}

}  // namespace onebit
