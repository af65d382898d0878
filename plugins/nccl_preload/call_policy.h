// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CallPolicy decides about each call on a communicator: if and how it is compressed, and which
// tensor it is of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/nccl_preload/call_cycle.h"
#include "plugins/nccl_preload/call_facts.h"
#include "plugins/nccl_preload/call_rules.h"

namespace onebit::preload {

// Why a call goes the way it goes; the statistics count calls and bytes of each.
enum class Reason : uint8_t {
  kCompressed,
  kNoRule,     // no rule compresses it
  kOtherComm,  // the default rule does not hold here: see DefaultScope
  kNoCycle,    // the order of calls does not tell which tensor it is
  kStart,      // its tensor has its first calls in full precision
  kNoRoom,     // as many elements as may have residuals have them
  kOption,     // the program wants it to go to NCCL
  kForbidden,  // its arguments forbid compression: a capture, a group of other calls, ...
};
inline constexpr size_t kReasons = 8;
inline constexpr const char* kReasonNames[kReasons] = {
    "compressed", "no rule", "several communicators", "order unknown",
    "start",      "no room", "off by option",         "not possible"};

struct Decision {
  Reason reason = Reason::kNoRule;
  Compression compression;  // how, if reason is kCompressed
  // The number of the tensor, which has residuals of its own, in the communicator. No number is
  // used again for another tensor, nor for the same one after it has ended.
  uint64_t tensor = 0;
  // Tensors whose residuals end before the call, because they are not those of this tensor.
  std::vector<uint64_t> ended;
  // True if the call keeps no state, so that a group may have several of this `tensor`, which then
  // is a number for calls of this shape.
  bool may_repeat = false;
  // True if the ranks have to tell each other, on the stream before the call, if the default rule
  // holds for them.
  bool asks_scope = false;
};

// Calls of one shape without state that a group may have, messages in each direction.
inline constexpr uint32_t kSlots = 16;

// The default rule is for data-parallel training, where one communicator has all ranks and moves
// all floats. A process that moves floats on another one as well trains in some other way, and only
// its author can tell which tensors tolerate errors.
class DefaultScope {
 public:
  // `job_ranks` are those of the job, as its launcher says; 0: unknown.
  explicit DefaultScope(int job_ranks) : job_ranks_(job_ranks) {}

  // Observes a call of this process.
  void Observe(uint64_t comm, const CommFacts& facts, const CallFacts& call);
  // The communicator has ended: another one may take its place.
  void Forget(uint64_t comm) {
    if (has_comm_ && comm == comm_) has_comm_ = false;
  }
  // True if the default rule holds for the communicator, as far as this process knows. Another rank
  // may know better, so all of them agree before it is used (CallPolicy).
  bool Holds(uint64_t comm) const { return has_comm_ && comm == comm_ && !is_lost_; }
  // True once there was a second communicator, or one without all ranks.
  bool is_lost() const { return is_lost_; }

 private:
  const int job_ranks_;
  bool has_comm_ = false;
  uint64_t comm_ = 0;
  bool is_lost_ = false;
};

// The decisions for one communicator: a pure function of the sequence of its calls, of the rules,
// of the options of calls, and of what its ranks have agreed on. So all of them decide alike, if
// the options are alike. About a send or receive only the messages of its two ranks in that
// direction decide, because neither of them knows the other's further calls.
//
// The default rule needs an agreement. The ranks exchange their answers when the first tensor is
// halfway through its calls in full precision, and the result is looked at as many calls of it
// later. A cycle that is learned anew comes with a new agreement.
class CallPolicy {
 public:
  // `most_elements` is the limit of the elements that have residuals, or had them: their memory
  // cannot be freed in a call, which waits for nothing.
  CallPolicy(const Rules& rules, std::string comm_name, int ranks, uint64_t most_elements)
      : rules_(rules),
        comm_name_(std::move(comm_name)),
        comm_{.name = comm_name_, .ranks = ranks},
        most_elements_(most_elements) {}
  CallPolicy(const CallPolicy&) = delete;
  CallPolicy& operator=(const CallPolicy&) = delete;

  // Returns the result of the last exchange that a Decision has asked for: true if the default rule
  // holds for all ranks. Nothing if it cannot be known yet, which is so on all ranks alike.
  using ScopeResult = std::function<std::optional<bool>()>;

  // `tensor_id` is the caller's own number for the tensor, if it has given one. Where the caller
  // has `asked` for a compression, that replaces the rules', and needs no agreement. A tensor ends
  // when facts or compression of its call change.
  Decision Decide(const CallFacts& call, std::optional<uint64_t> tensor_id,
                  const ScopeResult& scope_result,
                  const std::optional<Compression>& asked = std::nullopt);

  // Decides about a send to `peer` or a receive from it. `tensor` is the number of its shape among
  // the messages of that direction, the same on both ranks.
  Decision DecideMessage(const CallFacts& call, int peer);
  // Shapes that the messages of a direction may have: those that come later stay exact.
  static uint64_t MostMessageShapes(int ranks);

  // The exchange that was asked for could not be made, on all ranks alike: a later call asks again.
  void AskAgain() {
    has_asked_scope_ = false;
    asker_.reset();
  }

  const CommFacts& comm() const { return comm_; }
  // Elements of tensors that have residuals, or had them.
  uint64_t elements() const { return elements_; }

 private:
  enum class Identity : uint8_t {
    kCycle,  // the number in the cycle
    kShape,  // the number of the call's facts and compression, for calls that keep no state
    kNamed,  // the number that the caller has given
  };
  struct Key {
    Identity identity;
    uint64_t number;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Tensor {
    uint64_t number;
    CallFacts call;
    Compression compression;
    uint64_t calls = 0;
    bool is_compressed = false;
    bool has_residual = false;
  };
  // Tensors that have ended keep their memory, so a program that changes them for ever must stop.
  // The same holds for shapes.
  static constexpr size_t kMostEnded = 4096;

  // Without a key the decision says why there is none.
  std::optional<Key> Identify(const CallFacts& call, std::optional<uint64_t> tensor_id,
                              const Compression& compression, Decision* decision);
  Tensor& FindOrBegin(const Key& key, const CallFacts& call, const Compression& compression,
                      Decision* decision);
  void End(std::map<Key, Tensor>::iterator tensor, Decision* decision);
  void AskScope(const Key& key, uint64_t calls_before, uint32_t start, Decision* decision);
  std::optional<bool> IsInScope(const Key& key, uint64_t calls_before,
                                const ScopeResult& scope_result);

  const Rules& rules_;
  const std::string comm_name_;
  const CommFacts comm_;
  const uint64_t most_elements_;
  CallCycle cycle_;
  uint64_t generation_ = 0;  // of cycle_, when its tensors were last looked at
  uint64_t elements_ = 0;
  uint64_t next_number_ = 0;
  std::map<Key, Tensor> tensors_;
  std::map<std::pair<CallFacts, Compression>, uint64_t> shapes_;  // numbered as they have come
  std::map<std::pair<int, Operation>, std::map<CallFacts, uint64_t>> message_shapes_;  // by peer
  size_t ended_ = 0;                 // tensors that were compressed
  bool has_asked_scope_ = false;     // since the cycle was last broken
  std::optional<Key> asker_;         // the tensor that has asked, until the result is looked at:
  uint64_t asker_due_ = 0;           // after so many calls of it
  std::optional<bool> is_in_scope_;  // the last result
};

}  // namespace onebit::preload
