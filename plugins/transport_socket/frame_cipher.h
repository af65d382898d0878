// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// FrameCipher: encrypts and authenticates the frames of a TCP connection, in both directions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/secret.h"

namespace onebit::sockets {

// The ciphers of libsodium that a rank can use. Two ranks take the first one that both have.
enum class Cipher : uint32_t {
  kAes256Gcm = 1,  // needs instructions of the processor
  kChaCha20Poly1305 = 2,
};
// A mask of the enumerators that this processor and libsodium support.
uint32_t CiphersHere();
// `masks` have at least kChaCha20Poly1305 in common.
Cipher AgreedCipher(uint32_t mask, uint32_t other_mask);

// The parts of a direction are numbered, and a part's number is its nonce: none can be left out,
// repeated, moved or sent back. A key serves one direction of one connection.
class FrameCipher {
 public:
  static constexpr size_t kTagBytes = 16;

  // Throws std::bad_alloc.
  FrameCipher(Cipher cipher, const JobKey& sending, const JobKey& receiving);
  ~FrameCipher();
  FrameCipher(const FrameCipher&) = delete;
  FrameCipher& operator=(const FrameCipher&) = delete;

  // Writes the encrypted part, of equal size, and its tag of kTagBytes behind it. `context` is not
  // encrypted, but authenticated with the part.
  void Seal(std::span<const std::byte> part, std::span<const std::byte> context, std::byte* sealed);
  // Decrypts in place. False if anything was changed; the part's content is then undefined.
  [[nodiscard]] bool Open(std::span<std::byte> part, const std::byte* tag,
                          std::span<const std::byte> context);

 private:
  struct Direction;

  const Cipher cipher_;
  const std::unique_ptr<Direction> sending_;
  const std::unique_ptr<Direction> receiving_;
};

}  // namespace onebit::sockets
