// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// C++ face of the transport ABI: a started transport, and one rank's endpoint of a communicator.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "onebit/transport.h"

namespace onebit {

// A transport that was initialised in this process. Lives until the process ends, because endpoints
// may be closed from static destructors of the application. Thread-safe.
class Transport {
 public:
  // Finds and starts a transport by name: one that is linked in, or a plugin (loader.h). The error
  // of an unknown name says where it was looked for. Settings that are in error are an error here.
  static Result<const Transport*> Get(std::string_view name);
  // Starts a transport whose functions are at hand, without registering it: to it, none of the
  // settings it may declare is set.
  static Result<Transport> Start(const onebitTransport* functions);
  // Functions of the transports that are linked in or were opened.
  static std::vector<const onebitTransport*> Known();
  // Names of those that are linked in.
  static std::vector<std::string> BuiltIns();
  // Opens a plugin without starting it; one that is known already is not looked for again.
  static Result<const onebitTransport*> Open(std::string_view name,
                                             std::span<const std::string> folders);
  // Tells transports that start from now on which network interfaces to use, "eth0,eth1". The first
  // call counts: the setting it comes from never changes.
  static void UseInterfaces(const std::string& names);
  // Refuses functions of another ABI version. `context` may be null, also before the start.
  static Result<onebitTransportProperties> PropertiesOf(const onebitTransport* functions,
                                                        void* context);

  const onebitTransport& functions() const { return *functions_; }
  const onebitTransportProperties& properties() const { return properties_; }
  // Whether calls are enqueued on CUDA streams, and work on device memory alone.
  bool is_stream_ordered() const {
    return properties_.hasHostFace == 0 && properties_.hasStreamFace != 0;
  }
  void* context() const { return context_; }

 private:
  const onebitTransport* functions_ = nullptr;
  onebitTransportProperties properties_ = {};
  void* context_ = nullptr;
};

// Ranks of a communicator of the layer below, such as MPI's. Released at the end.
class NativeGroup {
 public:
  // Collective on it. `native` null: the one of all processes. kInvalidUsage: the transport knows
  // no communicators but its own.
  static Result<NativeGroup> Adopt(const Transport& transport, const void* native,
                                   size_t native_bytes, uint64_t timeout_ms);
  NativeGroup(NativeGroup&& other) noexcept;
  NativeGroup& operator=(NativeGroup&&) = delete;
  ~NativeGroup();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  void* handle() const { return handle_; }
  // Gives the bytes of rank 0 to all. Collective.
  Status Broadcast(std::span<std::byte> bytes, uint64_t timeout_ms) const;

 private:
  NativeGroup() = default;

  const Transport* transport_ = nullptr;
  void* handle_ = nullptr;
  int rank_ = 0;
  int ranks_ = 1;
};

// Receives what a transport learns about a peer, from any thread.
class PeerErrorSink {
 public:
  // Throws nothing: a transport calls it.
  virtual void OnPeerError(int peer, Code code, const char* text) = 0;

 protected:
  ~PeerErrorSink() = default;
};

enum class RequestState { kPending, kHeader, kDone };

// One rank's end of a communicator. Used by one thread at a time, Abort by any. Closed at the end.
class Endpoint {
 public:
  struct Info {
    int rank = 0;
    int nranks = 1;
    uint64_t comm_id = 0;
    PeerErrorSink* sink = nullptr;       // must outlive the endpoint
    const NativeGroup* group = nullptr;  // of the same ranks; null: none
  };

  static Result<Endpoint> Open(const Transport& transport, const Info& info);
  Endpoint() = default;
  Endpoint(Endpoint&& other) noexcept;
  Endpoint& operator=(Endpoint&& other) noexcept;
  ~Endpoint() { Close(); }

  Result<std::vector<std::byte>> Address() const;
  Status Connect(std::span<const std::vector<std::byte>> addresses, uint64_t timeout_ms);

  // Send and Receive: false when the transport has no room: make progress and try again.
  Result<bool> Send(int peer, std::span<const std::byte> header, std::span<const std::byte> payload,
                    onebitTransportRequest* request);
  Result<bool> Receive(int peer, std::span<std::byte> header, onebitTransportRequest* request);
  struct MessageSize {
    size_t header_bytes = 0;
    size_t payload_bytes = 0;
  };
  Result<MessageSize> Probe(onebitTransportRequest request);
  Status Accept(onebitTransportRequest request, std::span<std::byte> payload);
  // An error other than kAborted means that the request is dead; after kAborted it must be
  // cancelled.
  Result<RequestState> Test(onebitTransportRequest request);
  void Cancel(onebitTransportRequest request);
  // The layer below's own allreduce of fp32, where the properties say nativeDense: a request for
  // Test and Cancel. False: no room, as with Send.
  Result<bool> AllReduce(const void* input, void* output, size_t count, onebitRedOp_t op,
                         onebitTransportRequest* request);
  Status Progress();
  Status Wait(uint64_t timeout_ms);

  // The stream face, where the transport has one; `stream` is one of the endpoint's device.
  Status BeginGroup();
  Status EndGroup();
  Status SendOnStream(int peer, const void* buffer, size_t bytes, onebitStream_t stream);
  Status ReceiveOnStream(int peer, void* buffer, size_t bytes, onebitStream_t stream);
  Status AllReduceOnStream(const void* input, void* output, size_t count, onebitDataType_t type,
                           onebitRedOp_t op, onebitStream_t stream);
  // What has failed since the calls returned; from any thread.
  Status AsyncError() const;

  void Abort();
  void Close();

  struct Counters {
    uint64_t bytes_sent = 0;
    uint64_t messages_sent = 0;
  };
  Counters counters() const;
  // How a peer is reached, for error texts: "tcp over eth0". Empty before Connect.
  std::string DescribePeer(int peer) const;

 private:
  Status Check(onebitResult_t result, const char* what, int peer = -1) const;

  const onebitTransport* functions_ = nullptr;
  const char* name_ = "";
  size_t address_bytes_ = 0;
  void* comm_ = nullptr;
  int owner_pid_ = 0;  // a copy that a fork made is left alone
};

}  // namespace onebit
