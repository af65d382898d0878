// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A communicator of NCCL as this library sees it: what it decides about its calls, and how it makes
// those that are compressed.
#pragma once

#include <onebit/onebit.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plugins/nccl_preload/call_compressors.h"
#include "plugins/nccl_preload/call_counts.h"
#include "plugins/nccl_preload/call_options.h"
#include "plugins/nccl_preload/call_policy.h"
#include "plugins/nccl_preload/data_call.h"
#include "plugins/nccl_preload/linked_onebit.h"
#include "plugins/nccl_preload/nccl_types.h"
#include "plugins/nccl_preload/scope_exchange.h"

namespace onebit::preload {

class PreloadComm {
 public:
  struct Origin {
    std::string name;
    bool is_blocking = true;
    bool has_shared_rules = false;  // all its ranks are known to have this process's rules
  };

  // `number` tells communicators of this process apart.
  PreloadComm(const Rules& rules, uint64_t number, Origin origin, int ranks,
              uint64_t most_elements);
  // Frees compressors and leaves the communicator of onebit; NCCL's own stays.
  ~PreloadComm();
  PreloadComm(const PreloadComm&) = delete;
  PreloadComm& operator=(const PreloadComm&) = delete;

  // Makes a communicator of onebit on `native`. Collective: called where the ranks make `native`,
  // never in a call that moves data. Returns false, after a warning, if that has failed: other
  // ranks may have succeeded, so `native` must not be used either.
  bool Join(Comm native);
  bool can_compress() const { return comm_ != nullptr; }

  uint64_t number() const { return number_; }
  bool is_blocking() const { return origin_.is_blocking; }
  bool has_shared_rules() const { return origin_.has_shared_rules; }
  const CommFacts& facts() const { return policy_.comm(); }

  // Decides about the next call. The caller of NCCL makes the calls of a communicator one at a
  // time.
  Decision Decide(const DataCall& call, const CallOptions& options);
  // Enqueues the exchange that a decision asks for; `holds` is this process's answer.
  Result BeginScopeExchange(Stream stream, bool holds);
  // Ends compression because ranks may have parted: later calls that rules select are errors.
  void GiveUp();
  bool has_given_up() const { return has_given_up_; }
  // Calls are made by this library while one of these exists: Leave, which a watchdog may call,
  // waits for it, and the time is counted. It is that of one group, or of a single call.
  class Entered {
   public:
    explicit Entered(PreloadComm& comm) : comm_(comm), lock_(comm.call_mutex_) {
      comm.compressors_->BeginCalls();
    }
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    PreloadComm& comm_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    const std::lock_guard<std::mutex> lock_;
  };
  // Enqueues a call within Entered: one that was decided to be compressed, or a send or receive.
  // Waits for no other rank and for no device; the first call of a tensor allocates its residuals.
  Result Make(const DataCall& call, const Decision& decision);

  // A result of onebit as NCCL has it. Gives up after an error: other ranks may have had none, and
  // would wait for this one.
  Result Settle(onebitResult_t result);

  // Stops the calls under way because the program has revoked NCCL's communicator, which is no
  // error. Thread-safe.
  void Revoke();
  // Stops the calls under way and leaves the communicator of onebit, which then no longer uses
  // NCCL's. Residuals stay until the destructor: to free them waits for the device. Thread-safe.
  void Leave();
  // The traffic of compressed calls so far, with the residuals as they were measured last.
  // Thread-safe.
  Traffic traffic() const;
  // Waits for the device. Does nothing if the communicator has failed.
  void MeasureResiduals();
  // The error that ended the communicator of onebit; kSuccess if there is none. Thread-safe.
  Result AsyncError() const;

 private:
  onebitResult_t MakeCompressed(const DataCall& call, const Decision& decision);
  onebitResult_t MakeExactMessage(const DataCall& call);
  void EndTensors();
  bool HasEqualNames(onebitComm_t comm) const;
  bool IsOver() const;
  std::optional<bool> ScopeResult();
  Traffic CurrentTraffic() const;
  onebitResult_t CurrentError() const;

  const uint64_t number_;
  const Origin origin_;
  const bool needs_scope_;
  CallPolicy policy_;
  Comm native_ = nullptr;
  std::unique_ptr<ScopeExchange> scope_exchange_;
  bool has_begun_exchange_ = false;  // since a decision has asked for one
  std::atomic<bool> has_given_up_{false};
  const LinkedOnebit* onebit_ = nullptr;
  std::mutex call_mutex_;  // held by calls that use comm_; before mutex_
  // Held by those who end comm_, or look at it from other threads.
  mutable std::mutex mutex_;
  std::atomic<onebitComm_t> comm_{nullptr};
  bool is_revoked_ = false;
  Traffic last_traffic_;  // when comm_ ended
  std::atomic<uint64_t> ring_bytes_{0};
  std::atomic<uint64_t> exact_bytes_{0};  // of messages
  std::atomic<uint64_t> host_ns_{0};
  std::unique_ptr<CallCompressors> compressors_;
  // Tensors that decisions have ended. A call of one may still be waiting in the group.
  std::vector<uint64_t> ended_;
  Residuals residuals_;
};

// A result of onebit as NCCL has it.
Result NcclResultOf(onebitResult_t result);

}  // namespace onebit::preload
