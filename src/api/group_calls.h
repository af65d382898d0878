// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The group that a thread is in: calls between onebitGroupStart and onebitGroupEnd.
#pragma once

#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "api/pair_checks.h"
#include "base/group_depth.h"
#include "collectives/engine.h"
#include "collectives/group_run.h"

namespace onebit {

// Groups nest; only the outermost end runs the calls. All of it belongs to one thread, which keeps
// the memory of one group for the next.
class Group {
 public:
  static Group& OfThisThread();

  Status Start();
  Status End();

  // Whether a call can be kept for the end ...
  Status CheckTarget(const CallTarget& target) const;
  // ... and keeping it. `use` holds the compressor of the request.
  Status Add(const CallTarget& target, const Engine::Request& request,
             std::optional<CompressorUse> use);
  // What the request that was added last refers to.
  void Keep(onebitComm_t comm, std::unique_ptr<PairLists> lists);
  // Whether calls on the communicator wait for the end.
  bool Has(onebitComm_t comm) const;

  // Runs the body of an API call; in a group an error is also one of the group, whose end then runs
  // nothing.
  template <typename Body>
  static Status Watch(Body&& body) {
    if (!IsInsideGroup()) return body();
    try {
      Status status = body();
      if (!status.ok()) OfThisThread().Fail(status);
      return status;
    } catch (const std::bad_alloc&) {
      OfThisThread().Fail({Code::kOutOfMemory, "out of memory"});
      throw;
    }
  }

 private:
  // The calls on one communicator, in their order.
  struct Part {
    onebitComm_t comm = nullptr;
    onebitStream_t stream = nullptr;  // of all calls
    MemoryLocation location = {};     // likewise
    std::vector<Engine::Request> requests;
    std::vector<CompressorUse> uses;
    std::vector<onebitCompressor_t> compressors;    // that these hold
    std::vector<std::unique_ptr<PairLists>> lists;  // of requests that refer to them
  };

  // What a stream is given.
  struct Queued;

  // Whether the calls are on one stream with those of a part.
  static Status CheckStream(const CallTarget& target, const Part& part);
  // A call keeps its compressor until the end, so there can be no other of it.
  Status CheckNotUsed(onebitCompressor_t compressor) const;
  Part& PartOf(onebitComm_t comm);
  void NoteMembers();
  Status Run();
  // An error puts all communicators out of use.
  Status RunOrFail();
  Status Enqueue();
  Status EnqueueOnDevice();
  // Holds what the queued calls need until they are over. After an error nothing is held.
  Result<std::unique_ptr<Queued>> Queue(HostStream* thread);
  // Forgets the calls, but not the memory for them.
  void Clear();
  void Fail(const Status& status) {
    if (error_.ok()) error_ = status;
  }

  std::vector<Part> parts_;
  size_t used_parts_ = 0;  // the first ones; the others are room
  std::vector<GroupMember> members_;
  Status error_;  // the first one of a call in the group
};

}  // namespace onebit
