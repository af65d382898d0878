// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Joins processes into a communicator: they meet on the control channel, compare what must be
// equal, and connect through the transport.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "comm/comm.h"
#include "comm/host_claim.h"
#include "onebit/onebit.h"
#include "topology/placement.h"

namespace onebit {
namespace {

constexpr std::chrono::milliseconds kTimeToReport{2000};

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
                 "rank {} introduces itself in an unknown form: is its onebit another version?",
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

// Facts a rank derives from all introductions.
struct GroupFacts {
  HostMap hosts;
  size_t sharing_ranks = 1;      // on this rank's processors, itself included
  bool is_one_host = true;       // all ranks can share memory over the transport
  std::vector<UniqueId> spares;  // by rank
};

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

// Other ranks reach this process at the address it uses towards the control server. A server that
// listens on every interface tells its own host no address that the others can use.
SocketAddress SpareAddress(const ControlClient& control) {
  return control.server().is_any() ? control.server() : control.local_address();
}

uint64_t MillisecondsUntil(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<uint64_t>(std::max<int64_t>(left.count(), 1));
}

// Joins only to report the failure, because the other ranks would wait for this one. If all ranks
// have the same problem, rank 0 may be gone already.
Status CannotTakePart(const JoinOptions& options, const Status& cause) {
  ControlClient::Options control = options.control;
  control.connect_timeout = std::min(control.connect_timeout, kTimeToReport);
  const auto joined = ControlClient::Join(control, options.locate, options.is_location_final);
  if (!joined.ok()) return cause;
  static_cast<void>(
      joined.value()->Report({.rank = control.rank, .is_loss = false, .cause = cause}));
  return cause;
}

}  // namespace

Status Comm::ConnectTo(ControlClient* control) {
  ONEBIT_ASSIGN_OR_RETURN(const Bytes mine, endpoint_.Address());
  ONEBIT_ASSIGN_OR_RETURN(
      const std::vector<Bytes> addresses,
      control->Gather(mine, control->connect_deadline(), "exchanging addresses"));
  // From here on the loss or failure of a rank ends the wait for it.
  control->SetListener(this);
  ONEBIT_TRY(endpoint_.Connect(addresses, MillisecondsUntil(control->connect_deadline())));
  // No endpoint may close before all are connected.
  return control->Gather({}, control->connect_deadline(), "waiting for all ranks to connect")
      .status();
}

Result<std::unique_ptr<Comm>> Comm::Join(const JoinOptions& options, const StopCheck& stop) {
  const auto transport = Transport::Get(options.transport);
  if (!transport.ok()) return CannotTakePart(options, transport.status());
  ONEBIT_ASSIGN_OR_RETURN(
      std::unique_ptr<ControlClient> joined,
      ControlClient::Join(options.control, options.locate, options.is_location_final, stop));
  ControlClient* const control = joined.get();
  // From here on the others wait for this rank, so its errors are reported to them.
  const auto fail = [&](const Status& cause) {
    const int self = options.control.rank;
    return DescribeFailure(control->Report({.rank = self, .is_loss = false, .cause = cause}), self);
  };
  auto spare = OpenSparePort({.interfaces = options.interfaces}, SpareAddress(*control));
  if (!spare.ok()) return fail(spare.status());
  // The transport listens where survivors would meet: that address is known to be reachable.
  SocketAddress address = spare.value().id.address;
  address.set_port(0);
  auto found = Introduce(options, *transport.value(), spare.value().id, control);
  if (!found.ok()) {
    const Status& status = found.status();
    return status.code() == Code::kMismatch ? status : fail(status);
  }
  const uint64_t id = control->comm_id();
  const int rank = options.control.rank;
  const int ranks = options.control.ranks;
  std::unique_ptr<Comm> comm(
      new Comm(rank, ranks, static_cast<uint32_t>(id), options.comm, *transport.value()));
  const bool is_one_host = found.value().is_one_host;
  comm->sharing_ranks_ = found.value().sharing_ranks;
  comm->hosts_ = std::move(found.value().hosts);
  auto point = MeetingPoint::Open(std::move(spare).value(), rank, std::move(found.value().spares));
  if (!point.ok()) return fail(point.status());
  comm->fallback_ = Fallback{.options = options, .point = std::move(point).value()};
  comm->fallback_->options.group = nullptr;
  comm->control_ = std::move(joined);  // ends before what it reports to, whatever happens
  auto endpoint = Endpoint::Open(
      *transport.value(), {.rank = rank,
                           .nranks = ranks,
                           .comm_id = id,
                           .sink = comm.get(),
                           .group = options.group == nullptr ? nullptr : options.group->handle(),
                           .key = control->transport_key().bytes.data(),
                           .address = address.get(),
                           .address_bytes = address.size(),
                           .server = control->server().get(),
                           .server_bytes = control->server().size(),
                           .is_one_host = is_one_host});
  if (!endpoint.ok()) return fail(endpoint.status());
  comm->endpoint_ = std::move(endpoint).value();
  if (Status status = comm->ConnectTo(control); !status.ok()) return fail(status);
  control->EndJoining();
  Log(LogLevel::kInfo,
      "communicator {:08x}: rank {} of {} on {}, transport {}, control channel at {}", comm->id_,
      rank, ranks, comm->hosts_.Text(), transport.value()->properties().name,
      control->server().Text());
  return comm;
}

}  // namespace onebit
