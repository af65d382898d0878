// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One byte for the kind, then the fields in the order of the structures.
#include "comm/meeting_message.h"

#include <algorithm>
#include <string_view>

namespace onebit {
namespace {

enum class MeetingKind : uint8_t {
  kVisit = 1,
  kStillHere = 2,
  kHasJoined = 3,
  kHostState = 17,
  kMoveTo = 18,
  kGoOn = 19,
  kRefusal = 20,
};

ByteWriter BeginMessage(MeetingKind kind) {
  ByteWriter writer;
  writer.Integer(static_cast<uint8_t>(kind));
  return writer;
}

void AppendRanks(const std::vector<uint32_t>& ranks, ByteWriter* writer) {
  writer->Integer(static_cast<uint32_t>(ranks.size()));
  for (const uint32_t rank : ranks) writer->Integer(rank);
}

// No count is believed before its items have arrived.
std::vector<uint32_t> ReadRanks(ByteReader* reader) {
  std::vector<uint32_t> ranks;
  const uint32_t count = reader->Integer<uint32_t>();
  for (uint32_t i = 0; i < count && !reader->is_short(); ++i) {
    ranks.push_back(reader->Integer<uint32_t>());
  }
  return ranks;
}

template <typename Array>
void ReadArray(ByteReader* reader, Array* array) {
  for (auto& byte : *array) byte = reader->Integer<uint8_t>();
}

// The fields are flags, so anything but 0 and 1 is no message of ours.
bool ReadFlag(ByteReader* reader, bool* is_wrong) {
  const uint8_t value = reader->Integer<uint8_t>();
  *is_wrong |= value > 1;
  return value == 1;
}

Bytes EncodeOne(const Visit& visit) {
  ByteWriter writer = BeginMessage(MeetingKind::kVisit);
  writer.Integer(visit.rank)
      .Integer(static_cast<uint8_t>(visit.is_question))
      .Integer(static_cast<uint8_t>(visit.needs_quorum))
      .Integer(visit.patience_ms);
  for (const unsigned char byte : visit.wish) writer.Integer(byte);
  return writer.Take();
}
Bytes EncodeOne(const StillHere&) { return BeginMessage(MeetingKind::kStillHere).Take(); }
Bytes EncodeOne(const HasJoined&) { return BeginMessage(MeetingKind::kHasJoined).Take(); }
Bytes EncodeOne(const HostState& state) {
  ByteWriter writer = BeginMessage(MeetingKind::kHostState);
  writer.Integer(static_cast<uint8_t>(state.is_away))
      .Integer(static_cast<uint8_t>(state.is_other_wish))
      .Integer(state.missing);
  AppendRanks(state.some_missing, &writer);
  return writer.Take();
}
Bytes EncodeOne(const MoveTo& move) {
  return BeginMessage(MeetingKind::kMoveTo).Integer(move.host).Take();
}
Bytes EncodeOne(const GoOn& go) {
  ByteWriter writer = BeginMessage(MeetingKind::kGoOn);
  AppendRanks(go.members, &writer);
  writer.Integer(go.port);
  for (const unsigned char byte : go.key.bytes) writer.Integer(byte);
  return writer.Take();
}
Bytes EncodeOne(const Refusal& refused) {
  return BeginMessage(MeetingKind::kRefusal)
      .Integer(static_cast<uint8_t>(refused.cause))
      .Integer(refused.went_on)
      .Text(std::string_view(refused.text).substr(0, kMostRefusalText))
      .Take();
}

template <typename Message>
Result<Message> Checked(Message message, const ByteReader& reader, bool is_wrong) {
  if (is_wrong || !reader.is_complete()) {
    return Error(Code::kCorrupt,
                 "a message between ranks that regroup cannot be read: do all ranks have the same "
                 "version of onebit?");
  }
  return message;
}

}  // namespace

Bytes Encode(const VisitorMessage& message) {
  return std::visit([](const auto& one) { return EncodeOne(one); }, message);
}

Bytes Encode(const HostMessage& message) {
  return std::visit([](const auto& one) { return EncodeOne(one); }, message);
}

Result<VisitorMessage> DecodeVisitorMessage(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  VisitorMessage message;
  bool is_wrong = false;
  switch (static_cast<MeetingKind>(reader.Integer<uint8_t>())) {
    case MeetingKind::kVisit: {
      Visit visit;
      visit.rank = reader.Integer<uint32_t>();
      visit.is_question = ReadFlag(&reader, &is_wrong);
      visit.needs_quorum = ReadFlag(&reader, &is_wrong);
      visit.patience_ms = reader.Integer<uint32_t>();
      ReadArray(&reader, &visit.wish);
      message = visit;
      break;
    }
    case MeetingKind::kStillHere:
      message = StillHere{};
      break;
    case MeetingKind::kHasJoined:
      message = HasJoined{};
      break;
    case MeetingKind::kHostState:
    case MeetingKind::kMoveTo:
    case MeetingKind::kGoOn:
    case MeetingKind::kRefusal:
    default:
      is_wrong = true;
  }
  return Checked(std::move(message), reader, is_wrong);
}

Result<HostMessage> DecodeHostMessage(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  HostMessage message;
  bool is_wrong = false;
  switch (static_cast<MeetingKind>(reader.Integer<uint8_t>())) {
    case MeetingKind::kHostState: {
      HostState state;
      state.is_away = ReadFlag(&reader, &is_wrong);
      state.is_other_wish = ReadFlag(&reader, &is_wrong);
      state.missing = reader.Integer<uint32_t>();
      state.some_missing = ReadRanks(&reader);
      message = std::move(state);
      break;
    }
    case MeetingKind::kMoveTo:
      message = MoveTo{.host = reader.Integer<uint32_t>()};
      break;
    case MeetingKind::kGoOn: {
      GoOn go;
      go.members = ReadRanks(&reader);
      go.port = reader.Integer<uint16_t>();
      ReadArray(&reader, &go.key.bytes);
      message = std::move(go);
      break;
    }
    case MeetingKind::kRefusal: {
      Refusal refused;
      const uint8_t cause = reader.Integer<uint8_t>();
      is_wrong = cause > static_cast<uint8_t>(Refusal::Cause::kFailed);
      refused.cause = static_cast<Refusal::Cause>(cause);
      refused.went_on = reader.Integer<uint32_t>();
      refused.text = reader.Text();
      message = std::move(refused);
      break;
    }
    case MeetingKind::kHasJoined:
      message = HasJoined{};
      break;
    case MeetingKind::kVisit:
    case MeetingKind::kStillHere:
    default:
      is_wrong = true;
  }
  return Checked(std::move(message), reader, is_wrong);
}

}  // namespace onebit
