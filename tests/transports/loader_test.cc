// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The loader finds, opens and refuses plugins; test doubles of plugins are in tests/support.
#include "transport/loader.h"

#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/process_settings.h"
#include "transport/transport.h"
#include "transport/variants.h"

namespace onebit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kFirst = ONEBIT_PLUGIN_DOUBLES "/first";
const std::string kSecond = ONEBIT_PLUGIN_DOUBLES "/second";
const std::vector<std::string> kFolders = {"/nonexistent", kFirst, kSecond};

void ExpectRefused(const std::string& name, Code code, const ::testing::Matcher<std::string>& text,
                   const std::vector<std::string>& folders = kFolders) {
  const auto opened = OpenPlugin(name, folders);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), code);
  EXPECT_THAT(opened.status().text(), text);
}

// Two plugins of one name differ in the default of their only setting.
std::string DefaultOf(const onebitTransport* functions) {
  const auto properties = Transport::PropertiesOf(functions, nullptr);
  return properties.ok() ? properties.value().settings[0].defaultValue : "none";
}

TEST(LoaderTest, FirstFolderComesFirst) {
  const auto opened = OpenPlugin("fake", kFolders);
  ASSERT_TRUE(opened.ok()) << opened.status().text();
  EXPECT_EQ(DefaultOf(opened.value()), "first");
  const std::vector<std::string> reversed = {kSecond, kFirst};
  const auto other = OpenPlugin("fake", reversed);
  ASSERT_TRUE(other.ok()) << other.status().text();
  EXPECT_EQ(DefaultOf(other.value()), "second");
}

TEST(LoaderTest, MissingPluginSaysWhereItWasLookedFor) {
  ExpectRefused(
      "nonesuch", Code::kInvalidArgument,
      AllOf(HasSubstr("there is no transport \"nonesuch\""),
            HasSubstr("libonebit-transport-nonesuch.so is not in /nonexistent, " + kFirst),
            HasSubstr("No such file or directory"), HasSubstr("ONEBIT_PLUGIN_PATH")));
}

TEST(LoaderTest, NamesThatAreNoNamesAreRefused) {
  for (const std::string name : {"", "../fake", "/fake", "fa.ke", "Fake", "7up", "a b",
                                 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    ExpectRefused(name, Code::kInvalidArgument, HasSubstr("lower-case letters and digits"));
  }
  EXPECT_TRUE(IsTransportName("ucx"));
  EXPECT_TRUE(IsTransportName("a2"));
}

TEST(LoaderTest, PluginsThatAreNoneAreRefused) {
  ExpectRefused("future", Code::kInvalidUsage,
                AllOf(HasSubstr(kSecond + "/libonebit-transport-future.so"),
                      HasSubstr("ABI version 5, this library speaks 4")));
  ExpectRefused("disguised", Code::kInvalidUsage, HasSubstr("its name is \"other\""));
  ExpectRefused("empty", Code::kInvalidUsage, HasSubstr("no symbol onebitTransportGet"));
}

// The ABI has no error texts: what the transport logs is the cause.
TEST(TransportTest, ALackOfMemoryNamesWhatWasWantedAndTheLimit) {
  onebitTransport poor = *OpenPlugin("fake", kFolders).value();
  poor.init = [](const onebitTransportHost* host, void**) {
    host->log(onebitLogWarn, "fake: 7 bytes");
    return onebitOutOfMemory;
  };
  rlimit former{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &former), 0);
  const rlimit large = {.rlim_cur = rlim_t{1} << 60, .rlim_max = former.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &large), 0);
  const auto started = Transport::Start(&poor);
  setrlimit(RLIMIT_AS, &former);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.status().code(), Code::kOutOfMemory);
  EXPECT_THAT(started.status().text(),
              HasSubstr("fake: 7 bytes: out of memory; this process may use 1152921504606846976 "
                        "bytes of address space (ulimit -v)"));
}

TEST(LoaderTest, FileThatIsNoLibraryIsNotPassedOver) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "onebit_loader_test";
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "libonebit-transport-fake.so") << "not an ELF file\n";
  ExpectRefused("fake", Code::kSystemError,
                AllOf(HasSubstr("cannot be opened"), HasSubstr(folder.string())),
                {folder.string(), kFirst});
  std::filesystem::remove_all(folder);
}

// No MPI is in this process, and main has taken the variables of launchers out of the environment.
TEST(LoaderTest, VariantsAreChosenByTheLauncher) {
  const auto undecided = PluginFile("mpi");
  ASSERT_FALSE(undecided.ok());
  EXPECT_EQ(undecided.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(undecided.status().text(),
              AllOf(HasSubstr("libonebit-transport-mpi-openmpi.so"),
                    HasSubstr("libonebit-transport-mpi-mpich.so"), HasSubstr("mpirun")));
  for (const auto& [variable, file] :
       {std::pair{"PMI_RANK", "libonebit-transport-mpi-mpich.so"},
        std::pair{"OMPI_COMM_WORLD_RANK", "libonebit-transport-mpi-openmpi.so"}}) {
    setenv(variable, "0", 1);
    const auto chosen = PluginFile("mpi");
    unsetenv(variable);
    ASSERT_TRUE(chosen.ok()) << chosen.status().text();
    EXPECT_EQ(chosen.value(), file);
  }
  EXPECT_EQ(PluginFile("ucx").value(), "libonebit-transport-ucx.so");
}

TEST(LoaderTest, VariantsAreListedOnce) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "onebit_variants_test";
  std::filesystem::create_directory(folder);
  for (const std::string stem : {"mpi-openmpi", "mpi-mpich", "mpi-other", "ucx-openmpi"}) {
    std::ofstream(folder / ("libonebit-transport-" + stem + ".so")) << "not an ELF file\n";
  }
  const std::vector<std::string> folders = {folder.string()};
  EXPECT_EQ(FindPlugins(folders), std::vector<std::string>{"mpi"});
  std::filesystem::remove_all(folder);
}

TEST(LoaderTest, FindsNamesWithoutOpening) {
  EXPECT_EQ(FindPlugins(kFolders),
            (std::vector<std::string>{"disguised", "empty", "fake", "future"}));
}

TEST(LoaderTest, FoldersAreThoseOfThePathAndOurOwn) {
  const auto own = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  const std::string packaged = own + "/onebit";
  EXPECT_EQ(PluginFolders(""), (std::vector<std::string>{own, packaged}));
  EXPECT_EQ(PluginFolders(":/a::/b:"), (std::vector<std::string>{"/a", "/b", own, packaged}));
}

// The environment is read once in a process: this program sets it in main.
TEST(LoaderTest, VariableOfAPluginIsNotUnknown) {
  const auto table = ProcessSettings();
  ASSERT_TRUE(table.ok()) << table.status().text();
  EXPECT_TRUE(table.value()->IsSet("ONEBIT_FAKE_SPEED"));
  EXPECT_EQ(table.value()->warnings, std::vector<std::string>{});
  const auto fake = Transport::Get("fake");
  ASSERT_TRUE(fake.ok()) << fake.status().text();
  EXPECT_EQ(DefaultOf(&fake.value()->functions()), "second");
}

TEST(LoaderTest, ListsWhatIsFound) {
  EXPECT_EQ(ListedTransports(),
            (std::vector<std::string>{"local", "socket", "disguised", "empty", "fake", "future"}));
  const auto table = ListedSettings();  // logs a line for each plugin that cannot be opened
  ASSERT_TRUE(table.ok()) << table.status().text();
  EXPECT_STREQ(table.value()->rows.back().name, "ONEBIT_FAKE_SPEED");
  EXPECT_EQ(table.value()->rows.back().value, "quick");
}

}  // namespace
}  // namespace onebit

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_SIZE",
                           "PMI_RANK", "MPI_LOCALNRANKS"}) {
    unsetenv(name);
  }
  setenv("ONEBIT_PLUGIN_PATH",
         (std::string(":/nonexistent:") + ONEBIT_PLUGIN_DOUBLES "/second").c_str(), 1);
  setenv("ONEBIT_FAKE_SPEED", "quick", 1);
  return RUN_ALL_TESTS();
}
