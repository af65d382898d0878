// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Federated learning in which two of four clients take part in a round: SCALLION and SCAFCOM
// (Huang, Li and Li, "Stochastic Controlled Averaging for Federated Learning with Communication
// Compression", ICLR 2024).
//
//   federated scallion   increments of control variates by Rand-k, which is unbiased
//   federated scafcom    the same with local momentum, and Top-k, which is biased, without error
//                        feedback
//
// A rank is a client. Each has a compressor on all ranks, in which only that client has a weight:
// so everybody, the client included, gets exactly what the client sent, and applies the same
// update. Prints the round and by how much the loss exceeds its minimum.
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "perf/examples/example_ranks.h"

namespace {

using namespace onebit::examples;

using Vector = std::vector<double>;

constexpr int kClients = 4;
constexpr size_t kSize = 16;
constexpr int kRounds = 60;
constexpr int kLocalSteps = 3;
constexpr double kLocalRate = 0.05;
constexpr double kScaling = 0.3;   // SCALLION: of an increment before it is compressed
constexpr double kMomentum = 0.5;  // SCAFCOM: what a new gradient counts for
constexpr int64_t kFirstTensor = 30;

// Client i minimises sum_k a_k (x_k - c_ik)^2 / 2.
double Curvature(size_t k) { return 0.5 + 0.25 * static_cast<double>(k % 5); }
double Target(size_t client, size_t k) {
  return (static_cast<double>((7 * k + 11 * client + 3) % 13) - 6) / 4;
}
double Start(size_t k) { return (static_cast<double>((5 * k + 1) % 11) - 5) / 2; }

double MeanLoss(const Vector& x) {
  double loss = 0;
  for (size_t client = 0; client < kClients; ++client) {
    for (size_t k = 0; k < kSize; ++k) {
      const double distance = x[k] - Target(client, k);
      loss += Curvature(k) * distance * distance / 2 / kClients;
    }
  }
  return loss;
}

double Excess(const Vector& x) {
  Vector best(kSize);
  for (size_t client = 0; client < kClients; ++client) {
    for (size_t k = 0; k < kSize; ++k) best[k] += Target(client, k) / kClients;
  }
  return MeanLoss(x) - MeanLoss(best);
}

class Client {
 public:
  Client(onebitComm_t comm, int rank, bool has_momentum)
      : comm_(comm), rank_(static_cast<size_t>(rank)), has_momentum_(has_momentum) {
    for (size_t k = 0; k < kSize; ++k) x_[k] = Start(k);
    for (size_t client = 0; client < kClients; ++client) {
      compressors_.push_back(SparseCompressor(
          comm, has_momentum ? onebitCodecTopk : onebitCodecRandk, onebitModePlain, kSize,
          has_momentum ? kSize / 4 : kSize / 2, kFirstTensor + static_cast<int64_t>(client), 1));
      Check(onebitCompressorSetWeight(compressors_.back().get(), client == rank_ ? 1.0f : 0.0f));
    }
  }

  void Round(int round) {
    const auto t = static_cast<size_t>(round);
    const size_t first = t % kClients, second = (t + 1 + t / kClients) % kClients;
    const bool takes_part = rank_ == first || rank_ == second;
    // A client that sits out sends zeros, because draws follow from the number of calls.
    std::vector<float> sent(kSize);
    if (takes_part) sent = has_momentum_ ? MomentumIncrement() : Increment();
    std::vector<std::vector<float>> received(kClients, std::vector<float>(kSize));
    Check(onebitGroupStart());
    for (size_t client = 0; client < kClients; ++client) {
      Check(onebitAllReduce(sent.data(), received[client].data(), kSize, onebitFloat32, onebitAvg,
                            compressors_[client].get(), comm_, nullptr));
    }
    Check(onebitGroupEnd());
    Vector sum(kSize);
    for (const auto& increment : received) {
      for (size_t k = 0; k < kSize; ++k) sum[k] += static_cast<double>(increment[k]);
    }
    const double clients = first == second ? 1 : 2;
    for (size_t k = 0; k < kSize; ++k) {
      x_[k] -= kLocalRate * kLocalSteps * (mean_control_[k] + sum[k] / clients);
      mean_control_[k] += sum[k] / kClients;
      control_[k] += static_cast<double>(received[rank_][k]);
    }
  }

  double excess() const { return Excess(x_); }
  // The mean of all control() is the mean_control() that every rank holds.
  const Vector& control() const { return control_; }
  const Vector& mean_control() const { return mean_control_; }

 private:
  double Gradient(const Vector& y, size_t k) const {
    return Curvature(k) * (y[k] - Target(rank_, k));
  }

  std::vector<float> Increment() const {
    Vector y = x_;
    for (int step = 0; step < kLocalSteps; ++step) {
      for (size_t k = 0; k < kSize; ++k) {
        y[k] -= kLocalRate * (Gradient(y, k) - control_[k] + mean_control_[k]);
      }
    }
    std::vector<float> increment(kSize);
    for (size_t k = 0; k < kSize; ++k) {
      const double mean_direction = (x_[k] - y[k]) / (kLocalRate * kLocalSteps);
      increment[k] = static_cast<float>(kScaling * (mean_direction - mean_control_[k]));
    }
    return increment;
  }

  std::vector<float> MomentumIncrement() {
    Vector y = x_, mean_gradient(kSize);
    for (int step = 0; step < kLocalSteps; ++step) {
      for (size_t k = 0; k < kSize; ++k) {
        const double gradient = Gradient(y, k);
        mean_gradient[k] += gradient / kLocalSteps;
        const double direction = (1 - kMomentum) * momentum_[k] + kMomentum * gradient;
        y[k] -= kLocalRate * (direction - control_[k] + mean_control_[k]);
      }
    }
    std::vector<float> increment(kSize);
    for (size_t k = 0; k < kSize; ++k) {
      momentum_[k] = (1 - kMomentum) * momentum_[k] + kMomentum * mean_gradient[k];
      increment[k] = static_cast<float>(momentum_[k] - control_[k]);
    }
    return increment;
  }

  onebitComm_t comm_;
  const size_t rank_;
  const bool has_momentum_;
  std::vector<onebit::UniqueCompressor> compressors_;  // by client
  Vector x_ = Vector(kSize);
  Vector mean_control_ = Vector(kSize);  // the same on all ranks, as is x_
  Vector control_ = Vector(kSize);
  Vector momentum_ = Vector(kSize);
};

// The largest difference between the mean of the control variates and what the ranks hold of it.
double Drift(onebitComm_t comm, const Client& client) {
  Vector mean(kSize);
  Check(onebitAllReduce(client.control().data(), mean.data(), kSize, onebitFloat64, onebitAvg,
                        nullptr, comm, nullptr));
  double drift = 0;
  for (size_t k = 0; k < kSize; ++k) {
    const double difference = mean[k] - client.mean_control()[k];
    drift = std::max(drift, difference < 0 ? -difference : difference);
  }
  return drift;
}

void Run(onebitComm_t comm, int rank, bool has_momentum) {
  Client client(comm, rank, has_momentum);
  for (int round = 0; round < kRounds; ++round) {
    client.Round(round);
    if (rank == 0) std::printf("%d %.9g\n", round + 1, client.excess());
  }
  const double drift = Drift(comm, client);
  if (rank == 0) std::printf("drift %.3g\n", drift);
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_scallion = argc == 2 && std::strcmp(argv[1], "scallion") == 0;
  if (!is_scallion && (argc != 2 || std::strcmp(argv[1], "scafcom") != 0)) {
    std::fprintf(stderr, "usage: federated scallion|scafcom\n");
    return 2;
  }
  try {
    RunRanks(kClients, [&](onebitComm_t comm, int rank) { Run(comm, rank, !is_scallion); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "federated: %s\n", error.what());
    return 1;
  }
  return 0;
}
