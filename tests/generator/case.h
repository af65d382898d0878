// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A case: some tensors, and some rounds of calls with them on one communicator. It is drawn from a
// seed, and is written as one line of words, which can be read back.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "onebit/onebit.h"
#include "tests/generator/case_elements.h"

namespace onebit::testing::generator {

inline constexpr int kBroadcast = onebitCollectiveBroadcast;  // in full precision
inline constexpr int kCollectives = 7;
inline constexpr int kDense = -1;   // a codec
inline constexpr int kCodecs = 10;  // with kDense
inline constexpr int kDefault = ONEBIT_UNDEF_INT;
// The library is told nothing of a member that is at kDefault.
inline std::optional<uint64_t> Chosen(int64_t value) {
  return value == kDefault ? std::nullopt : std::optional(static_cast<uint64_t>(value));
}

// A tensor and how it is sent. Members at kDefault are left to the library.
struct TensorCase {
  int64_t collective = onebitCollectiveAllReduce;
  int64_t codec = kDense;
  int64_t mode = onebitModePlain;
  int64_t type = onebitFloat32;
  int64_t op = onebitSum;
  int64_t count = 0;  // as the call counts; in an all-to-all-v the largest count of a pair
  int64_t block = kDefault;
  int64_t rule = kDefault;
  int64_t k = kDefault;
  int64_t values = kDefault;
  int64_t hops = kDefault;
  int64_t decay = kDefault;  // in percent
  int64_t residual = kDefault;
  int64_t transactional = kDefault;
  int64_t alignment = kDefault;
  int64_t server = kDefault;
  int64_t levels = 0;   // 0: the library decides
  int64_t cuts = 0;     // how many, CutsOf
  int64_t mask = 0;     // FillMask's kind; 0: none
  int64_t weights = 0;  // 1: every rank sets one before every call
  int64_t in_place = 0;
  int64_t offset = 0;  // elements from a cache line to the buffers
  int64_t root =
      0;  // of a broadcast; in a ring of sends and receives the distance to the peer, less 1

  bool is_compressed() const { return codec != kDense; }
  bool is_sparse() const { return codec == onebitCodecTopk || codec == onebitCodecRandk; }
  bool has_feedback() const { return is_compressed() && mode == onebitModeEf; }
  bool is_transactional() const { return transactional != 0; }
  bool reduces() const {
    return collective == onebitCollectiveAllReduce || collective == onebitCollectiveReduceScatter;
  }
  bool is_ragged() const { return collective == onebitCollectiveAllToAllv; }
  bool is_ring() const { return collective == onebitCollectiveSendRecv; }
  // Parts of `count` elements that each buffer has, and the mask.
  size_t SendParts(size_t ranks) const;
  size_t ReceiveParts(size_t ranks) const;
  size_t MaskParts(size_t ranks) const;
};

// What happens before a round, to each tensor that it can happen to.
enum class Event : int {
  kNone,
  kReset,
  kMask,         // another mask of the same kind
  kRankState,    // saved, and loaded into a new compressor
  kGlobalState,  // the same with what all ranks together owe
  kRevert,
  kNan,    // one element of one rank's input is not finite in this round
  kPrime,  // a call in full precision takes the place of this round's
};
inline constexpr int kEvents = 8;

// Which ranks share a host.
enum Hosts : int64_t {
  kOneHost,
  kPairs,       // 2+2+..., the last one perhaps alone; each host's ranks follow one another
  kTakeTurns,   // abab, abababa
  kHalves,      // 2+1, 4+2+1: each host has half of the ranks that are left, rounded up
  kFirstAlone,  // 1+2, 1+6
  kMirrored,    // abba, abcdcba
  kApart,       // each rank has a host
};
inline constexpr int64_t kNoTwoLevels = int64_t{1} << 40;  // more bytes than any call has

struct Case {
  int64_t seed = 1;  // of elements, masks, weights
  int64_t ranks = 2;
  int64_t grouped = 0;                 // the calls of a round are a group
  int64_t streamed = 0;                // calls are queued on a stream of the host
  int64_t one_thread = 0;              // one thread makes the calls of all ranks, in a group
  int64_t hosts = kOneHost;            // of type Hosts
  int64_t two_level_bytes = kDefault;  // ONEBIT_TWO_LEVEL_BYTES
  int64_t segment = kDefault;          // ONEBIT_SEGMENT_ELEMENTS
  int64_t one_exchange = kDefault;     // ONEBIT_ONE_EXCHANGE_ELEMENTS
  int64_t group_elements = kDefault;
  int64_t threads = 0;                         // ONEBIT_COMPUTE_THREADS
  std::vector<Event> events = {Event::kNone};  // by round
  std::vector<TensorCase> tensors;

  // The number of calls of the library that carry elements, on all ranks.
  size_t calls() const { return events.size() * tensors.size() * static_cast<size_t>(ranks); }
};

// One cell of the table of coverage. A further dimension is one more member here, one row of
// Cells(), and a column of the table.
struct Cell {
  int64_t collective;
  int64_t codec;
  int64_t mode;
  int64_t levels;  // that calls take
  int64_t count_class;
  friend bool operator==(const Cell&, const Cell&) = default;
};
inline constexpr int kCountClasses = 5;
int64_t CountClassOf(int64_t count);
const std::vector<Cell>& Cells();  // all that are legal
size_t CellOf(const Case& c, const TensorCase& tensor);

// Case number `number` of a seed. Its first tensors are of successive cells with equal levels, and
// CasesForAllCells() successive cases cover all cells.
uint64_t CasesForAllCells();
Case DrawCase(uint64_t seed, uint64_t number);

// Makes a case legal: sets members that are not supported together to their defaults.
void MakeLegal(Case& c);

std::string LineOf(const Case& c);
// Throws std::invalid_argument.
Case ParseLine(std::string_view line);

std::string NameOfCollective(int64_t collective);
std::string NameOfCodec(int64_t codec);
std::string NameOfMode(int64_t mode);
std::string NameOfCountClass(int64_t count_class);

// Cases that are a little simpler each.
std::vector<Case> Simpler(const Case& c);

}  // namespace onebit::testing::generator
