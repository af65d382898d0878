// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Configuration of UCX.
#include "plugins/transport_ucx/ucx_context.h"

#include <string>
#include <utility>

#include "plugins/common/abandoned_segments.h"
#include "plugins/common/interface_name.h"
#include "plugins/transport_ucx/net_devices.h"
#include "plugins/transport_ucx/ucx_frame_transport.h"
#include "plugins/transport_ucx/ucx_process.h"
#include "plugins/transport_ucx/worker.h"

namespace onebit::ucx {
namespace {

// ucp_config_modify accepts any name: names that are not UCP's own are kept, and tried on the table
// of each lower layer when it is opened. That table knows TX_SEG_SIZE by its bare name
// (TCP_TX_SEG_SIZE is ignored), but MM_SEG_SIZE, which POSIX and System V inherit, by its full one
// (UCX 1.13).
struct Choice {
  const char* name;
  std::string value;
};

void Modify(ucp_config_t* config, const std::string& tls, const std::string& net_devices,
            const Options& options) {
  const Choice choices[] = {
      {"WARN_UNUSED_ENV_VARS", "n"},
      // Disables the hooks of malloc and mmap, which UCX needs to cache registrations of user
      // memory. User memory is never registered here.
      {"MEM_EVENTS", "n"},
      // Disables the cache itself, whose thread aborts the process when there are no descriptors
      // for it.
      {"RCACHE_ENABLE", "n"},
      {"TLS", tls},
      {"NET_DEVICES", net_devices},
      {"TX_SEG_SIZE", std::to_string(kNetworkSegmentBytes)},
      {"MM_SEG_SIZE", std::to_string(kSharedSegmentBytes)},
      // connect(2) must not block a thread for minutes when a host is silent.
      {"CONN_NB", "y"},
      // The library's control channel notices a host that is silent. UCX's keepalive adds a path to
      // an endpoint, and a message that connects it, whose failure ends the process
      // (ucp_request_send_state_ff).
      {"KEEPALIVE_INTERVAL", "inf"},
      // A flush is over when the layers below have handed on all that they took. The flush of each
      // endpoint would keep endpoints that have been closed (Worker::Close).
      {"FLUSH_WORKER_EPS", "n"},
      // Paths on which memory of another rank is read. Without a rendezvous none is, and UCX would
      // connect ranks of one host over the network for nothing.
      {"MAX_RNDV_LANES", options.uses_rendezvous != 0 ? "1" : "0"},
  };
  for (const Choice& choice : choices) {
    ucp_config_modify(config, choice.name, choice.value.c_str());
  }
  // UCX compares the destination in front of a datagram, which an adapter in software (rxe) does
  // not put where UCX looks, and would drop everything.
  if (HasSoftwareAdapter()) ucp_config_modify(config, "UD_ETH_DGID_CHECK", "n");
}

// A payload that sets out early must arrive though its sender makes no further call, and a
// rendezvous needs both ends.
Options Effective(Options options) {
  if (options.uses_rendezvous != 0) options.early_bytes = 0;
  return options;
}

}  // namespace

Context::Context(const onebitTransportHost& host)
    : BaseContext(host, "ucx"),
      identity_(plugin::IdentityOfThisHost()),
      machine_(plugin::IdentityOfThisMachine()),
      options_(Effective(*static_cast<const Options*>(host.settings))),
      net_devices_(options_.net_devices) {}

Context::~Context() {
  if (keeps_ucp_.load(std::memory_order_relaxed)) return;
  const LogScope scope(host());
  for (const auto& [choice, ucp] : ucps_) {
    if (ucp != nullptr) ucp_cleanup(ucp);  // null: the first one could not start
  }
}

onebitResult_t Context::Create(const onebitTransportHost& host, std::unique_ptr<Context>* context) {
  std::unique_ptr<Context> created(new Context(host));
  const onebitResult_t result = created->Start();
  if (result == onebitSuccess) *context = std::move(created);
  return result;
}

onebitTransportProperties Context::Properties(const Context* context) {
  if (context == nullptr) return PropertiesWith(Options{});
  onebitTransportProperties properties = PropertiesWith(context->options_);
  if (context->can_share_memory()) properties.memoryDomain = context->identity().words[0];
  return properties;
}

onebitResult_t Context::Open(const onebitTransportCommInfo& info,
                             std::unique_ptr<UcxFrameTransport>* frames) {
  return UcxFrameTransport::Create(this, info, frames);
}

onebitResult_t Context::Start() {
  const LogScope scope(host());
  if (!HasDescriptorsForUcx()) return NoDescriptors();
  plugin::RemoveAbandonedSegments();
  devices_ = NetworkDevices();
  const bool is_set = !net_devices_.empty();
  if (net_devices_.starts_with('^')) {
    Warn("ONEBIT_UCX_NET_DEVICES=%s: UCX 1.13 cannot exclude devices: name those to use",
         net_devices_.c_str());
    return onebitInvalidUsage;
  }
  const std::string interfaces = host().interfaces;
  if (const auto unknown = UnknownDevice(is_set ? net_devices_ : interfaces, devices_);
      !unknown.empty()) {
    std::string all;
    for (const auto& device : devices_) all += " " + device;
    Warn("there is no network device \"%s\" (%s); there are:%s", unknown.c_str(),
         is_set ? "ONEBIT_UCX_NET_DEVICES" : "ONEBIT_SOCKET_IFNAME", all.c_str());
    return onebitInvalidUsage;
  }
  if (!is_set) net_devices_ = UsableDevices(interfaces, devices_);
  if (HasSoftwareAdapter()) {
    host().log(onebitLogInfo,
               "ucx: an RDMA device is software, for which UCX does not check where its datagrams "
               "were sent to (UCX_UD_ETH_DGID_CHECK=n)");
  }
  // Now, because only now the settings can be refused by name.
  return StartUcp({options_.tls, net_devices_}, &ucps_[{options_.tls, net_devices_}]);
}

onebitResult_t Context::StartUcp(const Choice& choice, ucp_context_h* ucp) {
  ucp_config_t* config = nullptr;
  if (ucp_config_read(nullptr, nullptr, &config) != UCS_OK) {
    Warn("its configuration cannot be read: %s", LogScope::LastError().c_str());
    return onebitSystemError;
  }
  Modify(config, choice.first, choice.second, options_);
  const ucp_params_t params{
      .field_mask =
          UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME,
      .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
      .mt_workers_shared = 1,  // endpoints of one process are used by different threads
      .name = "onebit"};
  const ucs_status_t status = ucp_init(&params, config, ucp);
  ucp_config_release(config);
  if (status == UCS_OK) return onebitSuccess;
  Warn("cannot start with ONEBIT_UCX_TLS=%s: %s (%s)", choice.first.c_str(),
       ucs_status_string(status), LogScope::LastError().c_str());
  return status == UCS_ERR_NO_DEVICE ? onebitInvalidUsage : onebitSystemError;
}

ucp_context_h Context::UcpFor(const onebitTransportCommInfo& info) {
  Choice choice{options_.tls, net_devices_};
  const bool is_free = *options_.net_devices == '\0' && *host().interfaces == '\0';
  if (choice.first == "all" && options_.shares_memory != 0 && info.isOneHost != 0) {
    choice = {"shm,self", "all"};
  } else if (is_free && info.address != nullptr) {
    const std::string interface = plugin::InterfaceOf(static_cast<const sockaddr*>(info.address));
    // A process that does not know its interface keeps all, as does one that UCX cannot serve.
    if (devices_.contains(interface)) choice.second = UsableDevices(interface, devices_);
  }
  if (AllowsAdapters(choice.first) && HasAdapter(choice.second, devices_) &&
      !CanLockMemoryForUcx()) {
    Warn(
        "this process may lock less memory than the 64 MiB that a communicator registers with an "
        "RDMA device: raise ulimit -l, or use ONEBIT_UCX_TLS=tcp,shm,self");
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = ucps_.try_emplace(choice, nullptr);
  if (is_new && StartUcp(choice, &found->second) != onebitSuccess) {
    ucps_.erase(found);
    return nullptr;
  }
  return found->second;
}

onebitResult_t Context::NoDescriptors() const {
  Warn("this process has too few file descriptors left for UCX: raise ulimit -n");
  return onebitSystemError;
}

bool Context::can_share_memory() const {
  return options_.shares_memory != 0 && AllowsSharedMemory(options_.tls);
}

}  // namespace onebit::ucx
