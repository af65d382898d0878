// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/introduction.h"

#include <array>
#include <cstring>

#include "comm/host_claim.h"
#include "onebit/onebit.h"
#include "topology/placement.h"

namespace onebit {
namespace {

// A rank's contribution to the first gather.
struct Introduction {
  std::string process;
  UniqueId spare;  // rendezvous after the communicator has failed
  Placement placement;
  std::string host;            // CommOptions::host
  uint64_t memory_domain = 0;  // of the transport
  AgreedValues values;
};

Bytes Encode(const Introduction& introduction) {
  ByteWriter writer;
  writer.Text(introduction.process);
  const auto spare = EncodeUniqueId(introduction.spare);
  writer.Block(std::as_bytes(std::span(spare)));
  writer.Text(introduction.placement.machine);
  writer.Integer(static_cast<uint32_t>(introduction.placement.processors.size()));
  for (const uint64_t word : introduction.placement.processors) writer.Integer(word);
  writer.Text(introduction.host);
  writer.Integer(introduction.memory_domain);
  Append(introduction.values, &writer);
  return writer.Take();
}

Result<Introduction> DecodeIntroduction(const Bytes& bytes, size_t rank) {
  ByteReader reader(bytes);
  Introduction introduction;
  introduction.process = reader.Text();
  const auto spare = reader.Block();
  introduction.placement.machine = reader.Text();
  const uint32_t words = reader.Integer<uint32_t>();
  for (uint32_t i = 0; i < words && !reader.is_short(); ++i) {
    introduction.placement.processors.push_back(reader.Integer<uint64_t>());
  }
  introduction.host = reader.Text();
  introduction.memory_domain = reader.Integer<uint64_t>();
  introduction.values = ReadAgreed(&reader);
  if (!reader.is_complete() || spare.size() != kUniqueIdBytes) {
    return Error(Code::kCorrupt,
                 "rank {} introduced itself in an unknown form: do all ranks have the same version "
                 "of onebit?",
                 rank);
  }
  std::array<char, kUniqueIdBytes> id;
  std::memcpy(id.data(), spare.data(), id.size());
  ONEBIT_ASSIGN_OR_RETURN(introduction.spare, DecodeUniqueId(id));
  return introduction;
}

// The variable of the transport's that ends so, or what it sets, in words.
std::string NameOf(const Transport& transport, std::string_view end, std::string_view in_words) {
  const onebitTransportProperties& properties = transport.properties();
  for (size_t i = 0; i < properties.settingCount; ++i) {
    const std::string_view name = properties.settings[i].name;
    if (name.ends_with(end)) return std::string(name);
  }
  return std::string(in_words);
}

AgreedValues ValuesOf(const JoinOptions& options, const Transport& transport) {
  AgreedValues values = {
      {"the version of onebit", Format("{}.{}.{}", ONEBIT_MAJOR, ONEBIT_MINOR, ONEBIT_PATCH)},
      {"ONEBIT_TRANSPORT", transport.properties().name},
      {NameOf(transport, "_EAGER_BYTES", "the eager limit of the transport"),
       Format("{}", transport.properties().eagerBytes)},
      {NameOf(transport, "_NATIVE_DENSE", "the transport's own dense allreduce"),
       transport.properties().nativeDense != 0 ? "1" : "0"},
      {"ONEBIT_HEARTBEAT_MS", Format("{}", options.control.heartbeat.count())},
      {"ONEBIT_LOSS_TIMEOUT_MS", Format("{}", options.control.loss_timeout.count())},
  };
  const onebitTransportProperties& properties = transport.properties();
  if (properties.agreedName != nullptr && properties.agreedValue != nullptr) {
    values.emplace_back(properties.agreedName, properties.agreedValue);
  }
  for (auto& value : AgreedOptions(options.comm)) values.push_back(std::move(value));
  return values;
}

}  // namespace

Result<GroupFacts> Introduce(const JoinOptions& options, const Transport& transport,
                             const UniqueId& spare, ControlClient* control) {
  const Introduction mine = {.process = options.control.process,
                             .spare = spare,
                             .placement = PlacementOfThisThread(),
                             .host = options.comm.host,
                             .memory_domain = transport.properties().memoryDomain,
                             .values = ValuesOf(options, transport)};
  ONEBIT_ASSIGN_OR_RETURN(
      const std::vector<Bytes> all,
      control->Gather(Encode(mine), control->connect_deadline(), "waiting for all ranks to join"));
  GroupFacts found;
  std::vector<std::string> processes;
  std::vector<Placement> placements;
  std::vector<HostClaim> claims;
  std::vector<AgreedValues> values;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    ONEBIT_ASSIGN_OR_RETURN(Introduction one, DecodeIntroduction(all[rank], rank));
    processes.push_back(std::move(one.process));
    found.spares.push_back(one.spare);
    claims.push_back({.word = std::move(one.host), .machine = one.placement.machine});
    placements.push_back(std::move(one.placement));
    found.is_one_host &= one.memory_domain != 0 && one.memory_domain == mine.memory_domain;
    values.push_back(std::move(one.values));
  }
  control->SetServerRank(processes);
  // The server's host may not know by which of its addresses the others reach it; they do.
  for (UniqueId& one : found.spares) {
    if (!one.address.is_any()) continue;
    const uint16_t port = one.address.port();
    one.address = control->server();
    one.address.set_port(port);
  }
  // Every rank decides alike.
  ONEBIT_TRY(CompareAgreed(values));
  ONEBIT_ASSIGN_OR_RETURN(found.hosts, MapHosts(claims, options.comm.host_ranks));
  found.sharing_ranks = RanksSharing(mine.placement, placements);
  return found;
}

}  // namespace onebit
