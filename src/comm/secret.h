// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What a job's ranks share and strangers do not: the key, and the proof of knowing it.
//
// Both sides of a connection send a fresh nonce. Each proves that it has the key by a keyed hash
// (BLAKE2b) over both nonces and its own role, the server first, so that a proof is good for one
// connection and one direction. The same nonces give two session keys, one per direction; every
// later frame is sealed with its key (ChaCha20-Poly1305) and the number of the frame, so that
// nothing can be put in, changed, left out or repeated unnoticed. All of the cryptography is
// libsodium's.
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
// The key of a job whose secret is a text; the empty text gives a key that everybody knows.
JobKey KeyOfSecret(std::string_view secret);

// A key of which the secret is a part, too. Without a secret it is `key`.
JobKey MixedKey(const JobKey& key, std::string_view secret);

using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;
using Magic = std::array<char, 8>;

// On the wire as they are: bytes only, no padding.
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
// An error if the hello is not one of this version; the nonce cannot be wrong.
Result<ServerAnswer> AnswerHello(const JobKey& key, const ClientHello& hello);

struct ClientAnswer {
  Proof proof;
  SessionKeys keys;
};
// kNotAuthenticated if the server does not know the key.
Result<ClientAnswer> CheckServer(const JobKey& key, const ClientHello& sent,
                                 const ServerHello& received);

// In constant time.
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

// Takes frames apart. What it holds is never larger than the largest frame and the last Feed.
class FrameOpener {
 public:
  FrameOpener(const JobKey& key, size_t most_message_bytes)
      : key_(key), most_message_bytes_(most_message_bytes) {}

  void Feed(std::span<const std::byte> bytes);
  // The next message, nothing if it is not complete. After an error the connection is of no use:
  // kCorrupt for a length beyond the limit, kNotAuthenticated for a seal that is broken.
  Result<std::optional<Bytes>> Next();

 private:
  JobKey key_;
  size_t most_message_bytes_;
  uint64_t number_ = 0;
  Bytes buffer_;
  size_t begin_ = 0;  // of what Next has not taken
};

}  // namespace onebit
