// Compares a compiled program's records of its kernels with its launches and,
// for CUDA devices, with its PTX. The environment variable CLEAVE_TEST_ARTIFACT
// names the program's folder; test_cuda_artifacts.py compiles such programs.

#include "cleave/program_io.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <regex>
#include <set>
#include <sstream>

using namespace cleave::program;
namespace fs = std::filesystem;

namespace {

std::string contentsOf(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Returns, for each kernel, the alignment of each parameter as declared in the
/// PTX.
std::map<std::string, std::vector<int64_t>>
parametersOf(const std::string &ptx) {
  std::map<std::string, std::vector<int64_t>> kernels;
  std::istringstream lines(ptx);
  std::regex entry(R"(\.visible \.entry (\w+)\()"),
      parameter(
          R"(\.param \.u64 \.ptr \.global \.align (\d+) (\w+)_param_\d+)");
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, entry))
      kernels[match[1]];
    if (std::regex_search(line, match, parameter))
      kernels[match[2]].push_back(std::stoll(match[1]));
  }
  return kernels;
}

class Artifact : public ::testing::Test {
protected:
  void SetUp() override {
    const char *given = std::getenv("CLEAVE_TEST_ARTIFACT");
    if (!given)
      GTEST_SKIP() << "CLEAVE_TEST_ARTIFACT names no folder";
    folder = given;
    std::string error;
    ASSERT_TRUE(deserialize(contentsOf(folder / "program.bin"), program, error))
        << error;
    for (const Action &action : program.actions)
      for (const Command &command : action.commands)
        if (auto *call = std::get_if<Call>(&command.op))
          for (const Rebase &rebase : call->rebase)
            moves[{call->action, rebase.arena}].insert(rebase.offset);
  }

  int64_t indexOf(int64_t rank, const SubAxis &on) const {
    for (size_t axis = program.mesh.size(); axis-- > size_t(on.axis) + 1;)
      rank /= program.mesh[axis].size;
    int64_t size = program.mesh[on.axis].size;
    return rank % size / (size / (on.pre * on.size)) % on.size;
  }

  /// Returns all addresses to which `ref` can refer in calls of the action,
  /// relative to its arena.
  std::set<int64_t> addressesOf(uint32_t action, const BufferRef &ref) const {
    std::set<int64_t> offsets = {0}, found;
    if (auto move = moves.find({action, ref.arena}); move != moves.end())
      offsets.insert(move->second.begin(), move->second.end());
    for (int64_t rank = 0; rank < program.numRanks(); ++rank) {
      if (program.classOf(rank) != program.actions[action].rankClass)
        continue;
      int64_t at = ref.offset;
      for (const AxisTerm &term : ref.terms)
        at += term.coef * indexOf(rank, term.on);
      for (int64_t offset : offsets)
        found.insert(at + offset);
    }
    return found;
  }

  /// Calls `visit(kernel, argument, addresses, bytes of the arena)` for each
  /// argument.
  template <class Visit> void forEachArgument(Visit visit) const {
    for (uint32_t number = 0; number < program.actions.size(); ++number)
      for (const Command &command : program.actions[number].commands)
        if (auto *launch = std::get_if<Launch>(&command.op)) {
          const Kernel &kernel = program.kernels[launch->kernel];
          ASSERT_EQ(launch->args.size(), kernel.args.size()) << kernel.symbol;
          for (size_t i = 0; i < launch->args.size(); ++i)
            visit(kernel, i, addressesOf(number, launch->args[i]),
                  program.arenas[launch->args[i].arena].size);
        }
  }

  fs::path folder;
  Program program;
  std::map<std::pair<uint32_t, int32_t>, std::set<int64_t>> moves;
};

TEST_F(Artifact, KernelsStayWithinArenas) {
  ASSERT_FALSE(program.kernels.empty());
  for (const Kernel &kernel : program.kernels) {
    EXPECT_EQ(kernel.args.size(), size_t(kernel.numArgs)) << kernel.symbol;
    bool writes = false;
    for (const KernelArg &arg : kernel.args)
      writes |= arg.written;
    EXPECT_TRUE(writes) << kernel.symbol;
  }
  forEachArgument([&](const Kernel &kernel, size_t index,
                      const std::set<int64_t> &addresses, int64_t size) {
    for (int64_t at : addresses) {
      EXPECT_GE(at, 0) << kernel.symbol;
      EXPECT_LE(at + kernel.args[index].bytes, size)
          << kernel.symbol << ", argument " << index;
    }
  });
}

TEST_F(Artifact, PtxTakesNoMoreForGrantedThanAddressesHave) {
  if (program.device != Device::Cuda)
    GTEST_SKIP() << "compiled for the CPU";
  auto kernels = parametersOf(contentsOf(folder / "kernels.sm_80.ptx"));
  EXPECT_EQ(kernels.size(), program.kernels.size());
  for (const Kernel &kernel : program.kernels) {
    EXPECT_GE(kernel.grid, 1) << kernel.symbol;
    EXPECT_GE(kernel.block, 1) << kernel.symbol;
    EXPECT_LE(kernel.block, 1024) << kernel.symbol;
    ASSERT_TRUE(kernels.count(kernel.symbol)) << kernel.symbol;
    // The kernel has one more parameter, the address of an array with the
    // rank's index on each mesh axis.
    ASSERT_EQ(kernels[kernel.symbol].size(), kernel.args.size() + 1)
        << kernel.symbol;
  }
  forEachArgument([&](const Kernel &kernel, size_t index,
                      const std::set<int64_t> &addresses, int64_t) {
    for (int64_t at : addresses)
      EXPECT_EQ(at % kernels[kernel.symbol][index], 0)
          << kernel.symbol << ", argument " << index << " at " << at;
  });
}

} // namespace
