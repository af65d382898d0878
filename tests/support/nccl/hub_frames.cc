// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/nccl/hub_frames.h"

#include <string>
#include <utility>

namespace onebit::testing::nccl {
namespace {

struct OperationHead {
  uint64_t messages;
  bool is_collective;
  bool is_by_host;
  Collective::Kind kind;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
};

struct MessageHead {
  bool is_send;
  int peer;
  size_t bytes;
};

OperationHead HeadOf(const Operation& operation) {
  OperationHead head{};
  head.messages = operation.messages.size();
  head.is_by_host = operation.is_by_host;
  if (const Collective* const collective = operation.collective.get()) {
    head.is_collective = true;
    head.kind = collective->kind;
    head.count = collective->count;
    head.type = collective->type;
    head.op = collective->op;
    head.root = collective->root;
  }
  return head;
}

std::span<const std::byte> BytesAt(const void* buffer, size_t bytes) {
  return {static_cast<const std::byte*>(buffer), bytes};
}

// Buffers that are sent are not written to, but Message has one type for all.
void* BufferOf(std::span<const std::byte> bytes) { return const_cast<std::byte*>(bytes.data()); }

size_t OutputBytes(const Operation& operation) {
  if (operation.collective != nullptr) {
    return OutputBytes(*operation.collective, operation.comm->clique->ranks);
  }
  size_t bytes = 0;
  for (const Message& message : operation.messages) bytes += message.is_send ? 0 : message.bytes;
  return bytes;
}

void ReadMessages(size_t count, Unpacker* unpacker, Operation* operation) {
  for (size_t i = 0; i < count; ++i) {
    const auto head = unpacker->Take<MessageHead>();
    operation->messages.push_back(
        {.is_send = head.is_send, .peer = head.peer, .buffer = nullptr, .bytes = head.bytes});
  }
  for (Message& message : operation->messages) {
    if (message.is_send) message.buffer = BufferOf(unpacker->TakeBytes(message.bytes));
  }
}

void ReadCollective(const OperationHead& head, Unpacker* unpacker, Operation* operation) {
  const auto collective = std::make_shared<Collective>(Collective{
      .kind = head.kind, .count = head.count, .type = head.type, .op = head.op, .root = head.root});
  const size_t bytes =
      InputBytes(*collective, operation->comm->clique->ranks, operation->comm->rank);
  collective->inputs = {unpacker->TakeBytes(bytes).data()};
  operation->collective = collective;
}

// Gives the operation the buffers that it writes to.
void PlaceOutputs(GuestOperation* guest) {
  guest->output_bytes = OutputBytes(guest->operation);
  guest->outputs = std::make_unique_for_overwrite<std::byte[]>(guest->output_bytes);
  guest->operation.output = guest->outputs.get();
  size_t at = 0;
  for (Message& message : guest->operation.messages) {
    if (message.is_send) continue;
    message.buffer = &guest->outputs[at];
    at += message.bytes;
  }
}

}  // namespace

void PackConnections(const Member& member, Packer* packer) {
  packer->Put(member.connects_all);
  for (const bool connects : member.connects_to) packer->Put(connects);
}

void AddConnections(std::span<const std::byte> content, Member* member) {
  Unpacker unpacker(content);
  member->connects_all |= unpacker.Take<bool>();
  for (size_t i = 0; i < member->connects_to.size(); ++i) {
    if (unpacker.Take<bool>()) member->connects_to[i] = true;
  }
}

void PackState(const Clique& clique, int rank, Packer* packer) {
  const auto index = static_cast<size_t>(rank);
  packer->Put(clique.members[index].error);
  for (const Member& member : clique.members) {
    packer->Put(member.device);
    packer->Put(member.has_come);
    packer->Put(member.connects_all);
    packer->Put(static_cast<bool>(member.connects_to[index]));
  }
  if (clique.members[index].error == ncclSuccess) return;
  for (const char letter : std::string(LastError())) packer->Put(letter);
}

void ApplyState(std::span<const std::byte> content, int rank, Clique* mirror) {
  const auto index = static_cast<size_t>(rank);
  Unpacker unpacker(content);
  const auto error = unpacker.Take<ncclResult_t>();
  for (size_t i = 0; i < mirror->members.size(); ++i) {
    Member& member = mirror->members[i];
    member.device = unpacker.Take<int>();
    member.has_come = unpacker.Take<bool>();
    member.connects_all |= unpacker.Take<bool>();
    if (unpacker.Take<bool>()) member.connects_to[index] = true;
  }
  if (error == ncclSuccess || mirror->members[index].error != ncclSuccess) return;
  mirror->members[index].error = error;
  SetLastError(unpacker.RestAsText());
}

bool SendOperation(const Operation& operation, uint64_t number, FrameLink* link) {
  Packer packer;
  packer.Put(HeadOf(operation));
  FrameLink::Parts inputs;
  if (const Collective* const collective = operation.collective.get()) {
    const Comm& comm = *operation.comm;
    inputs.push_back(
        BytesAt(collective->inputs[0], InputBytes(*collective, comm.clique->ranks, comm.rank)));
  }
  for (const Message& message : operation.messages) {
    packer.Put(
        MessageHead{.is_send = message.is_send, .peer = message.peer, .bytes = message.bytes});
    if (message.is_send) inputs.push_back(BytesAt(message.buffer, message.bytes));
  }
  FrameLink::Parts parts{packer.bytes()};
  parts.insert(parts.end(), inputs.begin(), inputs.end());
  return link->Send(FrameKind::kOperation, number, parts);
}

std::unique_ptr<GuestOperation> ReadOperation(Frame request, const std::shared_ptr<Comm>& comm) {
  auto guest = std::make_unique<GuestOperation>();
  guest->request = std::move(request);
  guest->operation.comm = comm;
  Unpacker unpacker(guest->request.span());
  const auto head = unpacker.Take<OperationHead>();
  guest->operation.is_by_host = head.is_by_host;
  if (head.is_collective) {
    ReadCollective(head, &unpacker, &guest->operation);
  } else {
    ReadMessages(head.messages, &unpacker, &guest->operation);
  }
  PlaceOutputs(guest.get());
  return guest;
}

void WriteOutputs(std::span<const std::byte> outputs, const Operation& operation) {
  Unpacker unpacker(outputs);
  if (operation.collective != nullptr) {
    if (!outputs.empty()) std::memcpy(operation.output, outputs.data(), outputs.size());
    return;
  }
  for (const Message& message : operation.messages) {
    if (message.is_send || message.bytes == 0) continue;
    std::memcpy(message.buffer, unpacker.TakeBytes(message.bytes).data(), message.bytes);
  }
}

}  // namespace onebit::testing::nccl
