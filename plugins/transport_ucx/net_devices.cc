// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Asks UCX's lower layer for its devices. ucp_init only warns of unknown ones if it finds another
// transport to work with, such as shared memory.
#include "plugins/transport_ucx/net_devices.h"

#include <net/if.h>
#include <uct/api/uct.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace onebit::ucx {
namespace {

void AddDevices(uct_component_h component, const char* domain, std::set<std::string>* names) {
  uct_md_config_t* config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return;
  uct_md_h opened = nullptr;
  const ucs_status_t status = uct_md_open(component, domain, config, &opened);
  uct_config_release(config);
  if (status != UCS_OK) return;
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (uct_md_query_tl_resources(opened, &resources, &count) == UCS_OK) {
    for (unsigned i = 0; i < count; ++i) {
      if (resources[i].dev_type == UCT_DEVICE_TYPE_NET) names->insert(resources[i].dev_name);
    }
    uct_release_tl_resource_list(resources);
  }
  uct_md_close(opened);
}

// The library's bootstrap excludes the same interfaces (comm/interfaces.cc), but a plugin cannot
// use its code.
bool IsVirtual(std::string_view name) {
  for (const std::string_view prefix : {"docker", "veth", "virbr", "br-", "cni", "flannel"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

bool IsListed(std::string_view name, std::string_view list) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    if (entry == name) return true;
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
  }
  return false;
}

}  // namespace

std::set<std::string> NetworkDevices() {
  std::set<std::string> names;
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (uct_query_components(&components, &count) != UCS_OK) return names;
  for (unsigned i = 0; i < count; ++i) {
    uct_component_attr_t attributes{.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
    if (uct_component_query(components[i], &attributes) != UCS_OK) continue;
    std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attributes.md_resources = domains.data();
    if (uct_component_query(components[i], &attributes) != UCS_OK) continue;
    for (const auto& domain : domains) AddDevices(components[i], domain.md_name, &names);
  }
  uct_release_component_list(components);
  return names;
}

bool HasAdapter(const std::string& list, const std::set<std::string>& devices) {
  return std::ranges::any_of(devices, [&list](const std::string& device) {
    return if_nametoindex(device.c_str()) == 0 && (list == "all" || IsListed(device, list));
  });
}

bool HasSoftwareAdapter(const std::string& folder) {
  std::error_code error;
  for (const auto& adapter : std::filesystem::directory_iterator(folder, error)) {
    // A real one is a device of a bus.
    if (!std::filesystem::exists(adapter.path() / "device", error)) return true;
  }
  return false;
}

std::string UsableDevices(const std::string& interfaces, const std::set<std::string>& devices) {
  std::string usable;
  for (const std::string& device : devices) {
    const bool is_interface = if_nametoindex(device.c_str()) != 0;
    const bool is_chosen = interfaces.empty() ? !IsVirtual(device) : IsListed(device, interfaces);
    if (is_interface && !is_chosen) continue;
    if (!usable.empty()) usable.push_back(',');
    usable.append(device);
  }
  return usable.empty() && interfaces.empty() ? "all" : usable;
}

std::string UnknownDevice(const std::string& list, const std::set<std::string>& devices) {
  std::string_view rest(list);
  if (rest.starts_with('^')) rest.remove_prefix(1);  // all but these
  while (!rest.empty()) {
    const std::string name(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (!name.empty() && name != "all" && !devices.contains(name)) return name;
  }
  return "";
}

}  // namespace onebit::ucx
