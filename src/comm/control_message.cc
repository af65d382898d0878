// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One byte for the kind, then the fields in the order of the structures.
#include "comm/control_message.h"

#include <algorithm>

namespace onebit {
namespace {

enum class Kind : uint8_t {
  kJoin = 1,
  kGather = 2,
  kReport = 3,
  kLeave = 4,
  kRankAlive = 5,
  kWhoIsMissing = 6,
  kCalls = 7,
  kWaits = 8,
  kJoined = 17,
  kGathered = 18,
  kFailed = 19,
  kHubAlive = 20,
  kMayEnd = 21,
  kRefused = 22,
};

// The origin of a failure.
enum class Source : uint8_t { kRank = 0, kLoss = 1, kGroup = 2 };

constexpr uint32_t kNobody = UINT32_MAX;

// Texts are for people, so a long one is cut.
std::string_view Shortened(const std::string& text) {
  return std::string_view(text).substr(0, kMaxContentBytes);
}

ByteWriter Begin(Kind kind) {
  ByteWriter writer;
  writer.Integer(static_cast<uint8_t>(kind));
  return writer;
}

void AppendStatus(const Status& status, ByteWriter* writer) {
  writer->Integer(static_cast<uint32_t>(status.code())).Text(Shortened(status.text()));
}

// An unknown code comes from a newer library; it is an error all the same.
Status ReadStatus(ByteReader* reader) {
  const auto code = static_cast<Code>(reader->Integer<uint32_t>());
  std::string text = reader->Text();
  switch (code) {
    case Code::kOk:
    case Code::kInProgress:
      return {Code::kInternalError, std::move(text)};
    case Code::kUnhandledCudaError:
    case Code::kSystemError:
    case Code::kInternalError:
    case Code::kInvalidArgument:
    case Code::kInvalidUsage:
    case Code::kRemoteError:
    case Code::kTimeout:
    case Code::kMismatch:
    case Code::kCorrupt:
    case Code::kPeerLost:
    case Code::kNotAuthenticated:
    case Code::kDetached:
    case Code::kAborted:
    case Code::kOutOfMemory:
      return {code, std::move(text)};
  }
  return {Code::kInternalError, std::move(text)};
}

Bytes EncodeOne(const Join& join) {
  return Begin(Kind::kJoin)
      .Integer(join.rank)
      .Integer(join.ranks)
      .Integer(join.heartbeat_ms)
      .Integer(join.loss_timeout_ms)
      .Text(Shortened(join.process))
      .Text(Shortened(join.job))
      .Take();
}
Bytes EncodeOne(const Gather& gather) {
  return Begin(Kind::kGather).Integer(gather.number).Block(gather.content).Take();
}
Bytes EncodeOne(const Report& report) {
  ByteWriter writer = Begin(Kind::kReport);
  writer.Integer(report.lost.value_or(kNobody));
  AppendStatus(report.cause, &writer);
  return writer.Take();
}
Bytes EncodeOne(const RecordBatch& calls) {
  ByteWriter writer = Begin(Kind::kCalls);
  writer.Integer(calls.skipped)
      .Integer(calls.records.front().sequence)
      .Integer(static_cast<uint32_t>(calls.records.size()));
  for (const CallRecord& record : calls.records) {
    writer.Integer(record.digest).Text(ShortText(record));
  }
  return writer.Take();
}
Bytes EncodeOne(const WhoIsMissing&) { return Begin(Kind::kWhoIsMissing).Take(); }
Bytes EncodeOne(const Leave&) { return Begin(Kind::kLeave).Take(); }
Bytes EncodeOne(const RankAlive&) { return Begin(Kind::kRankAlive).Take(); }
Bytes EncodeOne(const Waits& waits) {
  return Begin(Kind::kWaits)
      .Integer(static_cast<uint8_t>(waits.is_gather))
      .Integer(waits.gathers)
      .Integer(waits.calls)
      .Text(Shortened(waits.what))
      .Take();
}
Bytes EncodeOne(const Joined& joined) {
  return Begin(Kind::kJoined).Integer(joined.comm_id).Text(Shortened(joined.process)).Take();
}
Bytes EncodeOne(const Gathered& gathered) {
  ByteWriter writer = Begin(Kind::kGathered);
  writer.Integer(gathered.number).Integer(static_cast<uint32_t>(gathered.contents.size()));
  for (const Bytes& content : gathered.contents) writer.Block(content);
  return writer.Take();
}

Source SourceOf(const Failure& failure) {
  if (failure.is_of_group) return Source::kGroup;
  return failure.is_loss ? Source::kLoss : Source::kRank;
}

Bytes EncodeOne(const Failed& failed) {
  ByteWriter writer = Begin(Kind::kFailed);
  writer.Integer(static_cast<uint32_t>(failed.first.rank))
      .Integer(static_cast<uint8_t>(SourceOf(failed.first)));
  AppendStatus(failed.first.cause, &writer);
  return writer.Take();
}
Bytes EncodeOne(const HubAlive& alive) {
  ByteWriter writer = Begin(Kind::kHubAlive);
  writer.Integer(alive.missing).Integer(static_cast<uint32_t>(alive.some_missing.size()));
  for (const uint32_t rank : alive.some_missing) writer.Integer(rank);
  return writer.Text(Shortened(alive.note)).Take();
}
Bytes EncodeOne(const MayEnd&) { return Begin(Kind::kMayEnd).Take(); }
Bytes EncodeOne(const Refused& refused) {
  ByteWriter writer = Begin(Kind::kRefused);
  writer.Integer(static_cast<uint8_t>(refused.is_other_job));
  AppendStatus(refused.cause, &writer);
  return writer.Take();
}

// Returns nothing if no rank would write these bytes.
std::optional<RecordBatch> ReadCalls(ByteReader* reader) {
  RecordBatch calls = {.skipped = reader->Integer<uint64_t>(), .records = {}};
  const auto first = reader->Integer<uint64_t>();
  const auto count = reader->Integer<uint32_t>();
  // As below, nothing is reserved for a count that a peer claims.
  for (uint32_t i = 0; i < count && !reader->is_short(); ++i) {
    CallRecord& record = calls.records.emplace_back();
    record.sequence = first + i;
    record.digest = reader->Integer<uint32_t>();
    record.text = reader->Text();
    if (record.text.size() > kMaxCallTextBytes) return std::nullopt;
  }
  if (calls.records.empty()) return std::nullopt;
  return calls;
}

Gathered ReadGathered(ByteReader* reader) {
  Gathered gathered = {.number = reader->Integer<uint64_t>(), .contents = {}};
  const uint32_t count = reader->Integer<uint32_t>();
  // The count reserves no memory: each content is present before space for the next is needed.
  for (uint32_t i = 0; i < count && !reader->is_short(); ++i) {
    const auto content = reader->Block();
    gathered.contents.emplace_back(content.begin(), content.end());
  }
  return gathered;
}

HubAlive ReadHubAlive(ByteReader* reader) {
  HubAlive alive = {.missing = reader->Integer<uint32_t>(), .some_missing = {}, .note = {}};
  const uint32_t count = reader->Integer<uint32_t>();
  for (uint32_t i = 0; i < count && !reader->is_short(); ++i) {
    alive.some_missing.push_back(reader->Integer<uint32_t>());
  }
  alive.note = reader->Text();
  return alive;
}

Status Corrupt(uint8_t kind) {
  return Error(Code::kCorrupt, "a control message of kind {} is malformed", kind);
}

}  // namespace

Bytes Encode(const RankMessage& message) {
  return std::visit([](const auto& one) { return EncodeOne(one); }, message);
}

Bytes Encode(const HubMessage& message) {
  return std::visit([](const auto& one) { return EncodeOne(one); }, message);
}

Result<RankMessage> DecodeRankMessage(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto kind = reader.Integer<uint8_t>();
  RankMessage message;
  switch (static_cast<Kind>(kind)) {
    case Kind::kJoin: {
      Join join;
      join.rank = reader.Integer<uint32_t>();
      join.ranks = reader.Integer<uint32_t>();
      join.heartbeat_ms = reader.Integer<uint32_t>();
      join.loss_timeout_ms = reader.Integer<uint32_t>();
      join.process = reader.Text();
      join.job = reader.Text();
      message = std::move(join);
      break;
    }
    case Kind::kGather: {
      Gather gather = {.number = reader.Integer<uint64_t>(), .content = {}};
      const auto content = reader.Block();
      gather.content.assign(content.begin(), content.end());
      message = std::move(gather);
      break;
    }
    case Kind::kReport: {
      Report report;
      const auto lost = reader.Integer<uint32_t>();
      if (lost != kNobody) report.lost = lost;
      report.cause = ReadStatus(&reader);
      message = std::move(report);
      break;
    }
    case Kind::kCalls: {
      auto calls = ReadCalls(&reader);
      if (!calls) return Corrupt(kind);
      message = *std::move(calls);
      break;
    }
    case Kind::kWhoIsMissing:
      message = WhoIsMissing{};
      break;
    case Kind::kLeave:
      message = Leave{};
      break;
    case Kind::kRankAlive:
      message = RankAlive{};
      break;
    case Kind::kWaits: {
      const auto is_gather = reader.Integer<uint8_t>();
      if (is_gather > 1) return Corrupt(kind);
      Waits waits = {.is_gather = is_gather == 1, .what = {}};
      waits.gathers = reader.Integer<uint64_t>();
      waits.calls = reader.Integer<uint64_t>();
      waits.what = reader.Text();
      message = std::move(waits);
      break;
    }
    case Kind::kJoined:
    case Kind::kGathered:
    case Kind::kFailed:
    case Kind::kHubAlive:
    case Kind::kMayEnd:
    case Kind::kRefused:
      return Corrupt(kind);
  }
  // An unknown kind leaves the default message, and the reader with unread or missing bytes.
  if (!reader.is_complete() ||
      (message.index() == 0 && kind != static_cast<uint8_t>(Kind::kJoin))) {
    return Corrupt(kind);
  }
  return message;
}

Result<HubMessage> DecodeHubMessage(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto kind = reader.Integer<uint8_t>();
  HubMessage message;
  switch (static_cast<Kind>(kind)) {
    case Kind::kJoined: {
      Joined joined;
      joined.comm_id = reader.Integer<uint64_t>();
      joined.process = reader.Text();
      message = std::move(joined);
      break;
    }
    case Kind::kGathered:
      message = ReadGathered(&reader);
      break;
    case Kind::kFailed: {
      Failed failed;
      failed.first.rank = static_cast<int>(std::min(reader.Integer<uint32_t>(), kMaxRanks));
      const auto source = static_cast<Source>(reader.Integer<uint8_t>());
      if (source > Source::kGroup) return Corrupt(kind);
      failed.first.is_loss = source == Source::kLoss;
      failed.first.is_of_group = source == Source::kGroup;
      failed.first.cause = ReadStatus(&reader);
      message = std::move(failed);
      break;
    }
    case Kind::kHubAlive:
      message = ReadHubAlive(&reader);
      break;
    case Kind::kMayEnd:
      message = MayEnd{};
      break;
    case Kind::kRefused: {
      const auto is_other_job = reader.Integer<uint8_t>();
      if (is_other_job > 1) return Corrupt(kind);
      message = Refused{.is_other_job = is_other_job == 1, .cause = ReadStatus(&reader)};
      break;
    }
    case Kind::kJoin:
    case Kind::kGather:
    case Kind::kReport:
    case Kind::kCalls:
    case Kind::kWhoIsMissing:
    case Kind::kLeave:
    case Kind::kRankAlive:
    case Kind::kWaits:
      return Corrupt(kind);
  }
  if (!reader.is_complete() ||
      (message.index() == 0 && kind != static_cast<uint8_t>(Kind::kJoined))) {
    return Corrupt(kind);
  }
  return message;
}

}  // namespace onebit
