// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The transports of this process. Each is opened and started once, at first use.
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

#include "plugins/transport_local/local_transport.h"
#include "plugins/transport_socket/socket_transport.h"
#include "transport/loader.h"
#include "transport/process_settings.h"
#include "transport/transport.h"

namespace onebit {
namespace {

struct BuiltIn {
  std::string_view name;
  const onebitTransport* (*functions)();
};

constexpr std::array kBuiltIns = {BuiltIn{"local", local::Functions},
                                  BuiltIn{"socket", sockets::Functions}};

class TransportRegistry {
 public:
  TransportRegistry() {
    for (const BuiltIn& built_in : kBuiltIns) {
      entries_.push_back({.name = std::string(built_in.name), .functions = built_in.functions()});
    }
  }

  Result<const onebitTransport*> Open(std::string_view name, std::span<const std::string> folders) {
    std::lock_guard lock(mutex_);
    ONEBIT_ASSIGN_OR_RETURN(Entry * entry, Find(name, folders));
    return entry->functions;
  }

  Result<const Transport*> Get(std::string_view name, std::span<const std::string> folders) {
    std::lock_guard lock(mutex_);
    ONEBIT_ASSIGN_OR_RETURN(Entry * entry, Find(name, folders));
    if (entry->started == nullptr) {
      ONEBIT_ASSIGN_OR_RETURN(Transport transport, Transport::Start(entry->functions));
      entry->started = std::make_unique<Transport>(std::move(transport));
    }
    return entry->started.get();
  }

  void Add(std::string_view name, const onebitTransport* functions) {
    std::lock_guard lock(mutex_);
    entries_.push_back({.name = std::string(name), .functions = functions});
  }

  std::vector<const onebitTransport*> Known() {
    std::lock_guard lock(mutex_);
    std::vector<const onebitTransport*> known;
    for (const Entry& entry : entries_) known.push_back(entry.functions);
    return known;
  }

 private:
  struct Entry {
    std::string name;
    const onebitTransport* functions;
    std::unique_ptr<Transport> started = nullptr;
  };

  // The caller holds mutex_. The entry stays valid until the next call.
  Result<Entry*> Find(std::string_view name, std::span<const std::string> folders) {
    for (Entry& entry : entries_) {
      if (entry.name == name) return &entry;
    }
    auto opened = OpenPlugin(name, folders);
    if (opened.ok()) {
      entries_.push_back({.name = std::string(name), .functions = opened.value()});
      return &entries_.back();
    }
    if (opened.status().code() != Code::kInvalidArgument) return opened.status();
    std::string known;
    for (const Entry& entry : entries_) AppendFormat(&known, " {}", entry.name);
    for (const std::string& plugin : FindPlugins(folders)) {
      const bool is_listed = std::any_of(entries_.begin(), entries_.end(),
                                         [&](const Entry& entry) { return entry.name == plugin; });
      if (!is_listed) AppendFormat(&known, " {}", plugin);
    }
    return Error(opened.status().code(), "{}; known:{}", opened.status().text(), known);
  }

  std::mutex mutex_;
  std::vector<Entry> entries_;  // guarded by mutex_
};

TransportRegistry& Registry() {
  static auto* registry = new TransportRegistry;  // endpoints may outlive main
  return *registry;
}

}  // namespace

Result<const Transport*> Transport::Get(std::string_view name) {
  ONEBIT_ASSIGN_OR_RETURN(const SettingsTable* table, ProcessSettings());
  return Registry().Get(name, PluginFolders(table->settings.plugin_path));
}

Result<const onebitTransport*> Transport::Open(std::string_view name,
                                               std::span<const std::string> folders) {
  return Registry().Open(name, folders);
}

void Transport::Register(std::string_view name, const onebitTransport* functions) {
  Registry().Add(name, functions);
}

std::vector<const onebitTransport*> Transport::Known() { return Registry().Known(); }

std::vector<std::string> Transport::BuiltIns() {
  std::vector<std::string> names;
  for (const BuiltIn& built_in : kBuiltIns) names.emplace_back(built_in.name);
  return names;
}

}  // namespace onebit
