// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collects the calls of a thread between onebitGroupStart and onebitGroupEnd.
#pragma once

#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "base/group_depth.h"
#include "exec/run_calls.h"

namespace onebit {

// Groups nest, and only the outermost end runs the calls. Each thread has one, whose memory is
// reused from group to group.
class Group {
 public:
  static Group& OfThisThread();

  Status Start();
  Status End();

  // Fails if the call cannot be part of the group.
  Status CheckTarget(const ApiCall& call) const;
  // Adds a call that CheckTarget has accepted. `use` holds its compressor.
  Status Add(ApiCall&& call, std::optional<CompressorUse> use);
  // True if calls on the communicator wait for the end.
  bool Has(onebitComm_t comm) const;

  // Runs the body of an API call. An error inside a group also fails the group, whose end then runs
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
    onebitStream_t stream = nullptr;  // the same for all calls
    MemoryLocation location = {};     // of all buffers
    std::vector<CallRequest> requests;
    std::vector<CallRequest> pairs;  // sends and receives, which follow the requests at the end
    std::vector<CompressorUse> uses;
    std::vector<onebitCompressor_t> compressors;  // held by `uses`
  };

  // A group on its way to a stream.
  struct Queued;

  // Fails if the call cannot be in one group with those of the part.
  static Status CheckStream(const ApiCall& call, const Part& part);
  // A call holds its compressor until the end of the group, so a second one would never begin.
  Status CheckNotUsed(onebitCompressor_t compressor) const;
  Part& PartOf(onebitComm_t comm);
  // Puts sends and receives behind the other calls of the part, and tells receives of a rank from
  // itself what they copy.
  static Status ArrangePairs(Part* part);
  void NoteMembers();
  Status Run();
  Status Enqueue();
  Status EnqueueOnDevice();
  // Holds what the queued calls need until they have ended. Holds nothing after an error.
  Result<std::unique_ptr<Queued>> Queue(HostStream* thread);
  // Drops the calls and keeps the memory for the next group.
  void Clear();
  void Fail(const Status& status) {
    if (error_.ok()) error_ = status;
  }

  std::vector<Part> parts_;
  size_t used_parts_ = 0;  // the rest of parts_ is capacity
  std::vector<GroupMember> members_;
  Status error_;  // first error of a call in the group
};

}  // namespace onebit
