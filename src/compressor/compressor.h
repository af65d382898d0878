// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How one tensor is compressed, and what compression has lost of it so far.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "codec/message_header.h"
#include "device/memory.h"
#include "kernels/kernels.h"

namespace onebit {

// The residuals of one tensor: the worker's, one per element, and the server's, one per element
// that this rank serves. In an all-gather the worker's are what all ranks hold of each element,
// negated: then z = x + e is what they lack. A transactional compressor holds two generations of
// each: a call reads one and writes the other, and Commit flips between them as the call's last
// act, so that until then nothing of the old generation is touched. Used by one thread at a time.
class Compressor {
 public:
  struct Config {
    CodecKind kind = CodecKind::kEf;
    size_t count = 0;  // as the calls count
    kernels::DataType type = kernels::DataType::kF32;
    kernels::ScaleRule rule = kernels::ScaleRule::kL2;
    uint32_t block = 4096;  // 0: tensor
    kernels::DataType residual_type = kernels::DataType::kF32;
    bool is_transactional = true;
    uint16_t chunk_alignment = 64;
    bool has_server_residual = true;
    uint32_t tensor_id = 0;
    // Elements of the server residual, decided by the collective: this rank's chunk, or all.
    size_t server_elements = 0;
    Collective collective = Collective::kAllReduce;
    // Chunks of `count` elements that make up the tensor: one per rank, but 1 in an allreduce.
    size_t chunks = 1;
    MemoryPlace place;                 // of residuals and mask, and of what calls work on
    const Devices* devices = nullptr;  // of a place on a device
    // Calls are enqueued on streams: what they change besides residuals is on the device, too.
    bool is_stream_ordered = false;

    // Elements of the tensor: of the worker residual and of the mask.
    size_t elements() const { return count * chunks; }
  };

  static Result<Compressor> Create(const Config& config);

  const Config& config() const { return config_; }
  bool has_server_residual() const {
    return config_.kind == CodecKind::kEf && config_.has_server_residual &&
           config_.collective == Collective::kAllReduce;
  }

  // Lengths of the residuals; 0 when the mode has none.
  size_t worker_elements() const { return config_.kind == CodecKind::kEf ? config_.elements() : 0; }
  size_t server_elements() const { return has_server_residual() ? config_.server_elements : 0; }

  // Residual of element `element` (server: relative to the served range) as a call reads and writes
  // it; null when the mode has none.
  const std::byte* worker_in(size_t element) const { return At(worker_[generation_], element); }
  std::byte* worker_out(size_t element) const { return At(worker_[next()], element); }
  const std::byte* server_in(size_t element) const { return At(server_[generation_], element); }
  std::byte* server_out(size_t element) const { return At(server_[next()], element); }

  // The residuals as kernels take them, from their first element on.
  kernels::cuda::Residual worker() const { return ResidualOf(worker_); }
  kernels::cuda::Residual server() const { return ResidualOf(server_); }

  // Packed bits from `element` on, which is a multiple of 8 from the beginning of its chunk; or
  // null: all elements take part.
  const uint8_t* mask(size_t element) const {
    return mask_.size() == 0 ? nullptr : mask_base() + MaskByte(element);
  }
  const uint8_t* mask_base() const { return reinterpret_cast<const uint8_t*>(mask_.data()); }
  // Where in the mask the bit of an element is the lowest one.
  size_t MaskByte(size_t element) const {
    if (config_.chunks == 1) return element / 8;
    const size_t chunk = element / config_.count;
    return chunk * kernels::BitBytes(config_.count) + element % config_.count / 8;
  }
  // Tells masks apart in message headers; 0 without one.
  uint32_t mask_digest() const { return mask_digest_; }
  // `mask` has a bit for every element of the tensor, chunks being as close as their elements.
  Status SetMask(const uint8_t* mask);

  // Takes residuals and mask to another place, and with stream-ordered calls what only the device
  // knows of them. Everything enqueued must be done. After an error they are where they were.
  // Memory of the device is kept, for the way back.
  Status MoveTo(const MemoryPlace& place);

  // With stream-ordered calls: what their kernels need, and what the host can learn of them.
  kernels::cuda::CommitParams CommitOnDevice() const;
  // Zeroes the residuals if *verdict is not clear, and they have one generation only.
  kernels::cuda::FillParams ResetOnDevice(const uint32_t* verdict) const;
  const uint64_t* age_on_device() const { return &words()->age; }
  // Brings the host's counters up to date, or tells the device of those that the host changed.
  Status Refresh();
  Status Publish();

  // Success of a call with finite values: its new residuals become the current ones.
  void Commit();
  // The call met a non-finite value, or failed. Transactional: nothing happened. Otherwise the
  // residuals are half written and are dropped.
  void DiscardNonfinite();
  void DiscardFailed();
  // A stream-ordered call could not be enqueued: of the others, some may get what it sent all the
  // same.
  void NoteFailed() { has_failed_call_ = true; }
  // Zero residuals, any op.
  void Reset();

  // For another communicator. What a call wrote that failed here counts if another rank committed
  // it: before anybody could, every rank had written its new generation.
  bool can_roll_forward() const { return has_failed_call_ && config_.is_transactional; }
  void RollForward() {
    Commit();
    lacks_results_ = true;
  }
  // It rolled forward and has made no call since: the results of the last call are elsewhere.
  bool lacks_results() const { return lacks_results_; }
  // A server residual of another length, zero, in as many generations as the present one.
  struct ServerResidual {
    size_t elements = 0;
    Memory generations[2];
  };
  Result<ServerResidual> NewServerResidual(size_t elements) const;
  // The current generation becomes that of `residual` with index 0. `lost_elements` of the former
  // one went down with their rank.
  void ReplaceServer(ServerResidual residual, uint64_t lost_elements);
  // What all ranks agree on at that moment.
  void Resume(uint64_t epoch, uint64_t commits_since_zero, std::optional<ReduceOp> op) {
    epoch_ = epoch;
    age_ = commits_since_zero;
    op_ = op;
    has_failed_call_ = false;
  }
  // Residuals of another time were written where a call writes its new ones: they are in force.
  void Adopt(uint64_t epoch, uint64_t commits_since_zero, std::optional<ReduceOp> op) {
    generation_ = next();
    lacks_results_ = false;
    Resume(epoch, commits_since_zero, op);
  }

  // The op of the first call binds the later ones: residuals of a sum and of a mean differ by n.
  std::optional<ReduceOp> op() const { return op_; }
  void set_op(ReduceOp op) { op_ = op; }

  // Tells a residual that is zero (0) from others, and these by the calls that made them, modulo
  // 255: what replicas of a server residual compare.
  uint8_t age() const { return age_ == 0 ? 0 : static_cast<uint8_t>(1 + (age_ - 1) % 255); }

  uint64_t commits_since_zero() const { return age_; }
  uint64_t epoch() const { return epoch_; }
  uint64_t lost_elements() const { return lost_elements_; }
  uint64_t nonfinite_calls() const { return nonfinite_calls_; }
  uint64_t residual_resets() const { return residual_resets_; }
  size_t residual_bytes() const;

 private:
  int next() const { return config_.is_transactional ? generation_ ^ 1 : generation_; }
  std::byte* At(const Memory& memory, size_t element) const {
    return memory.size() == 0 ? nullptr
                              : memory.data() + element * kernels::BytesOf(config_.residual_type);
  }
  kernels::cuda::Residual ResidualOf(const Memory (&generations)[2]) const;
  kernels::cuda::CompressorWords* words() const {
    return reinterpret_cast<kernels::cuda::CompressorWords*>(words_.data());
  }
  Result<Memory> NewMemory(size_t bytes, const char* purpose) const {
    return Memory::Create(config_.place, config_.devices, bytes, purpose);
  }
  void ClearResiduals();
  Result<bool> HasMask(const std::vector<uint8_t>& aligned, uint32_t digest) const;
  void LeaveMask();
  std::vector<uint8_t> AlignChunks(std::vector<uint8_t> packed) const;

  Config config_;
  Memory worker_[2];  // the second is empty when not transactional
  Memory server_[2];
  Memory mask_;  // every chunk begins at a byte
  // On a device: graphs go on using them, and to free memory waits for streams that may wait for
  // the thread that frees it.
  std::vector<Memory> former_;
  Memory words_;    // of the device, with stream-ordered calls
  Memory home_[5];  // on the device, while residuals and mask are on the host
  uint32_t mask_digest_ = 0;
  int generation_ = 0;
  uint64_t age_ = 0;  // commits since the residuals were zero
  std::optional<ReduceOp> op_;
  uint64_t epoch_ = 0;
  uint64_t nonfinite_calls_ = 0;
  uint64_t residual_resets_ = 0;
  uint64_t lost_elements_ = 0;
  bool lacks_results_ = false;
  bool has_failed_call_ = false;  // the last one; its generation may still be rolled forward to
};

}  // namespace onebit
