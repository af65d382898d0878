// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Golden files: JSON whose bytes are written in hexadecimal digits.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "kernels/types.h"

namespace onebit::testing {

inline nlohmann::json LoadGolden(const std::string& name) {
  std::ifstream file(std::string(ONEBIT_GOLDEN_FOLDER "/") + name + ".json");
  EXPECT_TRUE(file.good()) << name;
  return nlohmann::json::parse(file);
}

inline std::string HexOf(const void* data, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    text += Format("{:02x}", static_cast<const uint8_t*>(data)[i]);
  }
  return text;
}

inline std::vector<std::byte> FromHex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

inline kernels::DataType TypeNamed(const std::string& name) {
  return name == "fp32"   ? kernels::DataType::kF32
         : name == "fp16" ? kernels::DataType::kF16
                          : kernels::DataType::kBf16;
}

}  // namespace onebit::testing
