// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How new communicators are made of the ranks of one: Split, while it is in order, and Shrink, also
// after it has failed.
//
// Ranks that are threads find each other in the group they share. Processes meet at a port of the
// first of them: for a split one that is opened now and told over the control channel; for a shrink
// one that every rank has held ready since it joined, because the control channel may be what died.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "comm/comm.h"

namespace onebit {
namespace {

using std::chrono::milliseconds;

// What a rank says in a split.
struct Wish {
  int color = Comm::kNoColor;
  int key = 0;
};

Bytes Encode(const Wish& wish) {
  return ByteWriter()
      .Integer(static_cast<uint32_t>(wish.color))
      .Integer(static_cast<uint32_t>(wish.key))
      .Take();
}

std::vector<Wish> DecodeWishes(const std::vector<Bytes>& contents) {
  std::vector<Wish> wishes;
  for (const Bytes& content : contents) {
    ByteReader reader(content);
    const auto color = static_cast<int>(reader.Integer<uint32_t>());
    wishes.push_back({color, static_cast<int>(reader.Integer<uint32_t>())});
  }
  return wishes;
}

// Ranks with the color of `rank`, in the order of their new ranks.
std::vector<int> MembersOf(const std::vector<Wish>& wishes, int rank) {
  const auto wish = [&](int r) { return wishes[static_cast<size_t>(r)]; };
  std::vector<int> members;
  for (int r = 0; r < static_cast<int>(wishes.size()); ++r) {
    if (wish(r).color == wish(rank).color) members.push_back(r);
  }
  std::ranges::stable_sort(members, {}, [&](int r) { return wish(r).key; });
  return members;
}

int PositionOf(std::span<const int> members, int rank) {
  return static_cast<int>(std::ranges::find(members, rank) - members.begin());
}

std::string TextOf(std::span<const int> ranks) {
  std::string text;
  for (const int rank : ranks) AppendFormat(&text, "{}{}", text.empty() ? "" : " ", rank);
  return text;
}

// What the members of a group of threads tell each other before they connect.
struct LocalIntroduction {
  AgreedValues values;
  Bytes address;
};

Bytes Encode(const LocalIntroduction& introduction) {
  ByteWriter writer;
  writer.Block(introduction.address);
  Append(introduction.values, &writer);
  return writer.Take();
}

LocalIntroduction DecodeLocal(const Bytes& bytes) {
  ByteReader reader(bytes);
  const auto address = reader.Block();
  LocalIntroduction introduction{.values = {}, .address = {address.begin(), address.end()}};
  introduction.values = ReadAgreed(&reader);
  return introduction;
}

// Ranks of a communicator that did not come to be are numbered as they would have been.
Status Explained(const Status& status, std::span<const int> members) {
  return Error(status.code(), "{} (new ranks 0, 1, ... would be ranks {} of the communicator)",
               status.text(), TextOf(members));
}

milliseconds RegroupTime(const CommOptions& options) {
  return milliseconds(options.regroup_timeout_ms);
}

}  // namespace

Result<std::unique_ptr<Comm>> Comm::Split(int color, int key, const JoinOptions* options) {
  // A color that cannot be is told to all, who would otherwise wait for this rank.
  constexpr std::string_view kWhat = "splitting the communicator";
  const CommOptions& used = options == nullptr ? options_ : options->comm;
  const Deadline deadline = std::chrono::steady_clock::now() + RegroupTime(used);
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<Bytes> contents,
                          Gather(Encode(Wish{color, key}), deadline, kWhat));
  const std::vector<Wish> wishes = DecodeWishes(contents);
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].color >= kNoColor) continue;
    return Error(Code::kInvalidArgument,
                 "rank {}: the color of rank {} is {}: it may be 0 or more, or "
                 "ONEBIT_SPLIT_NOCOLOR ({})",
                 rank_, rank, wishes[rank].color, kNoColor);
  }
  const std::vector<int> members = MembersOf(wishes, rank_);
  if (local_group_ != nullptr) {
    if (color == kNoColor) return std::unique_ptr<Comm>();
    return JoinLocalMembers(members, used);
  }
  // The first of each color opens a port; the others hear where it is, or why there is none.
  ByteWriter place;
  if (color != kNoColor && members.size() > 1 && members.front() == rank_) {
    const auto id =
        OpenMeetingPoint({.interfaces = fallback_->options.interfaces}, RegroupTime(used));
    place.Text(id.status().text());
    if (id.ok()) {
      const auto bytes = EncodeUniqueId(id.value());
      place.Block(std::as_bytes(std::span(bytes)));
    }
  }
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<Bytes> places, Gather(place.Take(), deadline, kWhat));
  if (color == kNoColor) return std::unique_ptr<Comm>();
  if (members.size() == 1) return JoinMembers(members, UniqueId(), options, {});
  ByteReader reader(places[static_cast<size_t>(members.front())]);
  if (const std::string error = reader.Text(); !error.empty()) {
    return Error(Code::kRemoteError, "rank {}: rank {} opened no port for the new communicator: {}",
                 rank_, members.front(), error);
  }
  std::array<char, kUniqueIdBytes> bytes{};
  const auto block = reader.Block();
  std::memcpy(bytes.data(), block.data(), std::min(block.size(), bytes.size()));
  ONEBIT_ASSIGN_OR_RETURN(const UniqueId id, DecodeUniqueId(bytes));
  return JoinMembers(members, id, options, {});
}

Result<std::unique_ptr<Comm>> Comm::Shrink(std::span<const int> excluded,
                                           const JoinOptions* options) {
  std::vector<int> members;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (std::ranges::find(excluded, rank) == excluded.end()) members.push_back(rank);
  }
  const CommOptions& used = options == nullptr ? options_ : options->comm;
  if (local_group_ != nullptr) return JoinLocalMembers(members, used);
  const int first = members.front();
  if (members.size() > 1 && first == rank_) ONEBIT_TRY(fallback_->place.Serve(RegroupTime(used)));
  return JoinMembers(
      members, fallback_->places[static_cast<size_t>(first)], options,
      {{"the ranks that remain of the communicator (onebitCommShrink)", TextOf(members)}});
}

Result<std::unique_ptr<Comm>> Comm::JoinMembers(std::span<const int> members, const UniqueId& place,
                                                const JoinOptions* options,
                                                AgreedValues also_agreed) const {
  JoinOptions joining = options == nullptr ? fallback_->options : *options;
  joining.control.rank = PositionOf(members, rank_);
  joining.control.ranks = static_cast<int>(members.size());
  joining.control.connect_timeout = RegroupTime(joining.comm);
  joining.control.is_place_reused = true;  // there may have been an attempt before this one
  joining.control.place = fallback_->options.control.place;
  joining.control.place_source = Format("rank {} of the former communicator", members.front());
  joining.locate = [place] { return Result<UniqueId>(place); };
  joining.is_location_final = true;
  joining.transport = fallback_->options.transport;
  joining.interfaces = fallback_->options.interfaces;
  joining.also_agreed = std::move(also_agreed);
  if (members.size() > 1) {
    auto joined = Join(joining);
    if (!joined.ok()) return Explained(joined.status(), members);
    return joined;
  }
  ONEBIT_ASSIGN_OR_RETURN(const Transport* local, Transport::Get("local"));
  ONEBIT_ASSIGN_OR_RETURN(auto alone, CreateLocalGroup(*local, 1, joining.comm));
  return std::move(alone.front());
}

Result<std::unique_ptr<Comm>> Comm::JoinLocalMembers(std::span<const int> members,
                                                     const CommOptions& options) const {
  const auto group = local_group_->Subgroup(members, rank_);
  std::unique_ptr<Comm> comm(new Comm(PositionOf(members, rank_), static_cast<int>(members.size()),
                                      group->id(), options, *transport_));
  comm->are_ranks_threads_ = true;
  comm->sharing_ranks_ = members.size();
  comm->local_group_ = group;
  // Failures of others end the endpoint, so it must be there before they are listened to.
  auto endpoint = Endpoint::Open(
      *transport_,
      {.rank = comm->rank_, .nranks = comm->ranks_, .comm_id = comm->id_, .sink = comm.get()});
  if (endpoint.ok()) comm->endpoint_ = std::move(endpoint).value();
  FailureListener* listener = comm.get();
  comm->control_ = std::make_unique<LocalControl>(group, comm->rank_, listener);
  Status status = endpoint.ok() ? comm->ConnectLocal() : endpoint.status();
  if (!status.ok()) return Explained(comm->Fail(std::move(status)), members);
  Log(LogLevel::kInfo, "communicator {:08x}: ranks {} of {:08x}", comm->id_, TextOf(members), id_);
  return comm;
}

Status Comm::ConnectLocal() {
  constexpr std::string_view kWhat = "making a communicator of some ranks";
  const Deadline deadline = std::chrono::steady_clock::now() + RegroupTime(options_);
  ONEBIT_ASSIGN_OR_RETURN(const Bytes address, endpoint_.Address());
  ONEBIT_ASSIGN_OR_RETURN(
      const std::vector<Bytes> contents,
      Gather(Encode(LocalIntroduction{.values = AgreedOptions(options_), .address = address}),
             deadline, kWhat));
  std::vector<AgreedValues> values;
  std::vector<Bytes> addresses;
  for (const Bytes& content : contents) {
    LocalIntroduction one = DecodeLocal(content);
    values.push_back(std::move(one.values));
    addresses.push_back(std::move(one.address));
  }
  ONEBIT_TRY(CompareAgreed(values));
  ONEBIT_TRY(endpoint_.Connect(addresses, options_.regroup_timeout_ms));
  // No endpoint may close before all are connected.
  return Gather({}, deadline, kWhat).status();
}

}  // namespace onebit
