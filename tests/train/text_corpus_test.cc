// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The files of a corpus, their order, and the held-out part.
#include "perf/train_text/text_corpus.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace onebit::train {
namespace {

namespace fs = std::filesystem;

class TextCorpusTest : public testing::Test {
 protected:
  TextCorpusTest() {
    std::string pattern = (fs::temp_directory_path() / "text_corpus_XXXXXX").native();
    folder_ = mkdtemp(pattern.data());
  }
  ~TextCorpusTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  std::string Load(const std::string& name = "") const {
    const Corpus corpus = LoadCorpus((folder_ / name).native());
    return {corpus.bytes.begin(), corpus.bytes.end()};
  }

  std::string ErrorOfLoading(const std::string& name) const {
    try {
      LoadCorpus((folder_ / name).native());
    } catch (const CorpusError& error) {
      return error.what();
    }
    return "none";
  }

  fs::path folder_;
};

std::string Filler(char letter, size_t count = kMinTextBytes) { return std::string(count, letter); }

TEST_F(TextCorpusTest, JoinsFilesInTheBytewiseOrderOfTheirNames) {
  Write("b", Filler('2'));
  Write("a-b", Filler('1'));
  Write("\xc3\xa9", Filler('4'));  // not ASCII: after all ASCII names
  Write("Z", Filler('0'));
  Write("b.u8", Filler('3'));
  EXPECT_EQ(Load(), Filler('0') + Filler('1') + Filler('2') + Filler('3') + Filler('4'));
}

TEST_F(TextCorpusTest, SkipsLinksIndicesAndSubdirectories) {
  Write("text", Filler('t'));
  Write("text.dat", "index");
  fs::create_symlink("text", folder_ / "text.u8");
  fs::create_symlink("missing", folder_ / "dangling");
  fs::create_directory(folder_ / "off");
  Write("off/more", "more");
  EXPECT_EQ(Load(), Filler('t'));
}

TEST_F(TextCorpusTest, ReadsASingleFileWhateverItsName) {
  const std::string text = Filler('x', 200'000) + '\0' + "\r\n\xff";
  Write("text.dat", text);
  fs::create_symlink("text.dat", folder_ / "link");
  EXPECT_EQ(Load("text.dat"), text);
  EXPECT_EQ(Load("link"), text);
}

TEST_F(TextCorpusTest, HoldsOutTheLastTwentieth) {
  Write("text", Filler('x', 2019));
  const Corpus corpus = LoadCorpus((folder_ / "text").native());
  EXPECT_EQ(corpus.bytes.size(), 2019U);
  EXPECT_EQ(corpus.train_bytes, 2019U - 100U);
  EXPECT_EQ(corpus.file_count, 1U);
}

TEST_F(TextCorpusTest, HashesAllBytes) {
  const std::string text = "foobar";
  const std::vector<uint8_t> bytes(text.begin(), text.end());
  EXPECT_EQ(HashBytes(bytes), 0x85944171f73967e8U);  // from the authors' test vectors
  EXPECT_EQ(HashBytes({}), 0xcbf29ce484222325U);
}

TEST_F(TextCorpusTest, RefusesWhatIsMissingEmptyOrShort) {
  EXPECT_NE(ErrorOfLoading("missing").find("no such file"), std::string::npos);
  EXPECT_NE(ErrorOfLoading("missing").find("apt install fortunes"), std::string::npos);
  fs::create_directory(folder_ / "empty");
  EXPECT_NE(ErrorOfLoading("empty").find("no regular file"), std::string::npos);
  Write("short", Filler('x', kMinTextBytes - 1));
  EXPECT_NE(ErrorOfLoading("short").find("1023 bytes"), std::string::npos);
}

TEST(DefaultTextTest, IsTheTextOfDebiansFortunes) {
  if (!fs::exists(kDefaultTextPath)) GTEST_SKIP() << "package fortunes is not installed";
  const Corpus corpus = LoadCorpus(kDefaultTextPath);
  EXPECT_EQ(corpus.file_count, 43U);
  EXPECT_EQ(corpus.bytes.size(), 2'576'674U);
  EXPECT_EQ(corpus.hash, 0x2015a6f2b7de2d3dU);
}

}  // namespace
}  // namespace onebit::train
