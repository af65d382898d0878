// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Gives optimizers what the public API does not: whether the communicator still exists, reserved
// tensor ids, how a compressed call has ended, and dense calls whose result does not depend on the
// transport. For everything else they are clients of the public API.
#pragma once

#include <memory>

#include "base/status.h"
#include "exec/call_outcome.h"
#include "kernels/cuda/params.h"
#include "onebit/onebit.h"

namespace onebit {

struct CommLink;

// Tells whether a communicator still exists. Never dereferences its handle, so it may outlive it.
class CommObserver {
 public:
  CommObserver() = default;
  explicit CommObserver(onebitComm_t comm);
  bool is_alive() const;

 private:
  std::shared_ptr<CommLink> link_;
};

// Reserves a tensor id, so that no later compressor gets it by default. Every optimizer reserves
// one: saved states contain the default ids of compressors that were created after it, so those ids
// must not change.
uint32_t ReserveTensorId(onebitComm_t comm);
// Reserves the same id on the communicator to which its user was rebound.
void ReserveTensorId(onebitComm_t comm, uint32_t id);

// onebitAllReduce of averages in place that tells how it has ended, unless `compressor` is on a
// device: then the call is on `stream`, and DeviceTotals tell.
Result<CallOutcome> CompressedAverage(float* values, size_t count, onebitCompressor_t compressor,
                                      onebitComm_t comm, onebitStream_t stream);

// The counters of a compressor on a device at some point of its stream. A call has ended when
// the totals behind it differ from those before it.
struct DeviceTotals {
  uint64_t epoch = 0;            // committed calls
  uint64_t nonfinite_calls = 0;  // calls that committed nothing because a value was not finite

  friend bool operator==(const DeviceTotals&, const DeviceTotals&) = default;
};
// Enqueues a copy of the totals at this point of `stream`. `words` is pinned memory.
Status EnqueueTotals(const onebitCompressor_s& compressor, onebitStream_t stream,
                     kernels::cuda::CompressorWords* words);
inline DeviceTotals TotalsIn(const kernels::cuda::CompressorWords& words) {
  return {words.epoch, words.nonfinite_calls};
}
// The totals now. Waits for the device.
Result<DeviceTotals> AwaitTotals(onebitCompressor_t compressor);
// The same without waiting: an error if a call is in flight.
Result<DeviceTotals> TotalsNow(onebitCompressor_t compressor);

// onebitAllReduce in place without a compressor, by the library's own algorithm: every rank gets
// the same bits, over every transport.
onebitResult_t OwnAllReduce(void* values, size_t count, onebitDataType_t datatype, onebitRedOp_t op,
                            onebitComm_t comm, onebitStream_t stream);

// Destroys a compressor once no thread of the library uses it. If that takes more than ten seconds,
// because a device has failed, the compressor is leaked.
void DestroyAfterCalls(onebitCompressor_t compressor);

}  // namespace onebit
