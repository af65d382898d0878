// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The key that a job's ranks share, and the proof of knowing it.
//
// Both sides of a connection send a fresh nonce. Each proves that it has the key by a keyed hash
// (BLAKE2b) over both nonces and its own role, the server first, so that a proof is good for one
// connection and one direction. The same nonces give two session keys, one per direction; every
// later frame is sealed with its key (ChaCha20-Poly1305) and the number of the frame, so that
// insertions, changes, omissions and replays are detected. libsodium does all of the cryptography.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "comm/byte_stream.h"

namespace onebit {

inline constexpr size_t kKeyBytes = 32;

struct JobKey {
  std::array<unsigned char, kKeyBytes> bytes;
};

JobKey RandomKey();
// Derives the key from a secret text; the empty text gives a key that everybody knows.
JobKey KeyOfSecret(std::string_view secret);

// Mixes the secret into `key`. Without a secret returns `key`.
JobKey MixedKey(const JobKey& key, std::string_view secret);

using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;
using Magic = std::array<char, 8>;

// Sent as they are: bytes only, no padding.
struct ClientHello {
  Magic magic;
  Nonce nonce;
};
struct ServerHello {
  Magic magic;
  Nonce nonce;
  Proof proof;
};
static_assert(sizeof(ClientHello) == 40 && sizeof(ServerHello) == 72);

struct SessionKeys {
  JobKey to_server;
  JobKey to_client;
};

ClientHello MakeClientHello();

struct ServerAnswer {
  ServerHello hello;
  Proof expected_proof;  // of the client
  SessionKeys keys;
};
// Fails if the hello has another version. Any nonce is valid.
Result<ServerAnswer> AnswerHello(const JobKey& key, const ClientHello& hello);

struct ClientAnswer {
  Proof proof;
  SessionKeys keys;
};
// Fails with kNotAuthenticated if the server does not know the key.
Result<ClientAnswer> CheckServer(const JobKey& key, const ClientHello& sent,
                                 const ServerHello& received);

// Compares in constant time.
bool IsSameProof(const Proof& a, const Proof& b);

// Makes frames: length of the sealed message (4 bytes, little-endian), sealed message.
class FrameSealer {
 public:
  explicit FrameSealer(const JobKey& key) : key_(key) {}
  void Append(std::span<const std::byte> message, Bytes* frames);

 private:
  JobKey key_;
  uint64_t number_ = 0;
};

// Takes frames apart. Never buffers more than the largest frame and the last Feed.
class FrameOpener {
 public:
  FrameOpener(const JobKey& key, size_t most_message_bytes)
      : key_(key), most_message_bytes_(most_message_bytes) {}

  void Feed(std::span<const std::byte> bytes);
  // Returns the next message; nothing if it is incomplete. Errors end the connection: kCorrupt for
  // a length beyond the limit, kNotAuthenticated for a broken seal.
  Result<std::optional<Bytes>> Next();

 private:
  JobKey key_;
  size_t most_message_bytes_;
  uint64_t number_ = 0;
  Bytes buffer_;
  size_t begin_ = 0;  // of the bytes that Next has not consumed
};

}  // namespace onebit
