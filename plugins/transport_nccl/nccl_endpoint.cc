// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collects messages until their group ends.
#include "plugins/transport_nccl/nccl_endpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

namespace onebit::nccl {
namespace {

// The API's types and ops have NCCL's numbers.
bool IsKnown(onebitDataType_t type) {
  switch (type) {
    case onebitUint8:
    case onebitInt32:
    case onebitInt64:
    case onebitFloat16:
    case onebitFloat32:
    case onebitFloat64:
    case onebitBfloat16:
      return true;
  }
  return false;
}

bool IsKnown(onebitRedOp_t op) {
  switch (op) {
    case onebitSum:
    case onebitMax:
    case onebitMin:
    case onebitAvg:
      return true;
  }
  return false;
}

}  // namespace

NcclEndpoint::NcclEndpoint(Context* context, const onebitTransportCommInfo& info,
                           std::shared_ptr<Communicator> communicator)
    : context_(context),
      comm_id_(info.commId),
      communicator_(std::move(communicator)),
      exchange_(communicator_) {
  // Enough for a group of one exchange with several pieces to each peer; a larger one grows it
  // once.
  exchange_.operations().reserve(std::max<size_t>(64, 8 * static_cast<size_t>(info.nranks)));
  context_->AddEndpoint();
}

NcclEndpoint::~NcclEndpoint() {
  ThreadGroups::OfThisThread().Forget(&exchange_, is_in_group_);
  context_->RemoveEndpoint();
}

onebitResult_t NcclEndpoint::GetAddress(void* address, size_t* bytes) {
  if (communicator_->is_aborted()) return onebitAborted;
  if (*bytes < sizeof(Address)) return onebitInvalidArgument;
  const NcclApi& nccl = communicator_->api();
  const DeviceBinding& binding = communicator_->binding();
  Address own{.comm_id = comm_id_, .version = nccl.version};
  // Used only in texts: unknown parts are empty.
  binding.driver->cuDeviceGetPCIBusId(own.bus_id, sizeof own.bus_id, binding.device);
  gethostname(own.host, sizeof own.host - 1);
  if (communicator_->rank() == 0 && !communicator_->is_joined()) {
    const cuda::CurrentContext current(*binding.driver, binding.device_context);
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
  *bytes_sent = exchange_.bytes_sent();
  *messages_sent = exchange_.messages_sent();
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
  if (is_in_group_)
    return communicator_->Fail(onebitInvalidUsage, "a group was begun inside a group");
  exchange_.operations().clear();
  ThreadGroups::OfThisThread().Begin(&exchange_);
  is_in_group_ = true;
  return onebitSuccess;
}

onebitResult_t NcclEndpoint::GroupEnd() {
  const onebitResult_t check = CheckUsable();
  if (!is_in_group_) {
    if (check != onebitSuccess) return check;
    return communicator_->Fail(onebitInvalidUsage, "a group was ended that had not begun");
  }
  is_in_group_ = false;
  const onebitResult_t result = ThreadGroups::OfThisThread().End();
  return check != onebitSuccess ? check : result;
}

onebitResult_t NcclEndpoint::Send(int peer, const void* buffer, size_t bytes,
                                  onebitStream_t stream) {
  return AddMessage({.kind = Operation::Kind::kSend,
                     .peer = peer,
                     .input = buffer,
                     .bytes = bytes,
                     .stream = stream},
                    buffer);
}

onebitResult_t NcclEndpoint::Receive(int peer, void* buffer, size_t bytes, onebitStream_t stream) {
  return AddMessage({.kind = Operation::Kind::kReceive,
                     .peer = peer,
                     .output = buffer,
                     .bytes = bytes,
                     .stream = stream},
                    buffer);
}

onebitResult_t NcclEndpoint::AddMessage(const Operation& message, const void* buffer) {
  const onebitResult_t check = CheckUsable();
  if (check != onebitSuccess) return check;
  // An exchange without this message would leave its peer waiting, so this is an error of the
  // group.
  if (message.peer < 0 || message.peer >= communicator_->ranks() ||
      (buffer == nullptr && message.bytes != 0)) {
    return communicator_->Fail(onebitInvalidArgument,
                               "a message of " + std::to_string(message.bytes) + " bytes " +
                                   (message.kind == Operation::Kind::kSend ? "to" : "from") +
                                   " rank " + std::to_string(message.peer) + " of " +
                                   std::to_string(communicator_->ranks()));
  }
  // Both sides know the size, so neither waits for an empty message.
  return message.bytes == 0 ? onebitSuccess : Add(message);
}

onebitResult_t NcclEndpoint::Add(const Operation& operation) {
  if (!is_in_group_) exchange_.operations().clear();
  exchange_.operations().push_back(operation);
  if (is_in_group_) return onebitSuccess;
  Exchange* const alone = &exchange_;
  return StartTogether({&alone, 1});
}

onebitResult_t NcclEndpoint::Collective(const onebitTransportCollectiveCall& call,
                                        onebitStream_t stream) {
  const onebitResult_t check = CheckUsable();
  if (check != onebitSuccess) return check;
  const bool is_broadcast = call.collective == onebitTransportBroadcast;
  const bool has_root = !is_broadcast || (call.root >= 0 && call.root < communicator_->ranks());
  const bool sends = !is_broadcast || call.root == communicator_->rank();
  const bool has_buffers = (call.send != nullptr || !sends) && call.recv != nullptr;
  if (!IsKnown(call.datatype) || !IsKnown(call.op) || !has_root ||
      (!has_buffers && call.count != 0)) {
    return communicator_->Fail(onebitInvalidArgument, "NCCL cannot do such a collective");
  }
  if (call.count == 0) return onebitSuccess;
  return Add({.kind = Operation::Kind::kCollective, .call = call, .stream = stream});
}

onebitResult_t NcclEndpoint::AsyncError(char* text, size_t capacity) {
  return communicator_->AsyncError(text, capacity);
}

}  // namespace onebit::nccl
