// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The environment variables that tell a process which rank it is, and where the ranks meet.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace onebit::perf {

inline constexpr char kRendezvousVariable[] = "ONEBIT_RENDEZVOUS";
inline constexpr char kJobVariable[] = "ONEBIT_JOB";
inline constexpr char kHostVariable[] = "ONEBIT_HOST";
inline constexpr char kSecretVariable[] = "ONEBIT_SECRET";
inline constexpr char kSecretFileVariable[] = "ONEBIT_SECRET_FILE";
// The ranks meet there if they call init_process_group of PyTorch.
inline constexpr char kMasterAddressVariable[] = "MASTER_ADDR";
inline constexpr char kMasterPortVariable[] = "MASTER_PORT";

struct RankPlace {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;
  int local_ranks = 1;
  // Empty texts and port 0 leave what there is.
  std::string rendezvous;
  std::string job;  // the word of the job
  std::string secret_file;
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  std::string
      preload;  // a library that the loader opens before those that LD_PRELOAD names already
};

// Random bytes as hexadecimal digits.
std::string RandomDigits(int bytes);
// A word for a job, which no other job has.
std::string NewJobWord();

// Returns the environment of a rank, derived from that of this process.
std::vector<std::string> RankEnvironment(const RankPlace& place);

// Returns the rank that a launcher gave this process, without asking the library; no value if no
// launcher started it. Slurm's variable counts in a step only: a batch script is not a rank of its
// job.
std::optional<int> LaunchedRank();

// True if this process has a variable of the user's for it. One of the job that this process is a
// rank of does not count, because other ranks need a place of their own.
bool IsSetByUser(const char* variable);

}  // namespace onebit::perf
