// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Context: what the endpoints of a process share.
#pragma once

#include <onebit/transport.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "plugins/transport_local/inbox.h"

namespace onebit::local {

class Endpoint;

// What a rank tells the others about its endpoint.
struct Address {
  uint64_t magic;
  uint64_t process_id;
  uint64_t context_nonce;  // tells equal process ids on two hosts or in two containers apart
  uint64_t inbox_number;
};

// What `init` receives; the row is in local_context.cc.
struct Options {
  uint64_t eager_bytes;
};

// Made by init, ended by finalize. Any thread; the lock is taken by open, connect and close only.
class Context {
 public:
  static onebitResult_t Create(const onebitTransportHost& host, std::unique_ptr<Context>* context);
  // Null: before init.
  static onebitTransportProperties Properties(const Context* context);
  // Throws std::bad_alloc.
  onebitResult_t Open(const onebitTransportCommInfo& info, std::unique_ptr<Endpoint>* endpoint);

  size_t eager_bytes() const { return options_.eager_bytes; }
  uint64_t (*clock() const)() { return host_.nowNs; }

  // Time to poll before sleeping: 0 when there are more endpoints than cores, because then a rank
  // that polls keeps the core from the rank it waits for.
  uint64_t spin_ns() const;

  // True when every endpoint has been closed.
  bool is_idle() const { return open_endpoints_.load(std::memory_order_relaxed) == 0; }

  // Makes an inbox known under an address, and forgets it.
  Address Register(std::shared_ptr<Inbox> inbox);
  void Unregister(const Address& address);

  // The inbox of an address, which must be that of `expected`. Logs why not.
  onebitResult_t Find(const Address& address, const Inbox::Identity& expected,
                      std::shared_ptr<Inbox>* inbox);

  // Writes one line to the library's log, as a warning.
  [[gnu::format(printf, 2, 3)]] void Warn(const char* format, ...) const;

 private:
  explicit Context(const onebitTransportHost& host);
  std::shared_ptr<Inbox> LookUp(uint64_t inbox_number);

  const onebitTransportHost host_;
  const uint64_t nonce_;
  const uint32_t cores_;
  const Options options_;
  // relaxed everywhere: a number for a rule of thumb, nothing is published through it.
  std::atomic<uint32_t> open_endpoints_{0};

  std::mutex mutex_;
  uint64_t next_number_ = 1;                                      // guarded by mutex_
  std::unordered_map<uint64_t, std::shared_ptr<Inbox>> inboxes_;  // guarded by mutex_
};

}  // namespace onebit::local
