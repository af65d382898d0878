// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Feeds arbitrary input to the control channel. The first byte selects the receiver of the rest:
// 0 the opener of frames, as bytes of a connection; 1 a hub, as messages of ranks; 2 a client, as a
// message of the hub; 3 the decoder of unique ids; 4 and 5 the decoders of messages between ranks
// that meet. Any input must leave the process alive, errors with a text, and a hub whose counts add
// up.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "comm/control_hub.h"
#include "comm/control_message.h"
#include "comm/meeting_message.h"
#include "comm/secret.h"
#include "comm/unique_id.h"

namespace {

using namespace onebit;

void Require(bool claim) {
  if (!claim) std::abort();
}

constexpr size_t kMostMessageBytes = 200;

// Reads pieces of up to 255 bytes, each after its length. A length of 0 inserts frames of an honest
// sealer, so that the input can also damage frames after valid ones.
void OpenFrames(std::span<const std::byte> input) {
  const JobKey key = KeyOfSecret("fuzz");
  FrameSealer sealer(key);
  FrameOpener opener(key, kMostMessageBytes);
  size_t sealed = 0;
  size_t opened = 0;
  while (!input.empty()) {
    const size_t size = std::min(std::to_integer<size_t>(input[0]), input.size() - 1);
    if (size == 0) {
      Bytes frame;
      sealer.Append(Bytes(sealed++ % kMostMessageBytes), &frame);
      opener.Feed(frame);
    } else {
      opener.Feed(input.subspan(1, size));
    }
    input = input.subspan(1 + size);
    while (true) {
      const auto message = opener.Next();
      if (!message.ok()) return Require(!message.status().text().empty());
      if (!message.value().has_value()) break;
      // Nobody else has the key.
      Require(++opened <= sealed);
      Require(message.value()->size() == (opened - 1) % kMostMessageBytes);
    }
  }
}

// Messages of the hub must be well-formed and go to existing links.
class CheckedLinks final : public ControlLinks {
 public:
  void Send(uint64_t link, const HubMessage& message) override {
    Require(is_open_[link]);
    const auto decoded = DecodeHubMessage(Encode(message));
    Require(decoded.ok() && decoded.value().index() == message.index());
  }
  void Close(uint64_t link) override { Require(std::exchange(is_open_[link], false)); }
  bool IsLossy(uint64_t link) const override { return link % 2 == 0; }

  void Open(uint64_t link) { is_open_[link] = true; }
  bool is_open(uint64_t link) { return is_open_[link]; }

 private:
  std::map<uint64_t, bool> is_open_;
};

// Each step: link, event, and for a message its length and bytes.
void DriveStar(std::span<const std::byte> input) {
  constexpr size_t kLinks = 8;
  CheckedLinks links;
  ControlHub hub("star:1", 7, links);
  // Link numbers are not reused: a slot whose link has closed gets a new one.
  uint64_t link_of_slot[kLinks] = {};
  uint64_t next_link = 1;
  Clock::time_point now(std::chrono::hours(1));
  ByteReader reader(input);
  while (!reader.is_short()) {
    const auto slot = reader.Integer<uint8_t>();
    const auto event = reader.Integer<uint8_t>();
    uint64_t& link = link_of_slot[slot % kLinks];
    if (!links.is_open(link)) links.Open(link = next_link++);
    if (event < 16) {
      links.Close(link);
      hub.OnGone(link, "went");
    } else if (event < 32) {
      now += std::chrono::milliseconds(slot);
      Require(hub.OnTimer(now) > now);
    } else if (event < 40) {
      hub.OnStall(now);
    } else {
      Bytes bytes;
      for (size_t size = reader.Integer<uint8_t>(); size > 0 && !reader.is_short(); --size) {
        bytes.push_back(std::byte{reader.Integer<uint8_t>()});
      }
      const auto message = DecodeRankMessage(bytes);
      if (!message.ok()) {
        links.Close(link);
        hub.OnGone(link, message.status().text());
      } else {
        // A group may have 65536 ranks, but a small one serves as well and is faster.
        const Join* join = std::get_if<Join>(&message.value());
        if (join != nullptr && join->ranks > 64 && join->ranks <= kMaxRanks) continue;
        Require(Encode(message.value()) == bytes ||
                std::holds_alternative<Report>(message.value()));
        hub.OnMessage(link, message.value(), now);
      }
    }
    Require(hub.present() <= kLinks);
    Require(!hub.is_over() || hub.present() == 0);
  }
}

void DecodeForClient(std::span<const std::byte> input) {
  const auto message = DecodeHubMessage(input);
  if (!message.ok()) return Require(!message.status().text().empty());
  if (std::holds_alternative<Failed>(message.value())) {
    Require(!std::get<Failed>(message.value()).first.cause.ok());
  } else if (std::holds_alternative<Refused>(message.value())) {
    Require(!std::get<Refused>(message.value()).cause.ok());
  } else {
    const Bytes again = Encode(message.value());
    Require(std::equal(again.begin(), again.end(), input.begin(), input.end()));
  }
}

void DecodeId(std::span<const std::byte> input) {
  std::array<char, kUniqueIdBytes> bytes = {};
  for (size_t i = 0; i < std::min(input.size(), bytes.size()); ++i) {
    bytes[i] = static_cast<char>(input[i]);
  }
  const auto id = DecodeUniqueId(bytes);
  if (!id.ok()) return Require(!id.status().text().empty());
  Require(!id.value().address.Text().empty());
}

template <typename Message>
void DecodeForMeeting(const Result<Message>& message, std::span<const std::byte> input) {
  if (!message.ok()) return Require(!message.status().text().empty());
  const Bytes again = Encode(message.value());
  // Only long texts are not written as they were read.
  Require(std::equal(again.begin(), again.end(), input.begin(), input.end()) ||
          input.size() > kMostRefusalText);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> input(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
      OpenFrames(input);
      break;
    case 1:
      DriveStar(input);
      break;
    case 2:
      DecodeForClient(input);
      break;
    case 3:
      DecodeId(input);
      break;
    case 4:
      DecodeForMeeting(DecodeVisitorMessage(input), input);
      break;
    case 5:
      DecodeForMeeting(DecodeHostMessage(input), input);
      break;
  }
  return 0;
}
