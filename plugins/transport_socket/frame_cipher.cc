// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_socket/frame_cipher.h"

#include <sodium.h>

#include <array>

namespace onebit::sockets {
namespace {

static_assert(kKeyBytes == crypto_aead_aes256gcm_KEYBYTES &&
              kKeyBytes == crypto_aead_chacha20poly1305_ietf_KEYBYTES);
static_assert(FrameCipher::kTagBytes == crypto_aead_aes256gcm_ABYTES &&
              FrameCipher::kTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);

using PartNonce = std::array<unsigned char, crypto_aead_aes256gcm_NPUBBYTES>;
static_assert(sizeof(PartNonce) == crypto_aead_chacha20poly1305_ietf_NPUBBYTES);

PartNonce NonceOfPart(uint64_t number) {
  PartNonce nonce{};
  for (size_t i = 0; i < sizeof number; ++i) {
    nonce[i] = static_cast<unsigned char>(number >> (8 * i));
  }
  return nonce;
}

unsigned char* Chars(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* Chars(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

uint32_t CiphersHere() {
  [[maybe_unused]] const int started = sodium_init();  // finds out what the processor has
  const auto chacha = static_cast<uint32_t>(Cipher::kChaCha20Poly1305);
  const auto aes = static_cast<uint32_t>(Cipher::kAes256Gcm);
  return crypto_aead_aes256gcm_is_available() != 0 ? chacha | aes : chacha;
}

Cipher AgreedCipher(uint32_t mask, uint32_t other_mask) {
  const auto aes = static_cast<uint32_t>(Cipher::kAes256Gcm);
  return (mask & other_mask & aes) != 0 ? Cipher::kAes256Gcm : Cipher::kChaCha20Poly1305;
}

struct FrameCipher::Direction {
  Direction(Cipher cipher, const JobKey& key_of_direction) : key(key_of_direction) {
    if (cipher == Cipher::kAes256Gcm) crypto_aead_aes256gcm_beforenm(&aes, key.bytes.data());
  }

  const JobKey key;
  alignas(16) crypto_aead_aes256gcm_state aes;
  uint64_t parts = 0;  // so far
};

FrameCipher::FrameCipher(Cipher cipher, const JobKey& sending, const JobKey& receiving)
    : cipher_(cipher),
      sending_(std::make_unique<Direction>(cipher, sending)),
      receiving_(std::make_unique<Direction>(cipher, receiving)) {}

FrameCipher::~FrameCipher() = default;

void FrameCipher::Seal(std::span<const std::byte> part, std::span<const std::byte> context,
                       std::byte* sealed) {
  const PartNonce nonce = NonceOfPart(sending_->parts++);
  unsigned char* const tag = Chars(sealed + part.size());
  if (cipher_ == Cipher::kAes256Gcm) {
    crypto_aead_aes256gcm_encrypt_detached_afternm(
        Chars(sealed), tag, nullptr, Chars(part.data()), part.size(), Chars(context.data()),
        context.size(), nullptr, nonce.data(), &sending_->aes);
  } else {
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(
        Chars(sealed), tag, nullptr, Chars(part.data()), part.size(), Chars(context.data()),
        context.size(), nullptr, nonce.data(), sending_->key.bytes.data());
  }
}

bool FrameCipher::Open(std::span<std::byte> part, const std::byte* tag,
                       std::span<const std::byte> context) {
  const PartNonce nonce = NonceOfPart(receiving_->parts++);
  if (cipher_ == Cipher::kAes256Gcm) {
    return crypto_aead_aes256gcm_decrypt_detached_afternm(
               Chars(part.data()), nullptr, Chars(part.data()), part.size(), Chars(tag),
               Chars(context.data()), context.size(), nonce.data(), &receiving_->aes) == 0;
  }
  return crypto_aead_chacha20poly1305_ietf_decrypt_detached(
             Chars(part.data()), nullptr, Chars(part.data()), part.size(), Chars(tag),
             Chars(context.data()), context.size(), nonce.data(),
             receiving_->key.bytes.data()) == 0;
}

}  // namespace onebit::sockets
