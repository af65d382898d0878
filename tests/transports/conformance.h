// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Conformance program: the checks that messages over every transport must pass, and with them the
// transport's frames.
//
// A check is run by all ranks at once, each with its own
// endpoint. The test of the transport chooses between threads and processes for the ranks by
// `Subject::run_ranks` (rank_threads.h has the one for threads).
#pragma once

#include <onebit/transport.h>

#include <cstdint>
#include <functional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "channel/message_channel.h"

namespace onebit::conformance {

// Thrown by a check that found something wrong.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

template <typename... Parts>
void Expect(bool is_true, const Parts&... parts) {
  if (!is_true) throw Failure(Text(parts...));
}

// Lets the ranks of a check exchange texts outside of the transport.
class OutOfBand {
 public:
  virtual ~OutOfBand() = default;
  virtual int rank() const = 0;
  virtual int nranks() const = 0;
  // Collective: the texts of all ranks, by rank. Throws Failure when another rank has failed.
  virtual std::vector<std::string> Exchange(const std::string& mine) = 0;
  void Barrier() { Exchange(""); }
};

// The transport under test.
struct Subject {
  const onebitTransport* transport;
  onebitTransportProperties properties;
  channel::ChannelContext* channels;
  // Calls the function once per rank, at the same time, each with an OutOfBand of these ranks.
  // Returns "" or what went wrong on which rank.
  std::function<std::string(int nranks, const std::function<void(OutOfBand&)>&)> run_ranks;
  // Heap allocations of the calling thread so far; null: allocations are not checked.
  uint64_t (*allocations)() = nullptr;
  // Messages that were sent before the sender closed its endpoint can be received after that.
  bool delivers_after_close = false;
  // Rounds of opening and closing, and the bytes of memory that they may leak (0: not checked).
  int open_close_rounds = 10;
  uint64_t most_leaked_bytes = 0;
  uint64_t seed = 1;
};

struct Check {
  const char* name;
  int min_ranks;
  void (*run)(const Subject& subject, OutOfBand& oob);
};

std::span<const Check> AllChecks();

// Runs one check on `nranks` ranks. Returns "" or what went wrong.
std::string RunCheck(const Subject& subject, const Check& check, int nranks);

}  // namespace onebit::conformance
