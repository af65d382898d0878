// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rebinds a compressor to another communicator, in three phases.
//
// 1. Accounts. Every rank describes its compressor and says how many calls it has committed. If the
// last call failed on some ranks and was committed on others, epochs differ by one. A rank that
// committed it had a packet of every rank, so every rank has completely written its own new
// generation and can roll forward to it.
//
// 2. Residuals. Worker residuals belong to ranks and stay where they are, unless there are two
// levels, before or after: then every rank gets its elements of their mean over all ranks, in which
// the residual of a host counts for each of its ranks. Server residuals belong to chunks, and the
// number of chunks changes. A dense sum, to which every rank contributes the
// elements that it served, gives all of them to every rank, and each keeps those it will serve.
// Elements that no rank contributes were lost with their rank and become zero. With one exchange
// every rank serves all elements; there only the most recent rank contributes, because a rank that
// rolls forward may lack packets that its replica would need.
//
// 3. Commit. No rank migrates before all have prepared everything. A rank on which the final gather
// fails keeps its prepared rebind, because it may have succeeded on others.
#include "state/rebind.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <string>

#include "kernels/reference/elements.h"
#include "plan/algorithms.h"
#include "state/compressor_agreement.h"

namespace onebit {

// Sums this many elements at a time, so that memory does not grow with the tensor.
constexpr size_t kPieceElements = size_t{1} << 20;
constexpr std::string_view kRebinding = "rebinding a compressor";
constexpr std::string_view kLastWord = "ending the rebind of a compressor";
constexpr uint8_t kUnsetOp = 0xff;

void PlannedCompressor::Apply(PreparedRebind next) {
  if (next.rolls_forward) compressor.RollForward();
  if (compressor.has_server_residual()) compressor.ReplaceServer(std::move(next.server));
  if (next.worker.has_value()) compressor.ReplaceWorker(std::move(*next.worker));
  compressor.AddLost(next.lost_elements);
  compressor.Resume(next.epoch, next.commits_since_zero, next.op);
  plan = std::move(next.plan);
  comm_id = next.comm_id;
  prepared.reset();
}

namespace {

// A compressor's binding, current or after its prepared rebind.
struct Binding {
  uint32_t comm_id = 0;
  uint32_t rank = 0;
  uint32_t ranks = 0;
  uint32_t hosts = 0;       // with two levels
  uint64_t compressed = 0;  // elements of the worker residual
  uint64_t served = 0;      // of the server residual
  bool is_one_exchange = false;
  bool can_roll_forward = false;
  bool lacks_results = false;
  uint64_t epoch = 0;
  uint64_t commits_since_zero = 0;
  std::optional<ReduceOp> op;
};

// One rank's account in phase 1.
struct Account {
  std::string obstacle;
  AgreedValues values;
  Binding binding;
  std::optional<Binding> prepared;
};

Binding BindingOf(const PlannedCompressor& planned) {
  const Compressor& state = planned.compressor;
  return {.comm_id = planned.comm_id,
          .rank = planned.plan->rank,
          .ranks = planned.plan->ranks,
          .hosts = planned.plan->hosts,
          .compressed = planned.plan->compressed.count,
          .served = planned.plan->served.count,
          .is_one_exchange = planned.plan->key.is_one_exchange,
          .can_roll_forward = state.can_roll_forward(),
          .lacks_results = state.lacks_results(),
          .epoch = state.epoch(),
          .commits_since_zero = state.commits_since_zero(),
          .op = state.op()};
}

// The binding after the prepared rebind.
Binding BindingAfter(const PlannedCompressor& planned) {
  const PreparedRebind& prepared = *planned.prepared;
  return {.comm_id = prepared.comm_id,
          .rank = prepared.plan->rank,
          .ranks = prepared.plan->ranks,
          .hosts = prepared.plan->hosts,
          .compressed = prepared.plan->compressed.count,
          .served = prepared.plan->served.count,
          .is_one_exchange = prepared.plan->key.is_one_exchange,
          .can_roll_forward = false,
          .lacks_results = prepared.rolls_forward || planned.compressor.lacks_results(),
          .epoch = prepared.epoch,
          .commits_since_zero = prepared.commits_since_zero,
          .op = prepared.op};
}

void Append(const Binding& binding, ByteWriter* writer) {
  writer->Integer(binding.comm_id)
      .Integer(binding.rank)
      .Integer(binding.ranks)
      .Integer(binding.hosts)
      .Integer(binding.compressed)
      .Integer(binding.served)
      .Integer(static_cast<uint8_t>(binding.is_one_exchange))
      .Integer(static_cast<uint8_t>(binding.can_roll_forward))
      .Integer(static_cast<uint8_t>(binding.lacks_results))
      .Integer(binding.epoch)
      .Integer(binding.commits_since_zero)
      .Integer(binding.op ? static_cast<uint8_t>(*binding.op) : kUnsetOp);
}

Binding ReadBinding(ByteReader* reader) {
  Binding binding;
  binding.comm_id = reader->Integer<uint32_t>();
  binding.rank = reader->Integer<uint32_t>();
  binding.ranks = reader->Integer<uint32_t>();
  binding.hosts = reader->Integer<uint32_t>();
  binding.compressed = reader->Integer<uint64_t>();
  binding.served = reader->Integer<uint64_t>();
  binding.is_one_exchange = reader->Integer<uint8_t>() != 0;
  binding.can_roll_forward = reader->Integer<uint8_t>() != 0;
  binding.lacks_results = reader->Integer<uint8_t>() != 0;
  binding.epoch = reader->Integer<uint64_t>();
  binding.commits_since_zero = reader->Integer<uint64_t>();
  const auto op = reader->Integer<uint8_t>();
  if (op != kUnsetOp) binding.op = static_cast<ReduceOp>(op);
  return binding;
}

Bytes Encode(const Account& account) {
  ByteWriter writer;
  writer.Text(account.obstacle);
  onebit::Append(account.values, &writer);
  Append(account.binding, &writer);
  writer.Integer(static_cast<uint8_t>(account.prepared.has_value()));
  if (account.prepared) Append(*account.prepared, &writer);
  return writer.Take();
}

Result<Account> DecodeAccount(const Bytes& bytes, size_t rank) {
  ByteReader reader(bytes);
  Account account;
  account.obstacle = reader.Text();
  account.values = ReadAgreed(&reader);
  account.binding = ReadBinding(&reader);
  if (reader.Integer<uint8_t>() != 0) account.prepared = ReadBinding(&reader);
  if (!reader.is_complete()) {
    return Error(Code::kCorrupt,
                 "what rank {} reports about its residuals cannot be read ({} bytes): do all ranks "
                 "have the same version of onebit?",
                 rank, bytes.size());
  }
  return account;
}

Deadline DeadlineOf(const Comm& comm) {
  return std::chrono::steady_clock::now() +
         std::chrono::milliseconds(comm.options().regroup_timeout_ms);
}

// One rank's part in a rebind.
class Rebinding {
 public:
  Rebinding(Comm& comm, Engine& engine, PlannedCompressor* planned)
      : comm_(comm), engine_(engine), planned_(*planned) {}

  Result<int> Run(Status obstacle) {
    try {
      return Rebind(std::move(obstacle));
    } catch (const std::bad_alloc&) {
      return comm_.FailWithoutMemory();  // the others may be waiting already
    }
  }

 private:
  Result<int> Rebind(Status obstacle) {
    PreparedRebind next;
    if (obstacle.ok()) obstacle = ReserveIfThereIsMemory(&next);
    ONEBIT_TRY(Gather(obstacle));
    // Every rank decides alike, so an error leaves the communicator healthy.
    ONEBIT_TRY(ChooseOrigin());
    ONEBIT_TRY(AgreeOnEpoch(&next));
    if (origin(0).comm_id == comm_.id()) return source_;  // all have migrated before
    // From here on the others would wait for this rank if it gave up.
    if (Status status = Migrate(std::move(next)); !status.ok())
      return comm_.Fail(std::move(status));
    return source_;
  }

  Compressor& compressor() { return planned_.compressor; }
  const Binding& origin(size_t rank) const { return origins_[rank]; }

  Status Migrate(PreparedRebind next) {
    // Ranks that complete an earlier rebind now may have come from two levels by way of one.
    if (origin(0).hosts == 0 && !next.plan->key.has_two_levels) next.worker.reset();
    if (compressor().has_server_residual()) ONEBIT_TRY(RedistributeServer(&next));
    if (next.worker.has_value()) ONEBIT_TRY(RedistributeWorker(&next));
    // Another rank may complete the rebind even if this gather fails here.
    planned_.prepared = std::move(next);
    ONEBIT_TRY(comm_.Gather({}, DeadlineOf(comm_), kLastWord).status());
    planned_.Apply(*std::exchange(planned_.prepared, std::nullopt));
    return OkStatus();
  }

  // Nothing was sent yet, so the error is reported to the others and the communicator stays
  // healthy.
  Status ReserveIfThereIsMemory(PreparedRebind* next) {
    try {
      return Reserve(next);
    } catch (const std::bad_alloc&) {
      return {Code::kOutOfMemory, "out of memory"};
    }
  }

  // Allocates everything that grows with the tensor.
  Status Reserve(PreparedRebind* next) {
    // Residuals of other collectives belong to the former ranks' chunks.
    if (const Collective collective = compressor().config().collective;
        collective != Collective::kAllReduce) {
      return Error(Code::kInvalidUsage,
                   "compressor of tensor {} is for {}, whose tensor has other parts on other "
                   "ranks: make a new one there, and load a saved state if there is one",
                   compressor().config().tensor_id, NameOf(collective));
    }
    ONEBIT_ASSIGN_OR_RETURN(next->plan, engine_.PlanCompressor(compressor().config()));
    next->comm_id = comm_.id();
    ONEBIT_ASSIGN_OR_RETURN(next->server, compressor().NewServerResidual(next->plan->served.count));
    const bool has_levels = planned_.plan->key.has_two_levels || next->plan->key.has_two_levels;
    if (has_levels && compressor().worker_base() != nullptr) {
      const ElementRange range = next->plan->compressed;
      ONEBIT_ASSIGN_OR_RETURN(
          next->worker,
          compressor().NewWorkerResidual(range.begin, range.count, next->plan->key.has_two_levels));
    }
    if (!compressor().has_server_residual() && !next->worker.has_value()) return OkStatus();
    const size_t most = std::min(compressor().config().count, kPieceElements);
    ONEBIT_ASSIGN_OR_RETURN(piece_, AlignedBuffer::Create(most * sizeof(float), "a rebind"));
    const size_t last = compressor().config().count % kPieceElements;
    for (const kernels::DataType type :
         {compressor().config().residual_type, kernels::DataType::kF32}) {
      ONEBIT_TRY(engine_.ReserveSum(most, type));
      ONEBIT_TRY(engine_.ReserveSum(last, type));
    }
    return OkStatus();
  }

  Status Gather(const Status& obstacle) {
    Account mine{.obstacle = obstacle.text(),
                 .values = ConfigurationOf(compressor()),
                 .binding = BindingOf(planned_),
                 .prepared = {}};
    if (planned_.prepared) mine.prepared = BindingAfter(planned_);
    ONEBIT_ASSIGN_OR_RETURN(const auto contents,
                            comm_.Gather(Encode(mine), DeadlineOf(comm_), kRebinding));
    if (!obstacle.ok()) return obstacle;
    std::vector<AgreedValues> values;
    for (size_t rank = 0; rank < contents.size(); ++rank) {
      ONEBIT_ASSIGN_OR_RETURN(Account account, DecodeAccount(contents[rank], rank));
      accounts_.push_back(std::move(account));
      values.push_back(accounts_.back().values);
      const std::string& other = accounts_.back().obstacle;
      if (other.empty()) continue;
      return Error(Code::kRemoteError, "rank {}: rank {} cannot rebind its compressor: {}",
                   comm_.rank(), rank, other);
    }
    return CompareAgreed(values);
  }

  // Chooses the communicator from which all ranks migrate. If an earlier rebind completed on some
  // ranks only, the others complete it now.
  Status ChooseOrigin() {
    const auto comes_from = [](const Account& account, uint32_t comm_id) {
      return account.binding.comm_id == comm_id ||
             (account.prepared && account.prepared->comm_id == comm_id);
    };
    for (const Account& candidate : accounts_) {
      const uint32_t comm_id = candidate.binding.comm_id;
      if (!std::ranges::all_of(accounts_, [&](const Account& a) { return comes_from(a, comm_id); }))
        continue;
      for (const Account& account : accounts_) {
        const bool is_there = account.binding.comm_id == comm_id;
        origins_.push_back(is_there ? account.binding : *account.prepared);
      }
      if (planned_.comm_id != comm_id) {
        planned_.Apply(*std::exchange(planned_.prepared, std::nullopt));
      }
      return CheckOrigins();
    }
    return Error(Code::kMismatch,
                 "rank {}: compressor of tensor {}: the ranks' compressors were not made for the "
                 "same communicator, so their residuals do not belong together; make new ones",
                 comm_.rank(), compressor().config().tensor_id);
  }

  Status CheckOrigins() const {
    for (size_t a = 0; a < origins_.size(); ++a) {
      for (size_t b = a + 1; b < origins_.size(); ++b) {
        if (origin(a).rank != origin(b).rank) continue;
        return Error(Code::kMismatch,
                     "rank {}: ranks {} and {} both rebind the compressor of former rank {}",
                     comm_.rank(), a, b, origin(a).rank);
      }
    }
    return OkStatus();
  }

  Status AgreeOnEpoch(PreparedRebind* next) {
    const auto by_epoch = [](const Binding& a, const Binding& b) { return a.epoch < b.epoch; };
    const Binding& newest = *std::ranges::max_element(origins_, by_epoch);
    const Binding& oldest = *std::ranges::min_element(origins_, by_epoch);
    uint64_t commits = 0;  // since residuals were zero, the last call included
    for (size_t rank = 0; rank < origins_.size(); ++rank) {
      const Binding& one = origin(rank);
      const bool is_behind = one.epoch < newest.epoch;
      const bool can_follow = !is_behind || one.can_roll_forward || !HasGenerations();
      if (newest.epoch - oldest.epoch > 1 || !can_follow) return Unlike(newest, rank);
      const uint64_t after = one.commits_since_zero + (is_behind ? 1 : 0);
      // A failed call has cost a rank without a second generation its residuals.
      if (HasGenerations() && rank > 0 && after != commits) return ResetOnSome(rank);
      commits = std::max(commits, after);
    }
    const auto has_results = [&](const Binding& one) {
      return one.epoch == newest.epoch && !one.lacks_results;
    };
    const auto found = std::ranges::find_if(origins_, has_results);
    source_ = found == origins_.end() ? -1 : static_cast<int>(found - origins_.begin());
    most_recent_ = static_cast<int>(&newest - origins_.data());
    next->rolls_forward =
        HasGenerations() && origin(static_cast<size_t>(comm_.rank())).epoch < newest.epoch;
    next->epoch = newest.epoch;
    next->commits_since_zero = commits;
    next->op = newest.op;
    return OkStatus();
  }

  Status Unlike(const Binding& newest, size_t rank) const {
    return Error(Code::kMismatch,
                 "rank {}: compressor of tensor {}: rank {} has committed {} calls, rank {} {}: "
                 "residuals of different calls do not belong together; make new compressors",
                 comm_.rank(), planned_.compressor.config().tensor_id, &newest - origins_.data(),
                 newest.epoch, rank, origin(rank).epoch);
  }
  Status ResetOnSome(size_t rank) const {
    return Error(Code::kMismatch,
                 "rank {}: compressor of tensor {}: rank {} was reset between different calls than "
                 "rank 0; reset it on all ranks",
                 comm_.rank(), planned_.compressor.config().tensor_id, rank);
  }

  // Rolling forward needs a second generation. Without one the failed call has cost the residuals
  // anyway.
  bool HasGenerations() const {
    const Compressor::Config& config = planned_.compressor.config();
    return config.codec.has_feedback() && config.is_transactional;
  }

  Status RedistributeServer(PreparedRebind* next) {
    const size_t count = compressor().config().count;
    const bool was_one_exchange = origin(0).is_one_exchange;
    const bool contributes = !was_one_exchange || comm_.rank() == most_recent_;
    const ElementRange former = contributes ? planned_.plan->served : ElementRange{};
    const std::byte* from =
        next->rolls_forward ? compressor().server_out(0) : compressor().server_in(0);
    const ElementRange kept = next->plan->served;
    for (size_t begin = 0; begin < count; begin += kPieceElements) {
      const ElementRange piece{begin, std::min(kPieceElements, count - begin)};
      std::memset(piece_.data(), 0, piece.count * element_bytes());
      Copy(from, former, piece_.data(), piece);
      ONEBIT_TRY(engine_.Sum(piece_.data(), piece.count, compressor().config().residual_type));
      Copy(piece_.data(), piece, next->server.generations[0].data(), kept);
    }
    Rescale(*next);
    const bool has_lost = !was_one_exchange && next->commits_since_zero != 0;
    if (has_lost) next->lost_elements += Missing(count, &Binding::served);
    return OkStatus();
  }

  // Every rank adds its residual for as many ranks as it stands for.
  Status RedistributeWorker(PreparedRebind* next) {
    const Compressor::Config& config = compressor().config();
    const kernels::DataType type = config.residual_type;
    const std::byte* const from =
        next->rolls_forward ? compressor().worker_base_out() : compressor().worker_base();
    const ElementRange former = {config.worker_begin, compressor().worker_elements()};
    const float share = RanksOfResidual(comm_, compressor()) / static_cast<float>(comm_.ranks());
    auto* const values = reinterpret_cast<float*>(piece_.data());
    for (size_t begin = 0; begin < config.count; begin += kPieceElements) {
      const size_t count = std::min(kPieceElements, config.count - begin);
      for (size_t i = 0; i < count; ++i) {
        const size_t element = begin + i - former.begin;  // wraps around below the range
        values[i] = element < former.count
                        ? share * kernels::reference::LoadElement(from, type, element)
                        : 0.0f;
      }
      ONEBIT_TRY(engine_.Sum(values, count, kernels::DataType::kF32));
      for (size_t i = 0; i < count; ++i) {
        const size_t element = begin + i - next->worker->begin;
        if (element >= next->worker->count) continue;
        kernels::reference::StoreElement(values[i], type, element,
                                         next->worker->generations[0].data());
      }
    }
    if (origin(0).hosts != 0 && next->commits_since_zero != 0) {
      next->lost_elements += Missing(config.count * origin(0).hosts, &Binding::compressed);
    }
    return OkStatus();
  }

  // Copies the intersection of two ranges of the tensor.
  void Copy(const std::byte* from, ElementRange source, std::byte* to, ElementRange target) const {
    const size_t begin = std::max(source.begin, target.begin);
    const size_t end = std::min(source.end(), target.end());
    if (begin >= end) return;
    std::memcpy(to + (begin - target.begin) * element_bytes(),
                from + (begin - source.begin) * element_bytes(), (end - begin) * element_bytes());
  }

  // What a server owes stays the same amount of the result, although its unit may depend on the
  // number of ranks.
  void Rescale(PreparedRebind& next) const {
    if (!next.op.has_value()) return;
    const Compressor& state = planned_.compressor;
    const float factor =
        state.server_unit(*next.op, origin(0).ranks, origin(0).hosts != 0) /
        state.server_unit(*next.op, next.plan->ranks, next.plan->key.has_two_levels);
    if (factor == 1) return;
    const kernels::DataType type = planned_.compressor.config().residual_type;
    std::byte* values = next.server.generations[0].data();
    for (size_t i = 0; i < next.server.elements; ++i) {
      const float value = kernels::reference::LoadElement(values, type, i);
      kernels::reference::StoreElement(value * factor, type, i, values);
    }
  }

  // Counts the elements of a residual whose rank is no longer there.
  uint64_t Missing(uint64_t all, uint64_t Binding::*elements) const {
    for (const Binding& binding : origins_) all -= binding.*elements;
    return all;
  }

  size_t element_bytes() const {
    return kernels::BytesOf(planned_.compressor.config().residual_type);
  }

  Comm& comm_;
  Engine& engine_;
  PlannedCompressor& planned_;
  AlignedBuffer piece_;
  std::vector<Account> accounts_;  // by rank
  std::vector<Binding> origins_;   // by rank
  int source_ = 0;                 // rank with the results of the last call; -1: none
  int most_recent_ = 0;            // a rank with the highest epoch
};

}  // namespace

Result<int> Rebind(Comm& comm, Engine& engine, PlannedCompressor* compressor,
                   const Status& obstacle) {
  return Rebinding(comm, engine, compressor).Run(obstacle);
}

}  // namespace onebit
