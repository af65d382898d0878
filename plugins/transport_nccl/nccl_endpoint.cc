// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Messages, gathered until the end of their group.
#include "plugins/transport_nccl/nccl_endpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

namespace onebit::nccl {

NcclEndpoint::NcclEndpoint(Context* context, const onebitTransportCommInfo& info,
                           std::shared_ptr<Communicator> communicator)
    : context_(context), comm_id_(info.commId), communicator_(std::move(communicator)) {
  // A group of one exchange, several pieces to each peer; a larger one grows it once.
  messages_.reserve(std::max<size_t>(64, 8 * static_cast<size_t>(info.nranks)));
  context_->AddEndpoint();
}

NcclEndpoint::~NcclEndpoint() { context_->RemoveEndpoint(); }

onebitResult_t NcclEndpoint::GetAddress(void* address, size_t* bytes) {
  if (communicator_->is_aborted()) return onebitAborted;
  if (*bytes < sizeof(Address)) return onebitInvalidArgument;
  const NcclApi& nccl = communicator_->api();
  const Place& place = communicator_->place();
  Address own{.comm_id = comm_id_, .version = nccl.version};
  // For texts only: what cannot be told is empty.
  place.driver->DeviceGetPCIBusId(own.bus_id, sizeof own.bus_id, place.device);
  gethostname(own.host, sizeof own.host - 1);
  if (communicator_->rank() == 0 && !communicator_->is_joined()) {
    const CurrentContext current(*place.driver, place.device_context);
    const int code = nccl.GetUniqueId(&own.unique_id);
    if (code != kSuccess) {
      return communicator_->Fail(ResultOf(code), "ncclGetUniqueId failed: " + nccl.Explain(code));
    }
  }
  std::memcpy(address, &own, sizeof own);
  *bytes = sizeof own;
  return onebitSuccess;
}

onebitResult_t NcclEndpoint::Connect(const void* const* addresses, const size_t* address_bytes,
                                     uint64_t timeout_ms) {
  if (communicator_->is_aborted()) return onebitAborted;
  if (is_connected_) return onebitInvalidUsage;
  const auto ranks = static_cast<size_t>(communicator_->ranks());
  const int rank = communicator_->rank();
  std::vector<Address> read;
  const onebitResult_t check =
      ReadAddresses(*context_, rank, comm_id_, communicator_->api(), std::span(addresses, ranks),
                    std::span(address_bytes, ranks), &read);
  if (check != onebitSuccess) return check;
  addresses_ = std::move(read);
  const onebitResult_t result = communicator_->is_joined()
                                    ? onebitSuccess
                                    : communicator_->Create(addresses_[0].unique_id, timeout_ms);
  is_connected_ = result == onebitSuccess;
  return result;
}

onebitResult_t NcclEndpoint::Abort() {
  communicator_->Abort();
  return onebitSuccess;
}

void NcclEndpoint::GetCounters(uint64_t* bytes_sent, uint64_t* messages_sent) const {
  *bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
  *messages_sent = messages_sent_.load(std::memory_order_relaxed);
}

onebitResult_t NcclEndpoint::DescribePeer(int peer, char* text, size_t capacity) const {
  if (peer < 0 || peer >= communicator_->ranks()) return onebitInvalidArgument;
  const char* release = communicator_->api().release.c_str();
  if (addresses_.empty()) {
    std::snprintf(text, capacity, "NCCL %s", release);
  } else {
    const std::string whom = Describe(addresses_[static_cast<size_t>(peer)]);
    std::snprintf(text, capacity, "NCCL %s to %s", release, whom.c_str());
  }
  return onebitSuccess;
}

onebitResult_t NcclEndpoint::CheckUsable() const {
  const onebitResult_t state = communicator_->state();
  if (state != onebitSuccess) return state;
  return is_connected_ ? onebitSuccess : onebitInvalidUsage;
}

onebitResult_t NcclEndpoint::GroupBegin() {
  const onebitResult_t check = CheckUsable();
  if (check != onebitSuccess) return check;
  if (is_in_group_) return communicator_->Fail(onebitInvalidUsage, "a group inside a group");
  is_in_group_ = true;
  messages_.clear();
  return onebitSuccess;
}

onebitResult_t NcclEndpoint::GroupEnd() {
  const onebitResult_t check = CheckUsable();
  const bool was_in_group = std::exchange(is_in_group_, false);
  if (check != onebitSuccess) return check;
  if (!was_in_group) return communicator_->Fail(onebitInvalidUsage, "the end of no group");
  return Exchange();
}

onebitResult_t NcclEndpoint::Send(int peer, const void* buffer, size_t bytes,
                                  onebitStream_t stream) {
  return Add({.is_send = true,
              .peer = peer,
              .buffer = const_cast<void*>(buffer),
              .bytes = bytes,
              .stream = stream});
}

onebitResult_t NcclEndpoint::Receive(int peer, void* buffer, size_t bytes, onebitStream_t stream) {
  return Add({.is_send = false, .peer = peer, .buffer = buffer, .bytes = bytes, .stream = stream});
}

onebitResult_t NcclEndpoint::Add(const Message& message) {
  const onebitResult_t check = CheckUsable();
  if (check != onebitSuccess) return check;
  // An exchange without this message would leave its peer waiting: so it is an error of the group.
  if (message.peer < 0 || message.peer >= communicator_->ranks() ||
      (message.buffer == nullptr && message.bytes != 0)) {
    return communicator_->Fail(onebitInvalidArgument,
                               "a message of " + std::to_string(message.bytes) + " bytes " +
                                   (message.is_send ? "to" : "from") + " rank " +
                                   std::to_string(message.peer) + " of " +
                                   std::to_string(communicator_->ranks()));
  }
  if (!is_in_group_) messages_.clear();
  // Both sides know the size, so neither waits for a message without bytes.
  if (message.bytes != 0) messages_.push_back(message);
  return is_in_group_ ? onebitSuccess : Exchange();
}

onebitResult_t NcclEndpoint::Exchange() {
  if (messages_.empty()) return CheckUsable();
  const onebitResult_t result =
      communicator_->Use([this](CommHandle handle) { return Start(handle); });
  if (result == onebitSuccess) CountSends();
  return result;
}

onebitResult_t NcclEndpoint::Start(CommHandle handle) {
  const NcclApi& nccl = communicator_->api();
  int code = nccl.GroupStart();
  if (code != kSuccess) return communicator_->Finish("ncclGroupStart", code);
  const char* what = "";
  for (const Message& message : messages_) {
    what = message.is_send ? "ncclSend" : "ncclRecv";
    code =
        message.is_send
            ? nccl.Send(message.buffer, message.bytes, kInt8, message.peer, handle, message.stream)
            : nccl.Recv(message.buffer, message.bytes, kInt8, message.peer, handle, message.stream);
    if (code != kSuccess && code != kInProgress) break;
  }
  // In any case, or the thread's later groups would be inside this one.
  const int end = nccl.GroupEnd();
  if (code != kSuccess && code != kInProgress) return communicator_->Finish(what, code);
  return communicator_->Finish("ncclGroupEnd", end);
}

void NcclEndpoint::CountSends() {
  uint64_t bytes = bytes_sent_.load(std::memory_order_relaxed);
  uint64_t count = messages_sent_.load(std::memory_order_relaxed);
  for (const Message& message : messages_) {
    if (!message.is_send) continue;
    bytes += message.bytes;
    ++count;
  }
  bytes_sent_.store(bytes, std::memory_order_relaxed);
  messages_sent_.store(count, std::memory_order_relaxed);
}

onebitResult_t NcclEndpoint::AllReduce(const void* send, void* recv, size_t count,
                                       onebitDataType_t type, onebitRedOp_t op,
                                       onebitStream_t stream) {
  const onebitResult_t check = CheckUsable();
  if (check != onebitSuccess) return check;
  const bool has_type = type == onebitFloat32 || type == onebitFloat16 || type == onebitBfloat16;
  if (!has_type || (op != onebitSum && op != onebitAvg) ||
      ((send == nullptr || recv == nullptr) && count != 0)) {
    return communicator_->Fail(onebitInvalidArgument, "an allreduce that NCCL cannot do");
  }
  if (is_in_group_) return communicator_->Fail(onebitInvalidUsage, "an allreduce inside a group");
  if (count == 0) return onebitSuccess;
  return communicator_->Use([&](CommHandle handle) {
    return communicator_->Finish(
        "ncclAllReduce", communicator_->api().AllReduce(send, recv, count, static_cast<int>(type),
                                                        static_cast<int>(op), handle, stream));
  });
}

onebitResult_t NcclEndpoint::AsyncError(char* text, size_t capacity) {
  return communicator_->AsyncError(text, capacity);
}

onebitResult_t NcclEndpoint::RefuseHostFace() {
  if (communicator_->is_aborted()) return onebitAborted;
  context_->Warn("rank %d: NCCL carries device memory only", communicator_->rank());
  return onebitInvalidUsage;
}

}  // namespace onebit::nccl
