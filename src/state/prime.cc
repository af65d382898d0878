// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "state/prime.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <string_view>
#include <utility>

#include "base/aligned_buffer.h"
#include "exec/run_calls.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"
#include "state/compressor_agreement.h"
#include "steps/fill_nan.h"

namespace onebit {
namespace {

using kernels::DataType;
using kernels::reference::InDefaultFpEnvironment;
using kernels::reference::LoadElement;
using kernels::reference::RoundTo;
using kernels::reference::StoreElement;

constexpr std::string_view kPriming = "priming a compressor";

// One rank's part in the call. Every rank writes its new residuals before the last exchange, which
// tells whether all values were finite: so a rank that commits knows that all others can follow.
class Priming {
 public:
  Priming(Comm& comm, Engine& engine, const PrimeRequest& request, PlannedCompressor& planned)
      : comm_(comm), engine_(engine), request_(request), planned_(planned) {}

  Status Run(const Status& obstacle) {
    if (!obstacle.ok()) return AgreeOnCompressor(comm_, kPriming, obstacle, {});
    AgreedValues values = ConfigurationOf(state());
    const AgreedValues progress = AgreedValuesOf(planned_);
    values.insert(values.end(), progress.begin(), progress.end());
    values.emplace_back("op", request_.op == ReduceOp::kAvg ? "avg" : "sum");
    ONEBIT_TRY(AgreeOnCompressor(comm_, kPriming, Reserve(), values));
    state().CountCall();
    InDefaultFpEnvironment([&] { PrepareInput(); });
    Status status = Exchange();
    if (status.ok()) {
      InDefaultFpEnvironment([&] { WriteResults(); });
      status = ExchangeFaults();
    }
    if (!status.ok()) {
      state().DiscardFailed();
      return comm_.Fail(std::move(status));
    }
    InDefaultFpEnvironment([&] { Settle(); });
    return OkStatus();
  }

 private:
  Compressor& state() { return planned_.compressor; }
  const Compressor::Config& config() const { return planned_.compressor.config(); }
  Collective collective() const { return config().collective; }
  size_t rank() const { return static_cast<size_t>(comm_.rank()); }
  bool reduces() const { return HasOp(collective()); }
  bool is_average() const { return request_.op == ReduceOp::kAvg; }
  float server_unit() const {
    return planned_.compressor.server_unit(request_.op, static_cast<size_t>(comm_.ranks()));
  }

  // Elements of the caller's buffers, and the element of the tensor at which they begin.
  size_t sent_elements() const {
    return collective() == Collective::kAllGather ? config().count : config().elements();
  }
  size_t received_elements() const { return reduces() ? config().count : config().elements(); }
  size_t sent_begin() const {
    return collective() == Collective::kAllGather ? rank() * config().count : 0;
  }
  size_t received_begin() const {
    return collective() == Collective::kReduceScatter ? rank() * config().count : 0;
  }
  // The mask of what a rank receives in an all-to-all is that of what is sent to it.
  size_t MaskElement(size_t received) const {
    if (collective() != Collective::kAllToAll) return received_begin() + received;
    return rank() * config().count + received % config().count;
  }

  bool TakesPart(size_t element) const {
    const size_t chunk = config().chunks == 1 ? 0 : element / config().count * config().count;
    const uint8_t* const mask = planned_.compressor.mask(chunk);
    return mask == nullptr || kernels::reference::BitAt(mask, element - chunk);
  }

  Status Reserve() {
    ONEBIT_ASSIGN_OR_RETURN(
        sent_, AlignedBuffer::Create(std::max<size_t>(sent_elements(), 1) * sizeof(float), kUse));
    ONEBIT_ASSIGN_OR_RETURN(
        received_,
        AlignedBuffer::Create(std::max<size_t>(received_elements(), 1) * sizeof(float), kUse));
    dense_ = {.collective = collective(),
              .sendbuff = sent(),
              .recvbuff = received(),
              .count = config().count,
              .type = DataType::kF32,
              .op = request_.op,
              .can_be_native = false};
    ONEBIT_TRY(engine_.ReserveDense(dense_));
    return engine_.ReserveSum(1, DataType::kF32);
  }

  float* sent() { return reinterpret_cast<float*>(sent_.data()); }
  float* received() { return reinterpret_cast<float*>(received_.data()); }
  // This rank adds it to its input. The residual of a host counts for each of its ranks.
  float WorkerResidual(size_t element) {
    if (!state().HasWorker(element)) return 0;
    return RanksOfResidual(comm_, state()) *
           LoadElement(state().worker_base(), config().residual_type, state().WorkerIndex(element));
  }

  // Writes the sum of input and residuals in fp32. All-to-all: rounded to the output's type,
  // so that the sender's residual keeps what is lost.
  void PrepareInput() {
    for (size_t i = 0; i < sent_elements(); ++i) {
      const size_t element = sent_begin() + i;
      float z = 0;
      if (TakesPart(element)) {
        z = LoadElement(request_.sendbuff, config().type, i);
        if (collective() != Collective::kAllGather) z += WorkerResidual(element);
        if (collective() == Collective::kAllToAll) z = Sent(element, z);
      }
      is_finite_ = is_finite_ && std::isfinite(z);
      sent()[i] = z;
    }
    AddServerResidual();
  }

  Status Exchange() {
    GroupMember member{.engine = &engine_, .requests = {&dense_, 1}};
    return RunCalls({&member, 1}, /*are_entered=*/true);
  }

  // A rank copies its own part of an all-to-all from its input.
  float Sent(size_t element, float z) {
    const bool is_own = element / config().count == rank();
    return is_own ? LoadElement(request_.sendbuff, config().type, element)
                  : RoundTo(config().type, z);
  }

  // The residual of a server becomes part of the sum of all ranks, which an average divides again.
  // Only the replica of rank 0 counts.
  void AddServerResidual() {
    if (state().server_in(0) == nullptr) return;
    if (planned_.plan->key.is_one_exchange && comm_.rank() != 0) return;
    const ElementRange served = planned_.plan->served;
    const float factor = is_average() ? static_cast<float>(comm_.ranks()) : server_unit();
    for (size_t i = 0; i < served.count; ++i) {
      sent()[served.begin + i] +=
          factor * LoadElement(state().server_in(0), config().residual_type, i);
    }
  }

  void WriteResults() {
    for (size_t i = 0; i < received_elements(); ++i) {
      const float value = TakesPart(MaskElement(i)) ? received()[i] : 0.0f;
      const float output = RoundTo(config().type, value);
      is_finite_ = is_finite_ && std::isfinite(output);
      received()[i] = value;
    }
    if (comm_.ranks() == 1) return;  // the result is the input, so nothing is owed
    WriteWorkerResidual();
    if (state().server_out(0) == nullptr) return;
    const ElementRange served = planned_.plan->served;
    for (size_t i = 0; i < served.count; ++i) {
      const float value = received()[served.begin + i];
      StoreElement((value - RoundTo(config().type, value)) / server_unit(), config().residual_type,
                   i, state().server_out(0));
    }
  }

  void WriteWorkerResidual() {
    std::byte* const residual = state().worker_base_out();
    for (size_t element = 0; element < config().elements(); ++element) {
      if (!state().HasWorker(element)) continue;
      float owed = 0;
      if (collective() == Collective::kAllGather) {
        owed = 0 - received()[element];  // what all ranks hold, negated
      } else if (collective() == Collective::kAllToAll && TakesPart(element) &&
                 element / config().count != rank()) {
        owed = LoadElement(request_.sendbuff, config().type, element) + WorkerResidual(element) -
               sent()[element];
      }
      StoreElement(owed, config().residual_type, state().WorkerIndex(element), residual);
    }
  }

  // The last exchange: whether all values of all ranks are finite.
  Status ExchangeFaults() {
    faults_ = is_finite_ ? 0.0f : 1.0f;
    return engine_.Sum(&faults_, 1, DataType::kF32);
  }

  void Settle() {
    auto* const output = static_cast<std::byte*>(request_.recvbuff);
    if (faults_ != 0) {
      Add(comm_.counters().nonfinite_calls, 1);
      state().DiscardNonfinite();
      FillNan(output, received_elements(), config().type);
      return;
    }
    for (size_t i = 0; i < received_elements(); ++i) {
      StoreElement(received()[i], config().type, i, output);
    }
    if (reduces()) state().set_op(request_.op);
    if (comm_.ranks() > 1) state().Commit();
    planned_.prepared.reset();
  }

  static constexpr const char* kUse = "the elements of a call in full precision";

  Comm& comm_;
  Engine& engine_;
  const PrimeRequest& request_;
  PlannedCompressor& planned_;
  AlignedBuffer sent_;
  AlignedBuffer received_;
  CallRequest dense_;
  bool is_finite_ = true;
  float faults_ = 0;  // of all ranks
};

}  // namespace

Status Prime(Comm& comm, Engine& engine, const PrimeRequest& request, PlannedCompressor* compressor,
             const Status& obstacle) {
  try {
    return Priming(comm, engine, request, *compressor).Run(obstacle);
  } catch (const std::bad_alloc&) {
    return comm.FailWithoutMemory();  // the others may be waiting already
  }
}

}  // namespace onebit
