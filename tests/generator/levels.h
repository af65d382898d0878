// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Which ranks of a case share a host, and which calls pass inside hosts and then between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perf/common/host_layout.h"
#include "tests/generator/case.h"

namespace onebit::testing::generator {

// The host of each rank, numbered in the order of their lowest ranks.
std::vector<uint32_t> HostsOf(const Case& c);

// True if some, but not all ranks share a host.
bool HasLevels(const Case& c);
// True if the collective of this tensor can have two levels.
bool CanHaveLevels(const TensorCase& t);
// True of compressed allreduces whose ranks send each other everything.
bool TakesOneExchange(const Case& c, const TensorCase& t);
// The levels of the tensor's calls: 1 or 2.
int64_t LevelsOf(const Case& c, const TensorCase& t);
// The same for the dense call that onebitCompressorPrime makes.
int64_t LevelsOfPriming(const Case& c, const TensorCase& t);

// The hosts of a reduction in two levels; empty where results do not depend on hosts.
model::HostLayout HostsOfReduction(const Case& c, const TensorCase& t);
// By element of the tensor of a reduction in two levels, the rank that compresses what a host has.
std::vector<size_t> WorkersOf(const TensorCase& t, const model::HostLayout& hosts, size_t host);
// By element of an allreduce, the rank whose server residual counts.
std::vector<size_t> ServersOf(const Case& c, const TensorCase& t);

}  // namespace onebit::testing::generator
