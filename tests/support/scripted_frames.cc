// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/scripted_frames.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace onebit::testing {
namespace {

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

std::vector<std::byte> BytesOf(const WireHeader& wire, std::span<const std::byte> header) {
  std::vector<std::byte> bytes(sizeof wire + header.size());
  std::memcpy(bytes.data(), &wire, sizeof wire);
  std::copy(header.begin(), header.end(), bytes.begin() + sizeof wire);
  return bytes;
}

constexpr onebitTransport kFunctions =
    plugin::FrameTable<ScriptContext, ScriptedFrames>::Functions();

}  // namespace

ScriptedFrames::ScriptedFrames(const onebitTransportCommInfo& info, size_t piece_bytes)
    : FrameTransport(info), links_(static_cast<size_t>(info.nranks)) {
  for (plugin::Link& link : links_) {
    link.pieceBytes = piece_bytes;
    link.isHere = 1;
    link.SetHost("nowhere");
    link.SetRoute("a script");
  }
}

void ScriptedFrames::Lose(int rank) {
  link(rank)->loss = "the script says so";
  has_losses_ = true;
}

size_t ScriptedFrames::CountSent(int rank, WireType type, uint64_t number) const {
  return static_cast<size_t>(std::count_if(sent_.begin(), sent_.end(), [&](const SentFrame& frame) {
    return frame.rank == rank && frame.wire.type == type && frame.wire.number == number;
  }));
}

onebitResult_t ScriptedFrames::GetAddress(void*, size_t* bytes) {
  *bytes = 0;
  return onebitSuccess;
}

// All peers greet at once.
onebitResult_t ScriptedFrames::Connect(const void* const*, const size_t*, uint64_t) {
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    WireHeader wire = FramedRank::Wire(WireType::kHello, 0);
    wire.source = static_cast<uint32_t>(rank);
    Arrive({BytesOf(wire, {}), {}});
  }
  return onebitSuccess;
}

plugin::Sent ScriptedFrames::Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                                  std::span<const std::byte> payload) {
  const bool is_piece = kind == onebitFrameLong;
  if (is_piece ? !has_room_for_pieces_ : !has_room_for_others_) return plugin::Sent::kNoRoom;
  SentFrame frame{.rank = rank, .wire = {}, .payload = {payload.begin(), payload.end()}};
  std::memcpy(&frame.wire, header.data(), sizeof frame.wire);
  sent_.push_back(std::move(frame));
  return plugin::Sent::kYes;
}

// The frame is in memory of exactly its size, so that AddressSanitizer detects reads past its end.
bool ScriptedFrames::Progress() {
  if (arriving_.empty()) return false;
  const Frame frame = std::move(arriving_.front());
  arriving_.pop_front();
  sink_.OnFrame(frame.peer, frame.header.data(), frame.header.size(), frame.payload.data(),
                frame.payload.size());
  return true;
}

void ScriptedFrames::Sleep(uint64_t timeout_ns) {
  longest_sleep_ns_ = std::max(longest_sleep_ns_, timeout_ns);
  for (Frame& frame : in_sleep_) Arrive(std::move(frame));
  in_sleep_.clear();
}

onebitResult_t ScriptContext::Open(const onebitTransportCommInfo& info,
                                   std::unique_ptr<ScriptedFrames>* made) {
  *made = std::make_unique<ScriptedFrames>(info, piece_bytes);
  frames = made->get();
  return onebitSuccess;
}

FramedRank::FramedRank(size_t early_bytes)
    : script_{.piece_bytes = kPieceBytes},
      context_(kFunctions, &script_,
               {.structSize = sizeof(onebitTransportProperties),
                .name = "scripted",
                .hasFrameFace = 1,
                .eagerBytes = kEagerBytes,
                .earlyBytes = early_bytes},
               {.structSize = sizeof(onebitTransportHost),
                .log = [](int, const char* text) { warnings_.emplace_back(text); },
                .nowNs = NowNs,
                .interfaces = ""}) {
  warnings_.clear();
  const channel::ChannelInfo info{.rank = 0, .nranks = kRanks, .comm_id = kCommId, .sink = this};
  if (context_.Open(info, &channel_) != onebitSuccess) std::abort();
  const std::vector<std::byte> addresses[kRanks];
  if (channel_->Connect(addresses, 1000) != onebitSuccess) std::abort();
}

FramedRank::~FramedRank() { frames().set_has_room(true); }  // the end would wait for room otherwise

void FramedRank::OnPeerError(int /*peer*/, Code code, const char* /*text*/) {
  peer_errors_.push_back(static_cast<onebitResult_t>(code));
}

WireHeader FramedRank::Wire(WireType type, uint64_t number, uint64_t value) {
  return {.magic = channel::kWireMagic,
          .type = type,
          .header_bytes = 0,
          .source = 1,
          .unused = 0,
          .comm_id = kCommId,
          .number = number,
          .value = value,
          .released = 0};
}

void FramedRank::Arrive(const WireHeader& wire, std::span<const std::byte> payload,
                        std::span<const std::byte> header) {
  frames().Arrive({BytesOf(wire, header), {payload.begin(), payload.end()}});
  if (channel_->Progress() != onebitSuccess) std::abort();
}

}  // namespace onebit::testing
