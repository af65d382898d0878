// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/plan/plan_hazards.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "base/format.h"

namespace onebit {
namespace {

enum class Memory : uint8_t { kInput, kOutput, kPackets, kWorkerResidual, kServerResidual };
constexpr std::array kMemoryNames = {"input", "output", "packets", "worker residual",
                                     "server residual"};

struct Access {
  Memory memory;
  uint32_t call;  // owner of the memory; packets belong to the plan
  size_t begin;   // in bytes; for residuals and the caller's buffers: within the tensor
  size_t end;
  bool is_write;
  uint32_t step;
};

// Collects the accesses of one call's steps.
class CallAccesses {
 public:
  CallAccesses(const Plan& plan, Buffers buffers, uint32_t call, size_t packets,
               std::vector<Access>* accesses)
      : plan_(plan),
        is_in_place_(buffers == Buffers::kInPlace),
        call_(call),
        packets_(packets),
        element_bytes_(kernels::BytesOf(plan.key.type)),
        has_residuals_(plan.key.codec.has_feedback()),
        accesses_(*accesses) {}

  void Add(const Step& step, uint32_t index) {
    index_ = index;
    switch (step.kind) {
      case StepKind::kCompress:
        return AddCompress(step);
      case StepKind::kStage:
        Elements(Memory::kInput, step.elements, false);
        return Touch(step.region, true, 0);
      case StepKind::kHostSum:
      case StepKind::kReduce:
        return AddReduce(step);
      case StepKind::kDecode:
        Packets(step.region.offset, step.region.bytes, false);
        Elements(Memory::kOutput, step.elements, true);
        if (IsDelta()) Elements(Memory::kWorkerResidual, step.elements, true);
        return;
      case StepKind::kVerdict:
        Touch(step.region, true, 0);
        if (plan_.key.has_drift_check) Elements(Memory::kWorkerResidual, step.elements, false);
        return;
      case StepKind::kSend:
        return Touch(step.region, false, plan_.key.header_room);
      case StepKind::kReceive:
        return Touch(step.region, true, plan_.key.header_room);
      case StepKind::kCopy:
        if (is_in_place_) return;  // onto itself
        Touch(step.region, false, 0);
        return Elements(Memory::kOutput, step.elements, true);
      case StepKind::kNative:
        Elements(Memory::kInput, step.elements, false);
        return Elements(Memory::kOutput, step.elements, true);
      case StepKind::kPack:
      case StepKind::kUnpack:
        // The thread that sends the message only adds to the word in its table.
        Touch(step.region, step.kind == StepKind::kUnpack, 0);
        accesses_.push_back({Memory::kPackets, kAllCalls, step.sources,
                             step.sources + step.region.bytes, step.kind == StepKind::kPack,
                             index_});
        return;
    }
  }

 private:
  bool IsDelta() const { return plan_.key.collective == Collective::kAllGather && has_residuals_; }

  void Packets(size_t offset, size_t bytes, bool is_write) {
    const size_t begin = packets_ + offset;
    accesses_.push_back({Memory::kPackets, kAllCalls, begin, begin + bytes, is_write, index_});
  }

  // Accesses elements of the tensor.
  void Elements(Memory memory, ElementRange elements, bool is_write) {
    if (is_in_place_ && memory == Memory::kInput) memory = Memory::kOutput;
    accesses_.push_back({memory, call_, elements.begin * element_bytes_,
                         elements.end() * element_bytes_, is_write, index_});
  }

  void Touch(const Region& region, bool is_write, size_t header_room) {
    if (region.space == Space::kNone) return;
    if (region.space == Space::kPackets) {
      return Packets(region.offset - header_room, region.bytes + header_room, is_write);
    }
    const bool is_input = region.space == Space::kInput;
    const size_t begin = is_input ? plan_.input_begin : plan_.output_begin;
    Elements(is_input ? Memory::kInput : Memory::kOutput,
             {begin + region.offset / element_bytes_, region.bytes / element_bytes_}, is_write);
  }

  void AddCompress(const Step& step) {
    if (step.mean == kNoOffset) {
      Elements(Memory::kInput, step.elements, false);
    } else {
      Packets(step.mean, step.elements.count * sizeof(float), false);
    }
    if (has_residuals_) Elements(Memory::kWorkerResidual, step.elements, !IsDelta());
    if (step.stride == 0) return Packets(step.region.offset, step.region.bytes, true);
    for (uint32_t chunk = 0; chunk < plan_.ranks; ++chunk) {
      Packets(step.sources + chunk * step.stride,
              ShapeOf(plan_.partition.Chunk(chunk).count, plan_.key.codec.block).bytes(), true);
    }
  }

  void AddReduce(const Step& step) {
    const uint32_t own_piece = plan_.OwnPieceOf(step);
    for (uint32_t piece = 0; piece < plan_.PiecesOf(step); ++piece) {
      if (piece == own_piece) continue;
      Packets(step.sources + piece * step.stride, step.stride - plan_.key.header_room, false);
    }
    if (own_piece == kNoPiece) {
      // A sum of this host, which another step has added.
    } else if (plan_.key.codec.is_dense() || step.kind == StepKind::kHostSum) {
      Elements(Memory::kInput, step.elements, false);
    } else if (plan_.key.has_two_levels) {
      Packets(step.own_source, step.shape.bytes(), false);
    } else {
      Packets(step.own_source, step.stride - plan_.key.header_room, false);
    }
    Touch(step.region, true, 0);
    if (has_residuals_ && step.packet != kNoPacket) {
      Elements(Memory::kServerResidual, step.elements, true);
    }
  }

  const Plan& plan_;
  const bool is_in_place_;
  const uint32_t call_;
  const size_t packets_;  // where the call's packets begin
  const size_t element_bytes_;
  const bool has_residuals_;
  std::vector<Access>& accesses_;
  uint32_t index_ = 0;
};

std::string Describe(const Plan& plan, const Access& access) {
  const Step& step = plan.steps[access.step];
  return Format(
      "step {} (kind {}, exchange {}, chunk {}, segment {}, peer {}, call {}) {} {} {} to {}",
      access.step, static_cast<int>(step.kind), step.exchange, step.chunk, step.segment, step.peer,
      step.call, access.is_write ? "writes" : "reads",
      kMemoryNames[static_cast<size_t>(access.memory)], access.begin, access.end);
}

std::string FirstHazard(const Plan& plan, std::vector<Access> accesses) {
  std::erase_if(accesses, [](const Access& access) { return access.begin == access.end; });
  const auto key = [](const Access& a) { return std::tuple(a.memory, a.call, a.begin, a.step); };
  std::sort(accesses.begin(), accesses.end(),
            [&](const Access& a, const Access& b) { return key(a) < key(b); });
  for (size_t i = 0; i < accesses.size(); ++i) {
    const Access& a = accesses[i];
    for (size_t j = i + 1; j < accesses.size(); ++j) {
      const Access& b = accesses[j];
      if (b.memory != a.memory || b.call != a.call || b.begin >= a.end) break;
      if (a.step == b.step || (!a.is_write && !b.is_write)) continue;
      if (Precedes(plan, a.step, b.step) || Precedes(plan, b.step, a.step)) continue;
      return Describe(plan, a) + ", unordered with " + Describe(plan, b);
    }
  }
  return {};
}

}  // namespace

bool Precedes(const Plan& plan, uint32_t before, uint32_t after) {
  std::vector<bool> is_seen(plan.steps.size());
  std::vector<uint32_t> open = {before};
  while (!open.empty()) {
    const Step& step = plan.steps[open.back()];
    open.pop_back();
    for (uint32_t i = 0; i < step.successor_count; ++i) {
      const uint32_t next = plan.successors[step.first_successor + i];
      if (next == after) return true;
      if (!is_seen[next]) open.push_back(next);
      is_seen[next] = true;
    }
  }
  return false;
}

std::string HazardOf(const Plan& plan, Buffers buffers) {
  std::vector<Access> accesses;
  CallAccesses call(plan, buffers, 0, 0, &accesses);
  for (uint32_t i = 0; i < plan.steps.size(); ++i) call.Add(plan.steps[i], i);
  return FirstHazard(plan, std::move(accesses));
}

std::string HazardOf(const GroupPlan& group, Buffers buffers) {
  std::vector<Access> accesses;
  for (uint32_t i = 0; i < group.plan.steps.size(); ++i) {
    const Step& step = group.plan.steps[i];
    if (step.call == kAllCalls) {
      CallAccesses(group.plan, buffers, kAllCalls, 0, &accesses).Add(step, i);
    } else {
      CallAccesses(*group.calls[step.call], buffers, step.call, group.packets[step.call], &accesses)
          .Add(step, i);
    }
  }
  return FirstHazard(group.plan, std::move(accesses));
}

Plan WithoutDependency(const Plan& plan, uint32_t edge) {
  Plan changed = plan;
  for (Step& step : changed.steps) {
    if (edge < step.first_successor || edge >= step.first_successor + step.successor_count)
      continue;
    uint32_t* const first = &changed.successors[step.first_successor];
    std::swap(changed.successors[edge], first[step.successor_count - 1]);
    --changed.steps[first[step.successor_count - 1]].dependency_count;
    --step.successor_count;
    break;
  }
  return changed;
}

}  // namespace onebit
