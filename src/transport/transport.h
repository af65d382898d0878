// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A started transport, and one rank's endpoint of a communicator, with errors that have texts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "channel/message_channel.h"
#include "onebit/transport.h"

namespace onebit {

// A transport that has been started in this process. It lives until the process ends, because
// static destructors of the application may close endpoints. Thread-safe.
class Transport {
 public:
  // Finds and starts a transport by name, linked in or a plugin (loader.h). The error for an
  // unknown name lists the folders that were searched. Settings that are in error are an error
  // here, too.
  static Result<const Transport*> Get(std::string_view name);
  // Starts a transport from its functions, without registering it.
  static Result<Transport> Start(const onebitTransport* functions);
  // Makes a transport known that is linked into the program. Before the first Get.
  static void Register(std::string_view name, const onebitTransport* functions);
  // Functions of the transports that are linked in or have been opened.
  static std::vector<const onebitTransport*> Known();
  // Names of the transports that are linked in.
  static std::vector<std::string> BuiltIns();
  // Opens a plugin without starting it, unless it is open already.
  static Result<const onebitTransport*> Open(std::string_view name,
                                             std::span<const std::string> folders);
  // Sets the network interfaces, "eth0,eth1", for transports that start later. Only the first call
  // has an effect, because the setting behind it never changes.
  static void UseInterfaces(const std::string& names);
  // Refuses functions of another ABI version. `context` may be null.
  static Result<onebitTransportProperties> PropertiesOf(const onebitTransport* functions,
                                                        void* context);

  const onebitTransport& functions() const { return *functions_; }
  const onebitTransportProperties& properties() const { return properties_; }
  // True if the transport works on device memory only, by calls that are enqueued on CUDA streams.
  bool is_stream_ordered() const { return channels_ == nullptr; }
  void* context() const { return context_; }
  // Makes message channels; null if the transport is stream-ordered.
  channel::ChannelContext* channels() const { return channels_.get(); }

 private:
  const onebitTransport* functions_ = nullptr;
  onebitTransportProperties properties_ = {};
  void* context_ = nullptr;
  std::unique_ptr<channel::ChannelContext> channels_;
};

// The ranks of a communicator of the layer below, such as MPI's. The destructor releases it.
class NativeGroup {
 public:
  // Collective over the ranks of `native`; null stands for all processes. kInvalidUsage: the
  // transport can join no communicator of another library.
  static Result<NativeGroup> Adopt(const Transport& transport, const void* native,
                                   size_t native_bytes, uint64_t timeout_ms);
  NativeGroup(NativeGroup&& other) noexcept;
  NativeGroup& operator=(NativeGroup&&) = delete;
  ~NativeGroup();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  void* handle() const { return handle_; }
  // Copies the bytes of rank 0 to all ranks. Collective.
  Status Broadcast(std::span<std::byte> bytes, uint64_t timeout_ms) const;

 private:
  NativeGroup() = default;

  const Transport* transport_ = nullptr;
  void* handle_ = nullptr;
  int rank_ = 0;
  int ranks_ = 1;
};

// One rank's end of a communicator. One thread at a time uses it; any thread may call Abort. The
// destructor closes it.
class Endpoint {
 public:
  using Info = channel::ChannelInfo;

  static Result<Endpoint> Open(const Transport& transport, const Info& info);
  Endpoint() = default;
  Endpoint(Endpoint&& other) noexcept;
  Endpoint& operator=(Endpoint&& other) noexcept;
  ~Endpoint() { Close(); }

  Result<std::vector<std::byte>> Address() const;
  Status Connect(std::span<const std::vector<std::byte>> addresses, uint64_t timeout_ms);

  // Send and Receive return false if the transport has no room: make progress and try again.
  Result<bool> Send(int peer, std::span<const std::byte> header, std::span<const std::byte> payload,
                    MessageRequest* request) {
    return HasStarted(channel_->Send(peer, header, payload, request), "send to", peer);
  }
  Result<bool> Receive(int peer, std::span<std::byte> header, MessageRequest* request) {
    return HasStarted(channel_->Receive(peer, header, request), "receive from", peer);
  }
  struct MessageSize {
    size_t header_bytes = 0;
    size_t payload_bytes = 0;
  };
  Result<MessageSize> Probe(MessageRequest request) {
    MessageSize size;
    ONEBIT_TRY(Check(channel_->Probe(*request, &size.header_bytes, &size.payload_bytes),
                     "probe a message"));
    return size;
  }
  Status Accept(MessageRequest request, std::span<std::byte> payload) {
    return Check(channel_->Accept(request, payload), "accept a message");
  }
  // After any error but kAborted the request is dead; after kAborted it must be cancelled.
  Result<TransferState> Test(MessageRequest request) {
    TransferState state = TransferState::kPending;
    ONEBIT_TRY(Check(channel_->Test(request, &state), "complete a message"));
    return state;
  }
  // A failure is ignored: the error that led to the cancel matters more.
  void Cancel(MessageRequest request) { static_cast<void>(channel_->Cancel(request)); }
  // Starts the layer below's own allreduce of fp32; only for transports with nativeDense. The
  // request is for Test and Cancel. Returns false if there is no room, like Send.
  Result<bool> AllReduce(const void* input, void* output, size_t count, onebitRedOp_t op,
                         MessageRequest* request) {
    return HasStarted(channel_->AllReduce(input, output, count, onebitFloat32, op, request),
                      "start its own allreduce");
  }
  Status Progress() { return Check(channel_->Progress(), "progress"); }
  Status Wait(uint64_t timeout_ms) { return Check(channel_->Wait(timeout_ms), "wait"); }

  // The stream face, if the transport has one. `stream` belongs to the endpoint's device.
  Status BeginGroup();
  Status EndGroup();
  Status SendOnStream(int peer, const void* buffer, size_t bytes, onebitStream_t stream);
  Status ReceiveOnStream(int peer, void* buffer, size_t bytes, onebitStream_t stream);
  // Only for transports with nativeDense.
  Status CollectiveOnStream(const onebitTransportCollectiveCall& call, onebitStream_t stream);
  // An error that came up after the calls had returned. Thread-safe.
  Status AsyncError() const;

  void Abort();
  void Close();

  struct Counters {
    uint64_t bytes_sent = 0;
    uint64_t messages_sent = 0;
  };
  Counters counters() const;
  // The way to a peer, for error texts: "tcp over eth0". Empty before Connect.
  struct PeerDescription {
    std::string text;       // how the peer is reached
    bool is_stuck = false;  // what was sent to it does not arrive, and the text says what is known
  };
  PeerDescription DescribePeer(int peer) const;

 private:
  Status Check(onebitResult_t result, const char* what, int peer = -1) const {
    return result == onebitSuccess ? OkStatus() : Failure(result, what, peer);
  }
  Result<bool> HasStarted(onebitResult_t result, const char* what, int peer = -1) const {
    if (result == onebitInProgress) return false;
    ONEBIT_TRY(Check(result, what, peer));
    return true;
  }
  Status Failure(onebitResult_t result, const char* what, int peer) const;

  const onebitTransport* functions_ = nullptr;
  const char* name_ = "";
  size_t address_bytes_ = 0;
  std::unique_ptr<channel::MessageChannel> channel_;  // null: the stream face alone
  void* comm_ = nullptr;                              // of the stream face
};

}  // namespace onebit
