// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Files with secrets: readable only by their owner, and nothing that merely looks like one is
// accepted.
#include "comm/rendezvous_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/secret_file.h"

namespace onebit {
namespace {

using testing::HasSubstr;

UniqueId SomeId(unsigned char fill) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(4711);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueId id = {.address = SocketAddress(reinterpret_cast<const sockaddr*>(&address)), .key = {}};
  id.key.bytes.fill(fill);
  return id;
}

Status LetGo(const UniqueId&) { return OkStatus(); }

class SecretFilesTest : public ::testing::Test {
 protected:
  SecretFilesTest() {
    char folder[] = "/tmp/onebit_meeting_file_test.XXXXXX";
    if (mkdtemp(folder) != nullptr) folder_ = folder;
  }
  ~SecretFilesTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const char* name) const { return folder_ + "/" + name; }
  std::string Write(const char* name, const std::string& content, mode_t mode = 0600) const {
    std::string path = Path(name);
    std::ofstream(path) << content;
    chmod(path.c_str(), mode);
    return path;
  }
  static std::string ContentOf(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
};

using RendezvousFileTest = SecretFilesTest;
using SecretFileTest = SecretFilesTest;

TEST_F(RendezvousFileTest, WhatIsWrittenIsRead) {
  const auto content = WriteRendezvousFile(Path("file"), SomeId(7), LetGo);
  ASSERT_TRUE(content.ok()) << content.status().text();
  EXPECT_EQ(ContentOf(Path("file")), content.value());
  const auto id = ReadRendezvousFile(Path("file"));
  ASSERT_TRUE(id.ok()) << id.status().text();
  EXPECT_EQ(id.value().address.Text(), "127.0.0.1:4711");
  EXPECT_EQ(id.value().key.bytes, SomeId(7).key.bytes);
}

TEST_F(RendezvousFileTest, OnlyTheOwnerMayReadItWhateverTheUmask) {
  const mode_t former = umask(0);
  const auto content = WriteRendezvousFile(Path("file"), SomeId(7), LetGo);
  umask(former);
  ASSERT_TRUE(content.ok());
  struct stat facts;
  ASSERT_EQ(lstat(Path("file").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  // And no draft is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(RendezvousFileTest, ALinkInItsPlaceIsReplacedAndNotFollowed) {
  const std::string victim = Write("victim", "precious");
  ASSERT_EQ(symlink(victim.c_str(), Path("file").c_str()), 0);
  // And one at the path of the draft.
  const std::string draft = Path("file") + "." + std::to_string(getpid());
  ASSERT_EQ(symlink(victim.c_str(), draft.c_str()), 0);
  ASSERT_TRUE(WriteRendezvousFile(Path("file"), SomeId(7), LetGo).ok());
  EXPECT_EQ(ContentOf(victim), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(Path("file")));
  EXPECT_TRUE(ReadRendezvousFile(Path("file")).ok());
}

TEST_F(RendezvousFileTest, AFolderThatIsMissingIsAnErrorWithThePath) {
  const auto content = WriteRendezvousFile(Path("no/file"), SomeId(7), LetGo);
  ASSERT_FALSE(content.ok());
  EXPECT_EQ(content.status().code(), Code::kSystemError);
  EXPECT_THAT(content.status().text(), HasSubstr(Path("no/file")));
  EXPECT_THAT(content.status().text(), HasSubstr("No such file or directory"));
}

TEST_F(RendezvousFileTest, AFolderInItsPlaceIsAnErrorAndLeavesNoDraft) {
  ASSERT_EQ(mkdir(Path("file").c_str(), 0700), 0);
  EXPECT_FALSE(WriteRendezvousFile(Path("file"), SomeId(7), LetGo).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_THAT(ReadRendezvousFile(Path("file")).status().text(), HasSubstr("is not a regular file"));
}

TEST_F(RendezvousFileTest, FilesThatOthersMayUseAreRefused) {
  ASSERT_TRUE(WriteRendezvousFile(Path("file"), SomeId(7), LetGo).ok());
  for (const mode_t mode : {0640, 0604, 0660, 0602, 0666, 0601}) {
    chmod(Path("file").c_str(), mode);
    const auto id = ReadRendezvousFile(Path("file"));
    ASSERT_FALSE(id.ok()) << std::oct << mode;
    EXPECT_THAT(id.status().text(), HasSubstr("chmod 600"));
  }
}

TEST_F(RendezvousFileTest, GarbageIsRefused) {
  const std::string good = WriteRendezvousFile(Path("good"), SomeId(7), LetGo).value();
  const std::string digits = good.substr(good.rfind(' ') + 1, 2 * kUniqueIdBytes);
  const std::string prefix = good.substr(0, good.rfind(' ') + 1);
  const std::string cases[] = {
      "",
      "\n",
      "hello\n",
      prefix,
      prefix + "\n",
      prefix + digits,                                  // no newline: half written
      prefix + digits.substr(1) + "\n",                 // too short
      prefix + digits + "00\n",                         // too long
      prefix + digits + "zz\n",                         // bytes after the id
      prefix + digits + "\n\n",                         // one line too many
      prefix + " " + digits + "\n",                     //
      prefix + std::string(digits.size(), '0') + "\n",  // no id
      prefix + "g" + digits.substr(1) + "\n",           // no digits
      "onebit-rendezvous 2 " + digits + "\n",           // another version
      good + good,                                      //
      std::string(5000, 'x'),                           // too large
  };
  for (const std::string& content : cases) {
    const auto id = ReadRendezvousFile(Write("file", content));
    EXPECT_FALSE(id.ok()) << content;
  }
  EXPECT_TRUE(ReadRendezvousFile(Write("file", good)).ok());
}

TEST_F(RendezvousFileTest, APipeIsRefusedAndKeepsNobodyWaiting) {
  ASSERT_EQ(mkfifo(Path("file").c_str(), 0600), 0);
  EXPECT_THAT(ReadRendezvousFile(Path("file")).status().text(), HasSubstr("is not a regular file"));
}

TEST_F(RendezvousFileTest, AFileThatAnotherJobNeedsStays) {
  const std::string others = WriteRendezvousFile(Path("file"), SomeId(8), LetGo).value();
  std::string asked;
  const auto refused =
      WriteRendezvousFile(Path("file"), SomeId(7), [&](const UniqueId& id) -> Status {
        asked += Format("{} ", id.key.bytes[0]);
        return Error(Code::kMismatch, "it is needed");
      });
  EXPECT_EQ(refused.status().text(), "it is needed");
  EXPECT_EQ(asked, "8 ");
  EXPECT_EQ(ContentOf(Path("file")), others);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(RendezvousFileTest, AFileThatComesWhileAnotherIsAskedIsAskedAsWell) {
  ASSERT_TRUE(WriteRendezvousFile(Path("file"), SomeId(8), LetGo).ok());
  std::string asked;
  const auto written = WriteRendezvousFile(Path("file"), SomeId(7), [&](const UniqueId& id) {
    asked += Format("{} ", id.key.bytes[0]);
    if (id.key.bytes[0] == 8) {
      EXPECT_TRUE(WriteRendezvousFile(Path("file2"), SomeId(9), LetGo).ok());
      std::filesystem::rename(Path("file2"), Path("file"));
    }
    return OkStatus();
  });
  ASSERT_TRUE(written.ok()) << written.status().text();
  EXPECT_EQ(asked, "8 9 ");
  EXPECT_EQ(ContentOf(Path("file")), written.value());
}

TEST_F(RendezvousFileTest, ItIsRemovedOnlyIfItIsStillTheSame) {
  const std::string mine = WriteRendezvousFile(Path("file"), SomeId(7), LetGo).value();
  const std::string others = WriteRendezvousFile(Path("file"), SomeId(8), LetGo).value();
  RemoveRendezvousFile(Path("file"), mine);
  EXPECT_EQ(ContentOf(Path("file")), others);
  RemoveRendezvousFile(Path("file"), others);
  EXPECT_FALSE(std::filesystem::exists(Path("file")));
  RemoveRendezvousFile(Path("file"), others);  // already removed
}

TEST_F(RendezvousFileTest, ItsFolderIsMadeForThisUserAlone) {
  const mode_t former = umask(0);
  const Status status = MakePrivateFolderOf(Path("new/file"));
  umask(former);
  ASSERT_TRUE(status.ok()) << status.text();
  struct stat facts;
  ASSERT_EQ(lstat(Path("new").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
  EXPECT_TRUE(MakePrivateFolderOf(Path("new/file")).ok());
}

TEST_F(RendezvousFileTest, AFolderThatOthersMayWriteToIsRefused) {
  for (const mode_t mode : {0770, 0707, 0777}) {
    mkdir(Path("shared").c_str(), 0700);
    chmod(Path("shared").c_str(), mode);
    const Status status = MakePrivateFolderOf(Path("shared/file"));
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_THAT(status.text(), HasSubstr("that only this user can write to"));
  }
}

TEST_F(RendezvousFileTest, ALinkOrFileInPlaceOfItsFolderIsRefused) {
  mkdir(Path("real").c_str(), 0700);
  ASSERT_EQ(symlink(Path("real").c_str(), Path("link").c_str()), 0);
  EXPECT_FALSE(MakePrivateFolderOf(Path("link/file")).ok());
  Write("plain", "");
  EXPECT_FALSE(MakePrivateFolderOf(Path("plain/file")).ok());
  EXPECT_FALSE(MakePrivateFolderOf(Path("no/such/file")).ok());
}

TEST_F(SecretFileTest, TheOwnerMayHaveFewerRights) {
  EXPECT_EQ(ReadSecretFile(Write("file", "x", 0400)).value(), "x");
}

TEST_F(SecretFileTest, ErrorsNameTheVariableAndThePath) {
  const auto missing = ReadSecretFile(Path("missing"));
  EXPECT_EQ(missing.status().code(), Code::kInvalidUsage);
  EXPECT_EQ(missing.status().text(), "environment variable ONEBIT_SECRET_FILE: " + Path("missing") +
                                         ": cannot be opened: No such file or directory");
  EXPECT_THAT(ReadSecretFile(Write("open", "x", 0644)).status().text(),
              HasSubstr("other users may use it (mode 644), but it holds a secret: chmod 600 it"));
  EXPECT_THAT(ReadSecretFile(folder_).status().text(), HasSubstr("is not a regular file"));
}

TEST_F(SecretFileTest, FilesOfOtherUsersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const std::string path = Write("file", "secret");
  ASSERT_EQ(chown(path.c_str(), 1234, 1234), 0);
  EXPECT_THAT(ReadPrivateFile(path).status().text(), HasSubstr("belongs to another user (1234)"));
  // A link that one owns does not make its target one's own.
  ASSERT_EQ(symlink(path.c_str(), Path("link").c_str()), 0);
  EXPECT_FALSE(ReadPrivateFile(Path("link")).ok());
  EXPECT_FALSE(ReadRendezvousFile(path).ok());
}

TEST_F(SecretFileTest, FilesUpToTheLimitAreRead) {
  EXPECT_EQ(ReadPrivateFile(Write("file", std::string(4096, 'x'))).value().size(), 4096u);
  EXPECT_THAT(ReadPrivateFile(Write("file", std::string(4097, 'x'))).status().text(),
              HasSubstr("has more than 4096 bytes"));
}

}  // namespace
}  // namespace onebit
