// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/common/address_head.h"

#include <unistd.h>

#include <cctype>
#include <cstring>
#include <string>
#include <type_traits>

#include "plugins/common/host_identity.h"

namespace onebit::plugin {
namespace {

static_assert(std::has_unique_object_representations_v<AddressHead>, "padding would travel");

uint64_t ChecksumOf(const void* address, size_t bytes, uint64_t seed) {
  constexpr size_t kFrom = offsetof(AddressHead, comm_id);
  return HashOf(static_cast<const std::byte*>(address) + kFrom, bytes - kFrom, seed);
}

AddressHead HeadAt(const void* address) {
  AddressHead head;
  std::memcpy(&head, address, sizeof head);
  return head;
}

// The prefix of the transport's settings.
std::string PrefixOf(const char* transport) {
  std::string prefix = "ONEBIT_";
  for (const char* letter = transport; *letter != '\0'; ++letter) {
    prefix += static_cast<char>(std::toupper(static_cast<unsigned char>(*letter)));
  }
  return prefix;
}

}  // namespace

AddressHead WithHostName(AddressHead head) {
  gethostname(head.host_name, sizeof head.host_name - 1);
  return head;
}

void SealAddress(uint64_t magic, void* address, size_t bytes) {
  AddressHead head = HeadAt(address);
  head.magic = magic;
  head.checksum = ChecksumOf(address, bytes, magic);
  std::memcpy(address, &head, sizeof head);
}

const char* ProblemOf(uint64_t magic, const void* address, size_t bytes) {
  const AddressHead head = HeadAt(address);
  if (head.magic != magic) return "it is from another transport, or from another version";
  if (head.checksum != ChecksumOf(address, bytes, magic)) return "it was changed in transit";
  if (head.host_name[sizeof head.host_name - 1] != '\0') return "it is malformed";
  return nullptr;
}

onebitResult_t CheckAddress(const BaseContext& context, const AddressHead& own,
                            const GivenAddress& given) {
  const AddressHead& head = given.head;
  if (given.problem != nullptr) {
    context.Warn("rank %u: the address of rank %d (%zu bytes) is unusable: %s", own.rank,
                 given.rank, given.bytes, given.problem);
    return onebitInvalidArgument;
  }
  if (head.comm_id != own.comm_id || head.rank != static_cast<uint32_t>(given.rank) ||
      head.nranks != own.nranks) {
    context.Warn("rank %u: the address of rank %d belongs to rank %u of %u in communicator %llx",
                 own.rank, given.rank, head.rank, head.nranks,
                 static_cast<unsigned long long>(head.comm_id));
    return onebitInvalidArgument;
  }
  if (head.eager_bytes != own.eager_bytes || head.early_bytes != own.early_bytes) {
    const std::string prefix = PrefixOf(context.name());
    context.Warn(
        "rank %u has %s_EAGER_BYTES=%u and %s_EARLY_BYTES=%u, rank %d on %s has %u and %u: they "
        "must be equal",
        own.rank, prefix.c_str(), own.eager_bytes, prefix.c_str(), own.early_bytes, given.rank,
        head.host_name, head.eager_bytes, head.early_bytes);
    return onebitInvalidUsage;
  }
  return onebitSuccess;
}

}  // namespace onebit::plugin
