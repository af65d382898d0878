// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A function table whose receives take the next message of the script.
#include "tests/support/scripted_transport.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

struct onebit::MessageRequest_s {
  bool is_send = false;
  bool has_header = false;
  bool is_done = false;
  void* header = nullptr;
  size_t header_capacity = 0;
  int peer = 0;
  onebit::testing::ScriptedMessage message;
};

namespace onebit::testing {
namespace {

std::map<int, std::deque<ScriptedMessage>>& Scripts() {
  static std::map<int, std::deque<ScriptedMessage>> scripts;
  return scripts;
}

std::vector<std::vector<std::byte>> sent_headers;
int open_request_count = 0;
bool is_rank_1_stuck = false;
int comm_marker;  // what a comm handle points to; it has no state

MessageRequest Open(MessageRequest_s request) {
  ++open_request_count;
  return new MessageRequest_s(std::move(request));
}

void Close(MessageRequest request) {
  --open_request_count;
  delete request;
}

onebitResult_t Succeed() { return onebitSuccess; }

onebitResult_t Send(void*, int, const void* header, size_t header_bytes, const void*, size_t,
                    MessageRequest* request) {
  const auto* bytes = static_cast<const std::byte*>(header);
  sent_headers.emplace_back(bytes, bytes + header_bytes);
  *request = Open({.is_send = true, .is_done = true});
  return onebitSuccess;
}

onebitResult_t Receive(void*, int peer, void* header, size_t capacity, MessageRequest* request) {
  *request = Open({.header = header, .header_capacity = capacity, .peer = peer});
  return onebitSuccess;
}

onebitResult_t Probe(void*, MessageRequest request, size_t* header_bytes, size_t* payload_bytes) {
  *header_bytes = request->message.header.size();
  *payload_bytes = request->message.payload.size();
  return onebitSuccess;
}

onebitResult_t Accept(void*, MessageRequest request, void* payload, size_t bytes) {
  if (bytes != request->message.payload.size()) return onebitInvalidArgument;
  if (bytes != 0) std::memcpy(payload, request->message.payload.data(), bytes);
  request->is_done = true;
  return onebitSuccess;
}

onebitResult_t Test(void*, MessageRequest request, TransferState* state) {
  *state = TransferState::kPending;
  if (request->is_done) {
    Close(request);
    *state = TransferState::kDone;
    return onebitSuccess;
  }
  if (!request->has_header) {
    auto& script = Scripts()[request->peer];
    if (script.empty()) return onebitSuccess;
    request->message = std::move(script.front());
    script.pop_front();
    request->has_header = true;
    const auto& bytes = request->message.header;
    const size_t copied = std::min(bytes.size(), request->header_capacity);
    if (copied != 0) std::memcpy(request->header, bytes.data(), copied);
  }
  *state = TransferState::kHeader;
  return onebitSuccess;
}

}  // namespace

void ScriptedTransport::SetScript(int peer, std::deque<ScriptedMessage> messages) {
  Scripts()[peer] = std::move(messages);
  sent_headers.clear();
}

const std::vector<std::vector<std::byte>>& ScriptedTransport::sent() { return sent_headers; }

void ScriptedTransport::SetStuck(bool is_stuck) { is_rank_1_stuck = is_stuck; }

int ScriptedTransport::open_requests() { return open_request_count; }

const onebitTransport* ScriptedTransport::functions() {
  static const onebitTransport table = {
      .structSize = sizeof(onebitTransport),
      .abiVersion = ONEBIT_TRANSPORT_ABI_VERSION,
      .init =
          [](const onebitTransportHost*, void** context) {
            *context = &comm_marker;
            return onebitSuccess;
          },
      .getProperties =
          [](void*, onebitTransportProperties* properties) {
            properties->name = "scripted";
            return onebitSuccess;
          },
      .finalize = [](void*) { return Succeed(); },
  };
  return &table;
}

const MessageFunctions* ScriptedTransport::messages() {
  static const MessageFunctions table = {
      .open =
          [](void*, const MessageInfo*, void** comm) {
            *comm = &comm_marker;
            return onebitSuccess;
          },
      .getAddress =
          [](void*, void*, size_t* bytes) {
            *bytes = 0;
            return onebitSuccess;
          },
      .connect = [](void*, const void* const*, const size_t*, uint64_t) { return Succeed(); },
      .isend = Send,
      .irecv = Receive,
      .probe = Probe,
      .accept = Accept,
      .test = Test,
      .cancel =
          [](void*, MessageRequest request) {
            Close(request);
            return onebitSuccess;
          },
      .progress = [](void*) { return Succeed(); },
      .wait = [](void*, uint64_t) { return Succeed(); },
      .abort = [](void*) { return Succeed(); },
      .close = [](void*) { return Succeed(); },
      .getCounters =
          [](void*, uint64_t* bytes, uint64_t* messages) {
            *bytes = *messages = 0;
            return onebitSuccess;
          },
      .describePeer =
          [](void*, int peer, char* text, size_t capacity) {
            const bool is_stuck = is_rank_1_stuck && peer == 1;
            std::snprintf(text, capacity, is_stuck ? "a script, 7 bytes lost" : "a script");
            return is_stuck ? onebitTimeout : onebitSuccess;
          },
      .iallreduce = nullptr,
  };
  return &table;
}

}  // namespace onebit::testing
