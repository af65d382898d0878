// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank of the conformance program on transport `mpi`: conformance_rank PLUGIN
// [SETTING=VALUE...]. Started by a launcher of the MPI it is compiled for. Ranks exchange texts
// over MPI as well, so these are an application's traffic during that of the transport.
#include <dlfcn.h>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/native_checks.h"
#include "tests/support/transport_host.h"
#include "tests/transports/conformance.h"

namespace onebit {
namespace {

using conformance::Expect;

// Waits without taking the processor from the other ranks.
void Await(MPI_Request* request) {
  for (int is_done = 0; is_done == 0;) {
    MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
    if (is_done == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

class MpiMeeting : public conformance::OutOfBand {
 public:
  MpiMeeting() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks_);
  }
  int rank() const override { return rank_; }
  int nranks() const override { return nranks_; }

  std::vector<std::string> Exchange(const std::string& mine) override {
    constexpr size_t kMost = 4096;
    Expect(mine.size() + sizeof(size_t) <= kMost, "a text is too long");
    std::vector<char> own(kMost);
    const size_t size = mine.size();
    std::memcpy(own.data(), &size, sizeof size);
    std::memcpy(own.data() + sizeof size, mine.data(), size);
    std::vector<char> all(kMost * static_cast<size_t>(nranks_));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgather(own.data(), kMost, MPI_CHAR, all.data(), kMost, MPI_CHAR, MPI_COMM_WORLD,
                   &request);
    Await(&request);
    std::vector<std::string> texts;
    for (int rank = 0; rank < nranks_; ++rank) {
      const char* const at = &all[kMost * static_cast<size_t>(rank)];
      size_t bytes = 0;
      std::memcpy(&bytes, at, sizeof bytes);
      texts.emplace_back(at + sizeof bytes, bytes);
    }
    return texts;
  }

 private:
  int rank_ = 0;
  int nranks_ = 1;
};

const onebitTransport* OpenTransport(const char* path) {
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  Expect(handle != nullptr, path, " cannot be opened");
  const auto get =
      reinterpret_cast<onebitTransportGetFunction>(dlsym(handle, ONEBIT_TRANSPORT_SYMBOL));
  Expect(get != nullptr, path, " is no transport");
  return get();
}

void RunChecks(const char* path, const testing::SettingTexts& settings) {
  const onebitTransport* const transport = OpenTransport(path);
  const testing::StartedTransport started(*transport, settings);
  Expect(started.start_result() == onebitSuccess, started.warnings());
  const conformance::Subject subject{.transport = transport,
                                     .properties = started.properties(),
                                     .channels = &started.channels(),
                                     .run_ranks = nullptr,
                                     .delivers_after_close = true,
                                     .open_close_rounds = 20,
                                     .seed = 20240611};
  MpiMeeting oob;
  const bool is_native = settings.contains("ONEBIT_MPI_NATIVE_DENSE");
  for (const conformance::Check& check :
       is_native ? conformance::NativeChecks() : conformance::AllChecks()) {
    if (oob.nranks() < check.min_ranks) continue;
    if (oob.rank() == 0) std::printf("%s\n", check.name);
    std::fflush(stdout);
    try {
      check.run(subject, oob);
    } catch (const conformance::Failure& failure) {
      throw conformance::Failure(std::string(check.name).append(": ").append(failure.what()));
    }
    oob.Barrier();
  }
}

}  // namespace
}  // namespace onebit

int main(int argc, char** argv) {
  onebit::testing::SettingTexts settings;
  for (int i = 2; i < argc; ++i) {
    const std::string text = argv[i];
    settings[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  try {
    onebit::RunChecks(argv[1], settings);
  } catch (const onebit::conformance::Failure& failure) {
    std::fprintf(stderr, "%s\n%s\n", failure.what(),
                 onebit::testing::StartedTransport::warnings().c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
