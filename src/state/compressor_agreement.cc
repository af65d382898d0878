// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "state/compressor_agreement.h"

#include <chrono>
#include <string>
#include <vector>

#include "comm/byte_stream.h"

namespace onebit {

AgreedValues ConfigurationOf(const Compressor& compressor) {
  const Compressor::Config& config = compressor.config();
  const auto number = [](uint64_t value) { return Format("{}", value); };
  return {
      {"the tensorId of the compressor", number(config.tensor_id)},
      {"the count of the compressor", number(config.count)},
      {"the datatype of the compressor", NameOf(config.type)},
      {"the codec of the compressor", config.codec.Text()},
      {"the efDecay of the compressor", Format("{}", config.ef_decay)},
      {"the seed of the compressor", number(config.seed)},
      {"the residualType of the compressor", NameOf(config.residual_type)},
      {"transactional of the compressor", number(config.is_transactional)},
      {"the chunkAlignment of the compressor", number(config.chunk_alignment)},
      {"the serverResidual of the compressor", number(config.has_server_residual)},
      {"weights of the compressor (onebitCompressorSetWeight)", number(config.is_weighted)},
      {"the mask of the compressor", number(compressor.mask_digest())},
      {"config.levels of the compressor", number(static_cast<uint64_t>(config.levels))},
      {"the cuts of the compressor", number(config.cuts == nullptr ? 0 : config.cuts->digest())},
  };
}

AgreedValues AgreedValuesOf(const PlannedCompressor& compressor) {
  const auto number = [](uint64_t value) { return Format("{}", value); };
  const Compressor& state = compressor.compressor;
  const Compressor::Config& config = state.config();
  const bool is_replicated =
      config.collective == Collective::kAllGather && state.worker_base() != nullptr;
  kernels::Checksum held;
  if (is_replicated) {
    held = kernels::cpu::ChecksumOf(state.worker_base(), config.elements() * sizeof(float));
  }
  return {
      {"the tensorId of the compressor", number(config.tensor_id)},
      {"the count of the compressor", number(config.count)},
      {"the collective of the compressor", NameOf(config.collective)},
      {"a checksum of what ranks hold of each other",
       Format("{:08x}:{:08x}", held.sum, held.weighted)},
      {"the codec of the compressor", config.codec.Text()},
      {"the serverResidual of the compressor", number(config.has_server_residual ? 1 : 0)},
      {"exchanges of the compressor", compressor.plan->key.is_one_exchange ? "1" : "2"},
      {"levels of the compressor", compressor.plan->key.has_two_levels ? "2" : "1"},
      {"the epoch of the compressor", number(state.epoch())},
      {"calls since the residuals were zero", number(state.commits_since_zero())},
      {"the op of the compressor",
       state.op() ? (*state.op() == ReduceOp::kSum ? "sum" : "avg") : "none"},
  };
}

Status AgreeOnCompressor(Comm& comm, std::string_view what, const Status& obstacle,
                         const AgreedValues& values) {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::milliseconds(comm.options().regroup_timeout_ms);
  ByteWriter account;
  account.Text(obstacle.text());
  Append(values, &account);
  ONEBIT_ASSIGN_OR_RETURN(const auto accounts, comm.Gather(account.Take(), deadline, what));
  if (!obstacle.ok()) return obstacle;
  std::vector<AgreedValues> all;
  for (size_t rank = 0; rank < accounts.size(); ++rank) {
    ByteReader reader(accounts[rank]);
    const std::string other = reader.Text();
    all.push_back(ReadAgreed(&reader));
    if (!reader.is_complete()) {
      return Error(Code::kCorrupt, "rank {} sent a malformed description of its compressor", rank);
    }
    if (other.empty()) continue;
    return Error(Code::kRemoteError, "rank {}: rank {} cannot take part in {}: {}", comm.rank(),
                 rank, what, other);
  }
  return CompareAgreed(all);
}

}  // namespace onebit
