// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/expected.h"

#include <set>
#include <utility>

#include "tests/generator/call_models.h"
#include "tests/generator/primed_call.h"

namespace onebit::testing::generator {
namespace {

void FillNans(Bytes& output, int64_t type) {
  const size_t size = BytesOfType(static_cast<int>(type));
  for (size_t i = 0; i < output.size() / size; ++i) {
    PutNan(output.data(), static_cast<int>(type), i);
  }
}

// Elements that a rank sends or receives in an all-to-all-v.
size_t PairSum(const Case& c, const TensorCase& t, int tensor, int round, int rank, bool sends) {
  size_t sum = 0;
  for (int peer = 0; peer < static_cast<int>(c.ranks); ++peer) {
    sum += PairCount(TensorSeed(c, tensor), round, sends ? rank : peer, sends ? peer : rank,
                     static_cast<int>(c.ranks), static_cast<size_t>(t.count));
  }
  return sum;
}

}  // namespace

uint64_t TensorSeed(const Case& c, int tensor) {
  return Mixed(static_cast<uint64_t>(c.seed), static_cast<uint64_t>(tensor));
}

size_t SendBytes(const Case& c, const TensorCase& t, int tensor, int round, int rank) {
  const size_t elements =
      t.is_ragged() ? PairSum(c, t, tensor, round, rank, true)
                    : static_cast<size_t>(t.count) * t.SendParts(static_cast<size_t>(c.ranks));
  return elements * BytesOfType(static_cast<int>(t.type));
}
size_t ReceiveBytes(const Case& c, const TensorCase& t, int tensor, int round, int rank) {
  const size_t elements =
      t.is_ragged() ? PairSum(c, t, tensor, round, rank, false)
                    : static_cast<size_t>(t.count) * t.ReceiveParts(static_cast<size_t>(c.ranks));
  return elements * BytesOfType(static_cast<int>(t.type));
}

Bytes InputOf(const Case& c, int tensor, int round, int rank) {
  const TensorCase& t = c.tensors[static_cast<size_t>(tensor)];
  Bytes input(SendBytes(c, t, tensor, round, rank));
  const size_t elements = input.size() / BytesOfType(static_cast<int>(t.type));
  FillElements(input.data(), static_cast<int>(t.type), elements,
               SeedOf(static_cast<uint64_t>(c.seed), tensor, round, rank));
  if (t.weights == 0 || WeightOf(static_cast<uint64_t>(c.seed), round, rank) != 0) return input;
  // The library does not read what an absent rank would send.
  for (size_t i = 0; i < elements; ++i) PutNan(input.data(), static_cast<int>(t.type), i);
  return input;
}

Bytes MaskOf(const Case& c, int tensor, int version) {
  const TensorCase& t = c.tensors[static_cast<size_t>(tensor)];
  if (t.mask == 0) return {};
  const size_t elements = static_cast<size_t>(t.count) * t.MaskParts(static_cast<size_t>(c.ranks));
  Bytes mask((elements + 7) / 8 + 1);  // never empty
  FillMask(reinterpret_cast<uint8_t*>(mask.data()), elements, static_cast<int>(t.mask),
           SeedOf(static_cast<uint64_t>(c.seed), tensor, -1 - version, 0));
  return mask;
}

std::vector<size_t> CutsOf(const Case& c, int tensor) {
  const TensorCase& t = c.tensors[static_cast<size_t>(tensor)];
  std::set<size_t> cuts;
  for (int64_t i = 0; i < t.cuts; ++i) {
    const uint64_t draw = Mixed(TensorSeed(c, tensor), static_cast<uint64_t>(i));
    cuts.insert(1 + static_cast<size_t>(draw % static_cast<uint64_t>(t.count - 1)));
  }
  return {cuts.begin(), cuts.end()};
}

bool Happens(Event event, const TensorCase& t, size_t ranks) {
  switch (event) {
    case Event::kNone:
      return false;
    case Event::kReset:
    case Event::kRankState:
      return t.is_compressed();
    case Event::kMask:
      return t.mask != 0;
    case Event::kGlobalState:
      // A ring's ranks have compressors of different tensors.
      return t.is_compressed() && !t.is_ring() &&
             !(t.has_feedback() && t.collective == onebitCollectiveAllToAll);
    case Event::kRevert:
      return t.has_feedback() && t.is_transactional();
    case Event::kPrime:
      return t.has_feedback() && !t.is_ring() && t.type == onebitFloat32 && t.weights == 0;
    case Event::kNan:
      // Where a NaN spoils the whole call. Other codecs' blocks are tests of their own.
      return t.is_compressed() && t.weights == 0 && t.count != 0 && !t.is_ragged() &&
             !t.is_ring() && ranks > 1 && (t.has_feedback() || t.codec == onebitCodecSign);
  }
  return false;
}

NanPlace NanPlaceOf(const Case& c, int tensor, int round, int mask_version) {
  const TensorCase& t = c.tensors[static_cast<size_t>(tensor)];
  NanPlace place = {.rank = round % static_cast<int>(c.ranks)};
  const Bytes mask = MaskOf(c, tensor, mask_version);
  const size_t elements = static_cast<size_t>(t.count) * t.SendParts(static_cast<size_t>(c.ranks));
  const size_t first = t.collective == onebitCollectiveAllGather
                           ? static_cast<size_t>(place.rank) * static_cast<size_t>(t.count)
                           : 0;
  place.element = elements / 2;
  while (place.element < elements && !BitAt(mask, first + place.element)) ++place.element;
  return place;
}

bool HasModel(const TensorCase& t) { return t.weights == 0; }

Outputs Expected(const Case& c, int tensor) {
  const TensorCase& t = c.tensors[static_cast<size_t>(tensor)];
  const auto ranks = static_cast<size_t>(c.ranks);
  std::unique_ptr<Model> model = MakeModel(c, tensor);
  std::unique_ptr<Model> previous;  // what onebitCompressorRevert brings back
  int mask_version = 0;
  Outputs all;
  for (int round = 0; round < static_cast<int>(c.events.size()); ++round) {
    const Event event = c.events[static_cast<size_t>(round)];
    const bool happens = Happens(event, t, ranks);
    if (happens && event == Event::kMask) model->SetMask(MaskOf(c, tensor, ++mask_version));
    if (happens && event == Event::kReset) model->Reset();
    if (happens && event == Event::kGlobalState) model->LoadGlobalState();
    if (happens && event == Event::kRevert && previous != nullptr) {
      model = std::move(previous);
      model->SetMask(MaskOf(c, tensor, mask_version));
    }
    const NanPlace bad = NanPlaceOf(c, tensor, round, mask_version);
    std::vector<Bytes> inputs, outputs;
    Buffers buffers;
    for (size_t rank = 0; rank < ranks; ++rank) {
      inputs.push_back(InputOf(c, tensor, round, static_cast<int>(rank)));
      outputs.emplace_back(ReceiveBytes(c, t, tensor, round, static_cast<int>(rank)));
    }
    const bool has_nan = happens && event == Event::kNan &&
                         bad.element * BytesOfType(static_cast<int>(t.type)) < inputs[0].size();
    for (size_t rank = 0; rank < ranks; ++rank) {
      buffers.inputs.push_back(inputs[rank].data());
      buffers.outputs.push_back(outputs[rank].data());
    }
    if (has_nan) {
      if (!t.is_transactional()) model->Reset();
      previous = nullptr;
      for (Bytes& output : outputs) FillNans(output, t.type);
    } else {
      previous = model->Clone();
      if (happens && event == Event::kPrime) {
        Prime(*model, c, t, MaskOf(c, tensor, mask_version), buffers);
      } else {
        model->Run(round, buffers);
      }
    }
    all.push_back(std::move(outputs));
  }
  return all;
}

}  // namespace onebit::testing::generator
