// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The compression settings of a tensor, and its residuals: what compression has lost so far.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/cuts.h"
#include "codec/message_header.h"
#include "device/memory.h"
#include "kernels/kernels.h"

namespace onebit {

// Holds the residuals of one tensor: the worker's, one per element, and the server's, one per
// element that this rank serves. In an all-gather the worker's are the estimate of each element
// that all ranks share, negated, so that z = x + e is what the estimate lacks; in sends and
// receives they are that of the two ranks. A transactional compressor holds two generations of
// each. A call reads one and writes the other, and Commit swaps them as the last act of the call,
// so that the old generation is intact until then. Not thread-safe.
class Compressor {
 public:
  struct Config {
    Codec codec = {.kind = CodecKind::kEf, .block = 4096};
    size_t count = 0;  // as the calls count elements
    kernels::DataType type = kernels::DataType::kF32;
    int hops = 2;  // sparse: 1 if every rank receives the packets of all
    // 2: where hosts have several ranks, inside them and between them; 0: for long tensors
    int levels = 0;
    float ef_decay = 1;  // sparse: what the worker residual counts for in the next call
    uint64_t seed = 0;   // of stochastic rounding, and of draws that select elements
    kernels::DataType residual_type = kernels::DataType::kF32;
    bool is_transactional = true;
    uint16_t chunk_alignment = 64;
    bool has_server_residual = true;
    uint32_t tensor_id = 0;
    bool is_weighted = false;  // calls have weights (set_weight)
    // Elements of the server residual: this rank's chunk or all, as the collective decides.
    size_t server_elements = 0;
    // The elements whose residual this rank has as a worker: with two levels those of its rail.
    size_t worker_begin = 0;
    std::optional<size_t> worker_count;  // none: all
    // In a reduce-scatter with two levels these are chunks, which lie in the residual one after the
    // other: the place of each, or kElsewhere. Null: the elements follow one another in the tensor.
    static constexpr uint32_t kElsewhere = UINT32_MAX;
    std::shared_ptr<const std::vector<uint32_t>> worker_places = nullptr;
    bool has_two_levels = false;  // calls pass inside hosts, and between them
    Collective collective = Collective::kAllReduce;
    // Chunks of `count` elements that make up the tensor: 1 in an allreduce, otherwise one per
    // rank.
    size_t chunks = 1;
    std::shared_ptr<const Cuts> cuts = nullptr;  // where blocks of signs restart; null: nowhere
    MemoryLocation location;                     // of residuals, mask and the buffers of calls
    const Devices* devices = nullptr;            // null if the location is host memory
    // Calls are enqueued on streams, so counters that they change are on the device as well. True
    // for all compressors on device memory but lossless ones.
    bool is_stream_ordered = false;

    // Elements of the whole tensor and the mask.
    size_t elements() const { return count * chunks; }
  };

  static Result<Compressor> Create(const Config& config);

  const Config& config() const { return config_; }
  bool has_server_residual() const {
    return config_.codec.has_feedback() && config_.has_server_residual &&
           config_.collective == Collective::kAllReduce;
  }

  // Lengths of the residuals; 0 when the mode has none.
  size_t worker_elements() const { return config_.codec.has_feedback() ? worker_count() : 0; }
  size_t server_elements() const { return has_server_residual() ? config_.server_elements : 0; }

  // Results per unit of the server residual. Servers of sums work on means where signs travel in
  // one level, which they multiply by the number of ranks afterwards, and on sums otherwise.
  float server_unit(ReduceOp op, size_t ranks) const {
    return server_unit(op, ranks, config_.has_two_levels);
  }
  float server_unit(ReduceOp op, size_t ranks, bool has_two_levels) const {
    const bool is_mean = config_.codec.sends_means() && !has_two_levels;
    return op == ReduceOp::kSum && is_mean ? static_cast<float>(ranks) : 1.0f;
  }

  // Residual of an element (server: relative to the served range), as a call reads (in) and writes
  // (out) it; null if the mode has none.
  const std::byte* worker_in(size_t element) const {
    return At(worker_[generation_], WorkerIndex(element));
  }
  std::byte* worker_out(size_t element) const { return At(worker_[next()], WorkerIndex(element)); }
  // The worker residual from its first element on.
  const std::byte* worker_base() const { return At(worker_[generation_], 0); }
  std::byte* worker_base_out() const { return At(worker_[next()], 0); }
  // True if this rank has the worker residual of an element, which is then at this index.
  bool HasWorker(size_t element) const { return WorkerIndex(element) < worker_elements(); }
  size_t WorkerIndex(size_t element) const {
    if (config_.worker_places == nullptr) return element - config_.worker_begin;  // may wrap around
    if (config_.count == 0) return 0;
    const size_t chunk = element / config_.count;
    if (chunk >= config_.chunks) return worker_elements();
    const uint32_t place = (*config_.worker_places)[chunk];
    if (place == Config::kElsewhere) return SIZE_MAX;
    return place * config_.count + (element - chunk * config_.count);
  }
  const std::byte* server_in(size_t element) const { return At(server_[generation_], element); }
  std::byte* server_out(size_t element) const { return At(server_[next()], element); }

  // The same in the form that kernels take (kernels::cuda::Piece).
  struct KernelResidual {
    void* generations[2] = {nullptr, nullptr};
    const uint32_t* current = nullptr;
  };
  KernelResidual worker(size_t element) const { return ResidualOf(worker_, WorkerIndex(element)); }
  KernelResidual server(size_t element) const { return ResidualOf(server_, element); }

  // Packed bits from `element` on, whose distance from the beginning of its chunk, or from the cut
  // before it, is a multiple of 8; null if all elements take part.
  const uint8_t* mask(size_t element) const {
    return mask_.size() == 0 ? nullptr : mask_base() + MaskByte(element);
  }
  const uint8_t* mask_base() const { return reinterpret_cast<const uint8_t*>(mask_.data()); }
  // Byte of the mask whose lowest bit is that of `element`.
  size_t MaskByte(size_t element) const {
    if (config_.cuts != nullptr && element % 8 != 0) {
      return kernels::BitBytes(config_.count) + config_.cuts->MaskByte(element);
    }
    if (config_.chunks == 1 || config_.count == 0) return element / 8;
    const size_t chunk = element / config_.count;
    return chunk * kernels::BitBytes(config_.count) + element % config_.count / 8;
  }
  // Identifies the mask in message headers; 0 without one.
  uint32_t mask_digest() const { return mask_digest_; }
  // `mask` has one bit for every element of the tensor, without gaps between chunks.
  Status SetMask(const uint8_t* mask);

  // Moves residuals and mask to other memory, and with stream-ordered calls also the counters that
  // only the device knows. All enqueued work must be done. After an error everything is where it
  // was. Memory of the device is kept for the way back.
  Status MoveTo(const MemoryLocation& location);

  // With stream-ordered calls: what their kernels need to end one.
  bool has_two_generations() const {
    return config_.codec.has_feedback() && config_.is_transactional;
  }
  // Residuals that a call without results zeroes, because they have a single generation.
  std::array<std::span<std::byte>, 2> ResidualsToReset() const;
  const uint64_t* age_on_device() const { return &words()->age; }
  const uint64_t* epoch_on_device() const { return &words()->epoch; }
  kernels::cuda::CompressorWords* words() const {
    return reinterpret_cast<kernels::cuda::CompressorWords*>(words_.data());
  }
  // Refresh reads the counters from the device; Publish writes those that the host has changed.
  Status Refresh();
  Status Publish();

  // After a call that succeeded with finite values: makes its new residuals the current ones.
  void Commit();
  // After a call that met a non-finite value, or failed. A transactional compressor keeps its
  // residuals; otherwise they are half written and are reset.
  void DiscardNonfinite();
  void DiscardFailed();
  // After a stream-ordered call that could not be enqueued completely: other ranks may have
  // received what it sent.
  void NoteFailed() { has_failed_call_ = true; }
  // After a call that this rank did not begin, though others may have: there is nothing to revert,
  // as on those.
  void NoteNotBegun() { has_previous_ = false; }
  // Zeroes the residuals and allows any op.
  void Reset();
  // Takes back the last call if it committed: residuals, epoch and age are those before it. Does
  // nothing if the last call changed no residual, or if they were replaced since.
  void Revert();

  // Rebinding. If a call failed here but another rank committed it, what it wrote here is valid: no
  // rank can commit before every rank has written its new generation.
  bool can_roll_forward() const { return has_failed_call_ && config_.is_transactional; }
  void RollForward() {
    Commit();
    lacks_results_ = true;
  }
  // True if it rolled forward and has made no call since: only other ranks have the last results.
  bool lacks_results() const { return lacks_results_; }
  // A new server residual of zeros, with as many generations as the present one.
  struct ServerResidual {
    size_t elements = 0;
    Memory generations[2];
  };
  Result<ServerResidual> NewServerResidual(size_t elements) const;
  // Replaces the server residual; generation 0 of `residual` becomes the current one. AddLost
  // counts elements of residuals whose rank is gone.
  void ReplaceServer(ServerResidual residual);
  void AddLost(uint64_t elements) { lost_elements_ += elements; }
  // The same for the worker residual, whose elements change if there are or were two levels.
  struct WorkerResidual {
    size_t begin = 0;
    size_t count = 0;
    bool has_two_levels = false;
    Memory generations[2];
  };
  Result<WorkerResidual> NewWorkerResidual(size_t begin, size_t count, bool has_two_levels) const;
  void ReplaceWorker(WorkerResidual residual);
  // Levels decide which elements the residuals have, and where. A compressor that has made no call
  // can take another layout, since all its residuals are zero. NewOneLevel allocates that of one
  // level, for a rank that serves so many elements.
  struct Layout {
    Memory worker[2];
    Memory server[2];
    std::optional<size_t> worker_count;
    size_t worker_begin = 0;
    std::shared_ptr<const std::vector<uint32_t>> worker_places;
    size_t server_elements = 0;
    bool has_two_levels = false;
    int levels = 1;
  };
  Result<Layout> NewOneLevel(size_t server_elements) const;
  void Swap(Layout* layout);
  // Keeps memory of a device that is no longer current.
  void Keep(Layout layout);
  // Sets the values on which all ranks have agreed.
  void Resume(uint64_t epoch, uint64_t commits_since_zero, std::optional<ReduceOp> op) {
    has_previous_ = false;
    epoch_ = epoch;
    age_ = calls_ = commits_since_zero;
    op_ = op;
    pair_end_.reset();
    has_failed_call_ = false;
  }
  // Makes residuals current that were loaded to where a call writes its new ones.
  void Adopt(uint64_t epoch, uint64_t commits_since_zero, std::optional<ReduceOp> op) {
    generation_ = next();
    lacks_results_ = false;
    Resume(epoch, commits_since_zero, op);
  }

  // The op of the first call binds later ones, because residuals of sum and mean differ by a factor
  // n.
  std::optional<ReduceOp> op() const { return op_; }
  void set_op(ReduceOp op) { op_ = op; }

  // The next calls count this rank with this weight: 0 if it is absent, 1 unless set.
  void set_weight(float weight) {
    config_.is_weighted = true;
    weight_ = weight;
  }
  float weight() const { return weight_; }
  // The sum of all ranks' weights in the call in progress. Its reduce steps set it, maybe on
  // several threads at once, but to the same number. A call without weight has no result to commit.
  void set_weight_sum(float sum) {
    std::atomic_ref(weight_sum_).store(sum, std::memory_order_relaxed);
  }
  float weight_sum() const {
    return std::atomic_ref(const_cast<float&>(weight_sum_)).load(std::memory_order_relaxed);
  }
  bool is_empty_round() const { return config_.is_weighted && weight_sum_ == 0; }
  void CountEmptyRound() {
    ++empty_rounds_;
    has_previous_ = false;
    lacks_results_ = false;
  }
  uint64_t empty_rounds() const { return empty_rounds_; }

  // The first send or receive binds later ones, because the residual is what two ranks hold.
  struct PairEnd {
    uint32_t peer = 0;
    bool is_receiver = false;
    friend bool operator==(const PairEnd&, const PairEnd&) = default;
  };
  const std::optional<PairEnd>& pair_end() const { return pair_end_; }
  void set_pair_end(const PairEnd& end) { pair_end_ = end; }

  // Number that replicas of a server residual compare: 0 for a residual of zeros, otherwise the
  // count of calls that made it, modulo 255.
  uint8_t age() const { return AgeOf(age_); }
  static uint8_t AgeOf(uint64_t commits) {
    return commits == 0 ? 0 : static_cast<uint8_t>(1 + (commits - 1) % 255);
  }

  uint64_t commits_since_zero() const { return age_; }
  // Calls begun since creation or a reset, or the number of Resume and those begun since. With
  // finite values it equals commits_since_zero, but it needs no result of a call on a stream.
  uint64_t calls() const { return calls_; }
  void CountCall() { ++calls_; }
  uint64_t epoch() const { return epoch_; }
  uint64_t lost_elements() const { return lost_elements_; }
  uint64_t nonfinite_calls() const { return nonfinite_calls_; }
  uint64_t residual_resets() const { return residual_resets_; }
  uint64_t nonfinite_blocks() const { return nonfinite_blocks_; }
  // Counts blocks of low-bit and sparse packets. Threads that compute steps of one call may do so
  // at once.
  void AddNonfiniteBlocks(uint64_t blocks) {
    if (blocks != 0) {
      std::atomic_ref(nonfinite_blocks_).fetch_add(blocks, std::memory_order_relaxed);
    }
  }
  size_t residual_bytes() const;

 private:
  size_t worker_count() const { return config_.worker_count.value_or(config_.elements()); }
  int next() const { return config_.is_transactional ? generation_ ^ 1 : generation_; }
  std::byte* At(const Memory& memory, size_t element) const {
    return memory.size() == 0 ? nullptr
                              : memory.data() + element * kernels::BytesOf(config_.residual_type);
  }
  KernelResidual ResidualOf(const Memory (&generations)[2], size_t element) const;
  Status NewGenerations(size_t elements, const char* purpose, Memory* generations) const;
  Result<Memory> NewMemory(size_t bytes, const char* purpose) const {
    return Memory::CreateOrdered(config_.location, config_.devices, bytes, purpose);
  }
  void ClearResiduals();
  Result<bool> HasMask(const std::vector<uint8_t>& aligned, uint32_t digest) const;
  void LeaveMask();
  std::vector<uint8_t> Aligned(std::vector<uint8_t> packed) const;

  Config config_;
  Memory worker_[2];  // the second is empty when not transactional
  Memory server_[2];
  Memory mask_;  // every chunk begins at a byte; with cuts a second copy, where they all do
  // Device memory that is no longer current. It is kept because graphs may still use it, and
  // because freeing it waits for streams, which may in turn wait for the freeing thread.
  std::vector<Memory> former_;
  Memory words_;    // counters on the device, with stream-ordered calls
  Memory home_[5];  // their device memory while residuals and mask are on the host
  uint32_t mask_digest_ = 0;
  int generation_ = 0;
  bool has_previous_ = false;  // the other generation holds the residuals before the last commit
  uint64_t age_ = 0;           // commits since the residuals were zero
  uint64_t calls_ = 0;
  std::optional<ReduceOp> op_;
  std::optional<PairEnd> pair_end_;
  uint64_t epoch_ = 0;
  uint64_t nonfinite_calls_ = 0;
  uint64_t nonfinite_blocks_ = 0;
  uint64_t residual_resets_ = 0;
  uint64_t lost_elements_ = 0;
  uint64_t empty_rounds_ = 0;
  float weight_ = 1;
  float weight_sum_ = 1;
  bool lacks_results_ = false;
  bool has_failed_call_ = false;  // the last call failed; RollForward may still commit it
};

}  // namespace onebit
