// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Context: the state that the endpoints of a process share.
#pragma once

#include <onebit/transport.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "plugins/common/base_context.h"
#include "plugins/transport_local/inbox.h"

namespace onebit::local {

class LocalFrameTransport;

// The address of an endpoint that a rank gives to the others.
struct Address {
  uint64_t magic;
  uint64_t process_id;
  uint64_t context_nonce;  // distinguishes equal process ids on two hosts or in two containers
  uint64_t inbox_number;
};

// The values that `init` receives; local_context.cc declares the setting.
struct Options {
  uint64_t eager_bytes;
};

// Created by init, destroyed by finalize. Thread-safe; only open, connect and close take the lock.
class Context : public plugin::BaseContext {
 public:
  static onebitResult_t Create(const onebitTransportHost& host, std::unique_ptr<Context>* context);
  // `context` is null before init.
  static onebitTransportProperties Properties(const Context* context);
  // Throws std::bad_alloc.
  onebitResult_t Open(const onebitTransportCommInfo& info,
                      std::unique_ptr<LocalFrameTransport>* frames);

  const Options& options() const { return options_; }

  // Register makes an inbox available under an address; Unregister removes it.
  Address Register(std::shared_ptr<Inbox> inbox);
  void Unregister(const Address& address);

  // Finds the inbox of an address, which must be that of `expected`. Logs the cause of an error.
  onebitResult_t Find(const Address& address, const Inbox::Identity& expected,
                      std::shared_ptr<Inbox>* inbox);

 private:
  explicit Context(const onebitTransportHost& host);
  std::shared_ptr<Inbox> LookUp(uint64_t inbox_number);

  const uint64_t nonce_;
  const Options options_;

  std::mutex mutex_;
  uint64_t next_number_ = 1;                                      // guarded by mutex_
  std::unordered_map<uint64_t, std::shared_ptr<Inbox>> inboxes_;  // guarded by mutex_
};

}  // namespace onebit::local
