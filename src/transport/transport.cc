// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls a transport through its ABI and turns results into errors with a text.
#include "transport/transport.h"

#include <sys/resource.h>

#include <chrono>
#include <cstddef>
#include <new>
#include <utility>

#include "base/log.h"
#include "channel/channel_context.h"
#include "transport/declared_settings.h"
#include "transport/process_settings.h"

namespace onebit {
namespace {

// The last warning that a transport logged on this thread. The ABI has no error texts, so this is
// the cause of the error that it returns next.
thread_local std::string complaint;  // NOLINT: calls of the ABI say nothing of who made them

// Services throw nothing, because their caller may be C code. A line is lost if there is no memory
// for it.
void TakeLine(int level, const char* text) noexcept {
  try {
    if (level <= static_cast<int>(LogLevel::kWarn)) complaint = text;
    LogLine(static_cast<LogLevel>(level), text);
  } catch (const std::bad_alloc&) {
  }
}

uint64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

// Lives as long as the process. Each start copies it and adds the settings.
onebitTransportHost& Host() {
  static auto* host = new onebitTransportHost{.structSize = sizeof(onebitTransportHost),
                                              .log = TakeLine,
                                              .nowNs = NowNs,
                                              .interfaces = "",
                                              .settings = nullptr};
  return *host;
}

// The limit that may be why there is no memory; empty if there is none.
std::string MemoryLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return Format("; this process may use {} bytes of address space (ulimit -v)", limit.rlim_cur);
}

// An error whose text ends with the transport's last warning, if there is one, and a lack of memory
// with the limit that may be its cause.
Status Explained(Code code, std::string text) {
  if (!complaint.empty()) AppendFormat(&text, ": {}", complaint);
  complaint.clear();
  if (code == Code::kOutOfMemory) AppendFormat(&text, ": out of memory{}", MemoryLimit());
  return {code, std::move(text)};
}

// Runs code that may throw, most likely std::bad_alloc. The caller must still tell other ranks.
template <typename Body>
onebitResult_t WithoutExceptions(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return onebitOutOfMemory;
  } catch (...) {
    return onebitInternalError;
  }
}

// True if the plugin was compiled with all members of the table before `end`.
bool HasMembers(const onebitTransport& functions, size_t end) {
  return functions.structSize >= end;
}

Status CheckVersion(const onebitTransport& functions) {
  if (functions.abiVersion != ONEBIT_TRANSPORT_ABI_VERSION ||
      functions.structSize < offsetof(onebitTransport, getLink)) {
    return Error(Code::kInvalidUsage, "transport has ABI version {}, this library speaks {}",
                 functions.abiVersion, ONEBIT_TRANSPORT_ABI_VERSION);
  }
  return OkStatus();
}

// Checks that the members of the face that the properties promise are there.
Status CheckFace(const onebitTransport& functions, const onebitTransportProperties& properties) {
  const bool has_frame_members =
      HasMembers(functions, offsetof(onebitTransport, stopPlacing)) &&
      functions.getLink != nullptr && functions.sendFrame != nullptr &&
      functions.progress != nullptr && functions.sleep != nullptr &&
      (properties.nativeDense == 0 ||
       (HasMembers(functions, offsetof(onebitTransport, getCounters)) &&
        functions.iallreduce != nullptr && functions.testAllreduce != nullptr &&
        functions.cancelAllreduce != nullptr));
  const bool has_stream_members =
      HasMembers(functions, sizeof(onebitTransport)) && functions.getCounters != nullptr &&
      functions.describePeer != nullptr && functions.groupBegin != nullptr &&
      functions.groupEnd != nullptr && functions.sendOnStream != nullptr &&
      functions.recvOnStream != nullptr && functions.asyncError != nullptr &&
      (properties.nativeDense == 0 || functions.collectiveOnStream != nullptr);
  const bool has_frames = properties.hasFrameFace != 0;
  if (has_frames == (properties.hasStreamFace != 0)) {
    return Error(Code::kInvalidUsage,
                 "transport {} has {} a frame face and a stream face; it must "
                 "have one of them",
                 properties.name, has_frames ? "both" : "neither");
  }
  if (has_frames ? has_frame_members : has_stream_members) return OkStatus();
  return Error(Code::kInvalidUsage,
               "transport {} says that it has a {} face, but lacks members of it", properties.name,
               has_frames ? "frame" : "stream");
}

}  // namespace

Result<Transport> Transport::Start(const onebitTransport* functions) {
  ONEBIT_ASSIGN_OR_RETURN(const auto declared, PropertiesOf(functions, nullptr));
  ONEBIT_ASSIGN_OR_RETURN(const auto settings, SettingsForInit(declared, EarlyEnvironment()));
  onebitTransportHost host = Host();
  host.settings = settings.data();
  Transport transport;
  transport.functions_ = functions;
  complaint.clear();
  if (auto result = functions->init(&host, &transport.context_); result != onebitSuccess) {
    return Explained(static_cast<Code>(result),
                     Format("transport failed to start (result {})", static_cast<int>(result)));
  }
  ONEBIT_ASSIGN_OR_RETURN(transport.properties_, PropertiesOf(functions, transport.context_));
  ONEBIT_TRY(CheckFace(*functions, transport.properties_));
  if (transport.properties_.hasFrameFace != 0) {
    transport.channels_ = std::make_unique<channel::ChannelContext>(*functions, transport.context_,
                                                                    transport.properties_, Host());
  }
  return transport;
}

void Transport::UseInterfaces(const std::string& names) {
  // Never freed: transports keep the pointer.
  [[maybe_unused]] static const bool is_set = [&names] {
    Host().interfaces = (new std::string(names))->c_str();
    return true;
  }();
}

Result<onebitTransportProperties> Transport::PropertiesOf(const onebitTransport* functions,
                                                          void* context) {
  ONEBIT_TRY(CheckVersion(*functions));
  onebitTransportProperties properties{.structSize = sizeof(properties)};
  if (auto result = functions->getProperties(context, &properties); result != onebitSuccess) {
    return Error(static_cast<Code>(result), "transport has no properties (result {})",
                 static_cast<int>(result));
  }
  return properties;
}

Result<NativeGroup> NativeGroup::Adopt(const Transport& transport, const void* native,
                                       size_t native_bytes, uint64_t timeout_ms) {
  const onebitTransport& functions = transport.functions();
  const char* const name = transport.properties().name;
  if (!HasMembers(functions, offsetof(onebitTransport, iallreduce)) || functions.adopt == nullptr ||
      functions.broadcast == nullptr || functions.release == nullptr) {
    return Error(Code::kInvalidUsage, "transport {} cannot join a communicator of another library",
                 name);
  }
  NativeGroup group;
  complaint.clear();
  const auto result = functions.adopt(transport.context(), native, native_bytes, timeout_ms,
                                      &group.handle_, &group.rank_, &group.ranks_);
  if (result != onebitSuccess) {
    return Explained(static_cast<Code>(result),
                     Format("transport {} failed to join the communicator", name));
  }
  group.transport_ = &transport;
  return group;
}

NativeGroup::NativeGroup(NativeGroup&& other) noexcept
    : transport_(other.transport_),
      handle_(std::exchange(other.handle_, nullptr)),
      rank_(other.rank_),
      ranks_(other.ranks_) {}

NativeGroup::~NativeGroup() {
  if (handle_ != nullptr) static_cast<void>(transport_->functions().release(handle_));
}

Status NativeGroup::Broadcast(std::span<std::byte> bytes, uint64_t timeout_ms) const {
  complaint.clear();
  const auto result =
      transport_->functions().broadcast(handle_, bytes.data(), bytes.size(), timeout_ms);
  if (result == onebitSuccess) return OkStatus();
  return Explained(
      static_cast<Code>(result),
      Format("rank {} of {}: transport {} failed to share the address where the ranks meet", rank_,
             ranks_, transport_->properties().name));
}

Result<Endpoint> Endpoint::Open(const Transport& transport, const Info& info) {
  Endpoint endpoint;
  endpoint.functions_ = &transport.functions();
  endpoint.name_ = transport.properties().name;
  endpoint.address_bytes_ = transport.properties().addressBytes;
  complaint.clear();
  const onebitResult_t result = WithoutExceptions([&] {
    if (!transport.is_stream_ordered()) return transport.channels()->Open(info, &endpoint.channel_);
    const onebitTransportCommInfo streams{.structSize = sizeof streams,
                                          .rank = info.rank,
                                          .nranks = info.nranks,
                                          .commId = info.comm_id,
                                          .group = info.group};
    void* comm = nullptr;
    const auto opened = transport.functions().open(transport.context(), &streams, &comm);
    if (opened == onebitSuccess) endpoint.comm_ = comm;
    return opened;
  });
  ONEBIT_TRY(endpoint.Check(result, "open an endpoint"));
  return endpoint;
}

Endpoint::Endpoint(Endpoint&& other) noexcept { *this = std::move(other); }

Endpoint& Endpoint::operator=(Endpoint&& other) noexcept {
  std::swap(functions_, other.functions_);
  std::swap(name_, other.name_);
  std::swap(address_bytes_, other.address_bytes_);
  std::swap(channel_, other.channel_);
  std::swap(comm_, other.comm_);
  return *this;
}

Status Endpoint::Failure(onebitResult_t result, const char* what, int peer) const {
  const auto code = static_cast<Code>(result);
  if (peer < 0) return Explained(code, Format("transport {} failed to {}", name_, what));
  return Explained(code, Format("transport {} failed to {} rank {}", name_, what, peer));
}

Result<std::vector<std::byte>> Endpoint::Address() const {
  std::vector<std::byte> address(address_bytes_);
  size_t bytes = address.size();
  ONEBIT_TRY(Check(channel_ != nullptr ? channel_->GetAddress(address.data(), &bytes)
                                       : functions_->getAddress(comm_, address.data(), &bytes),
                   "give its address"));
  address.resize(bytes);
  return address;
}

Status Endpoint::Connect(std::span<const std::vector<std::byte>> addresses, uint64_t timeout_ms) {
  complaint.clear();
  const onebitResult_t result = WithoutExceptions([&] {
    if (channel_ != nullptr) return channel_->Connect(addresses, timeout_ms);
    const channel::AddressList list(addresses);
    return functions_->connect(comm_, list.pointers.data(), list.sizes.data(), timeout_ms);
  });
  return Check(result, "connect");
}

Status Endpoint::BeginGroup() { return Check(functions_->groupBegin(comm_), "begin a group"); }

Status Endpoint::EndGroup() { return Check(functions_->groupEnd(comm_), "start a group"); }

Status Endpoint::SendOnStream(int peer, const void* buffer, size_t bytes, onebitStream_t stream) {
  return Check(functions_->sendOnStream(comm_, peer, buffer, bytes, stream), "send to", peer);
}

Status Endpoint::ReceiveOnStream(int peer, void* buffer, size_t bytes, onebitStream_t stream) {
  return Check(functions_->recvOnStream(comm_, peer, buffer, bytes, stream), "receive from", peer);
}

Status Endpoint::CollectiveOnStream(const onebitTransportCollectiveCall& call,
                                    onebitStream_t stream) {
  return Check(functions_->collectiveOnStream(comm_, &call, stream), "start its own collective");
}

Status Endpoint::AsyncError() const {
  char text[512] = "";
  const auto result = functions_->asyncError(comm_, text, sizeof text);
  if (result == onebitSuccess) return OkStatus();
  return Error(static_cast<Code>(result), "transport {}: {}", name_,
               *text == '\0' ? "it failed without an error text" : text);
}

void Endpoint::Abort() {
  if (channel_ != nullptr) {
    static_cast<void>(channel_->Abort());
  } else if (comm_ != nullptr) {
    static_cast<void>(functions_->abort(comm_));
  }
}

void Endpoint::Close() {
  channel_.reset();
  if (comm_ == nullptr) return;
  if (const auto result = functions_->close(comm_); result != onebitSuccess) {
    Log(LogLevel::kWarn, "transport {}: closing an endpoint failed with result {}", name_,
        static_cast<int>(result));
  }
  comm_ = nullptr;
}

Endpoint::Counters Endpoint::counters() const {
  if (channel_ != nullptr) {
    return {.bytes_sent = channel_->bytes_sent(), .messages_sent = channel_->messages_sent()};
  }
  Counters counters;
  static_cast<void>(functions_->getCounters(comm_, &counters.bytes_sent, &counters.messages_sent));
  return counters;
}

Endpoint::PeerDescription Endpoint::DescribePeer(int peer) const {
  if (channel_ == nullptr && comm_ == nullptr) return {};
  char text[256] = "";
  const onebitResult_t result = channel_ != nullptr
                                    ? channel_->DescribePeer(peer, text, sizeof text)
                                    : functions_->describePeer(comm_, peer, text, sizeof text);
  if (result != onebitSuccess && result != onebitTimeout) return {};
  return {.text = text, .is_stuck = result == onebitTimeout};
}

}  // namespace onebit
