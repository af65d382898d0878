// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/secret.h"

#include <sodium.h>

#include <cstring>

namespace onebit {
namespace {

static_assert(kKeyBytes == crypto_generichash_KEYBYTES &&
              kKeyBytes == crypto_aead_chacha20poly1305_ietf_KEYBYTES);

constexpr size_t kLengthBytes = 4;
constexpr size_t kSealBytes = crypto_aead_chacha20poly1305_ietf_ABYTES;
constexpr Magic kHelloMagic = {'o', 'n', 'e', 'b', 'i', 't', 'C', '6'};

// Initialises libsodium; may be repeated from any thread. Fails only if the system has no source of
// randomness.
void Start() { [[maybe_unused]] const int result = sodium_init(); }

template <typename Output>
Output KeyedHash(const JobKey& key, std::string_view role, const Nonce& client,
                 const Nonce& server) {
  crypto_generichash_state state;
  Output output;
  auto* bytes = reinterpret_cast<unsigned char*>(&output);
  crypto_generichash_init(&state, key.bytes.data(), key.bytes.size(), sizeof(output));
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(role.data()),
                            role.size());
  crypto_generichash_update(&state, client.data(), client.size());
  crypto_generichash_update(&state, server.data(), server.size());
  crypto_generichash_final(&state, bytes, sizeof(output));
  return output;
}

JobKey HashOf(std::span<const unsigned char> key, std::string_view text) {
  Start();
  JobKey hash;
  crypto_generichash(hash.bytes.data(), hash.bytes.size(),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), key.data(),
                     key.size());
  return hash;
}

// Roles have equal length, so no two inputs of the hash can be equal.
Proof ServerProof(const JobKey& key, const Nonce& client, const Nonce& server) {
  return KeyedHash<Proof>(key, "proof-server", client, server);
}
Proof ClientProof(const JobKey& key, const Nonce& client, const Nonce& server) {
  return KeyedHash<Proof>(key, "proof-client", client, server);
}
SessionKeys KeysOf(const JobKey& key, const Nonce& client, const Nonce& server) {
  return {.to_server = KeyedHash<JobKey>(key, "frame-server", client, server),
          .to_client = KeyedHash<JobKey>(key, "frame-client", client, server)};
}

using FrameNonce = std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;

FrameNonce NonceOf(uint64_t number) {
  FrameNonce nonce = {};
  for (size_t i = 0; i < sizeof(number); ++i) {
    nonce[i] = static_cast<unsigned char>(number >> (8 * i));
  }
  return nonce;
}

unsigned char* Raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* Raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

Nonce RandomNonce() {
  Start();
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Status CheckHelloMagic(const Magic& magic) {
  if (magic == kHelloMagic) return OkStatus();
  if (std::memcmp(magic.data(), kHelloMagic.data(), magic.size() - 1) == 0) {
    return Error(Code::kMismatch,
                 "the other side speaks version '{}' of the control protocol, this library '{}': "
                 "install the same version of onebit everywhere",
                 magic.back(), kHelloMagic.back());
  }
  return Error(Code::kNotAuthenticated, "what answers there is not a onebit rank");
}

}  // namespace

JobKey RandomKey() {
  Start();
  JobKey key;
  randombytes_buf(key.bytes.data(), key.bytes.size());
  return key;
}

JobKey KeyOfSecret(std::string_view secret) {
  constexpr std::string_view kPurpose = "onebit job secret";
  return HashOf({reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size()}, secret);
}

JobKey MixedKey(const JobKey& key, std::string_view secret) {
  return secret.empty() ? key : HashOf(key.bytes, secret);
}

ClientHello MakeClientHello() { return {.magic = kHelloMagic, .nonce = RandomNonce()}; }

Result<ServerAnswer> AnswerHello(const JobKey& key, const ClientHello& hello) {
  ONEBIT_TRY(CheckHelloMagic(hello.magic));
  const Nonce nonce = RandomNonce();
  return ServerAnswer{.hello = {.magic = kHelloMagic,
                                .nonce = nonce,
                                .proof = ServerProof(key, hello.nonce, nonce)},
                      .expected_proof = ClientProof(key, hello.nonce, nonce),
                      .keys = KeysOf(key, hello.nonce, nonce)};
}

Result<ClientAnswer> CheckServer(const JobKey& key, const ClientHello& sent,
                                 const ServerHello& received) {
  ONEBIT_TRY(CheckHelloMagic(received.magic));
  if (!IsSameProof(received.proof, ServerProof(key, sent.nonce, received.nonce))) {
    return Error(Code::kNotAuthenticated,
                 "a onebit rank answers, but with another secret: ONEBIT_SECRET, "
                 "ONEBIT_SECRET_FILE or the unique id differs from rank 0's");
  }
  return ClientAnswer{.proof = ClientProof(key, sent.nonce, received.nonce),
                      .keys = KeysOf(key, sent.nonce, received.nonce)};
}

bool IsSameProof(const Proof& a, const Proof& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

void FrameSealer::Append(std::span<const std::byte> message, Bytes* frames) {
  const size_t sealed_bytes = message.size() + kSealBytes;
  const size_t begin = frames->size();
  frames->resize(begin + kLengthBytes + sealed_bytes);
  std::byte* length = frames->data() + begin;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<std::byte>(sealed_bytes >> (8 * i) & 0xff);
  }
  // The number of the frame is part of the seal, so the length needs no seal of its own.
  crypto_aead_chacha20poly1305_ietf_encrypt(Raw(length + kLengthBytes), nullptr,
                                            Raw(message.data()), message.size(), nullptr, 0,
                                            nullptr, NonceOf(number_++).data(), key_.bytes.data());
}

void FrameOpener::Feed(std::span<const std::byte> bytes) {
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(begin_));
  begin_ = 0;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Bytes>> FrameOpener::Next() {
  const std::span<const std::byte> left = std::span(buffer_).subspan(begin_);
  if (left.size() < kLengthBytes) return std::optional<Bytes>();
  const size_t sealed_bytes = ByteReader(left.first(kLengthBytes)).Integer<uint32_t>();
  if (sealed_bytes < kSealBytes || sealed_bytes - kSealBytes > most_message_bytes_) {
    return Error(Code::kCorrupt, "a control frame announces {} bytes, but may have {} to {}",
                 sealed_bytes, kSealBytes, kSealBytes + most_message_bytes_);
  }
  if (left.size() - kLengthBytes < sealed_bytes) return std::optional<Bytes>();
  Bytes message(sealed_bytes - kSealBytes);
  if (crypto_aead_chacha20poly1305_ietf_decrypt(
          Raw(message.data()), nullptr, nullptr, Raw(left.data() + kLengthBytes), sealed_bytes,
          nullptr, 0, NonceOf(number_).data(), key_.bytes.data()) != 0) {
    return Error(Code::kNotAuthenticated, "the seal of control frame {} is broken", number_);
  }
  ++number_;
  begin_ += kLengthBytes + sealed_bytes;
  return std::optional<Bytes>(std::move(message));
}

}  // namespace onebit
