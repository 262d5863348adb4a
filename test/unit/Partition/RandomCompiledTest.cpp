// Compiles and runs a fixed sample of the random programs: for the CPU and, if
// the simulated CUDA library is available, for CUDA devices; in f32, and
// narrowed to bf16. Also tests that the comparison finds injected faults.

#include "../TriesAll.h"
#include "Context.h"
#include "Random/Bugs.h"
#include "Random/Compiled.h"
#include "Random/Shrink.h"

#include "cleave/Check/Faults.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

constexpr uint64_t kSeed = 1;

struct Slice {
  const char *name;
  bool bf16, recorded;
  int64_t first, cases;
};

class RandomCompiled : public testing::TestWithParam<Slice> {};

TEST_P(RandomCompiled, AgreesWithOneDevice) {
  Slice slice = GetParam();
  CompileStyle style{slice.bf16};
  if (slice.recorded) {
    if (std::string missing = prepareRecorder(); !missing.empty())
      GTEST_SKIP() << missing;
    style.device = program::Device::Cuda;
  }
  TestContext test;
  CompiledRunner runner(&test.context, style);
  int64_t cases = test::triesAll() ? slice.cases : slice.cases / 2;
  for (int64_t i = 0; i < cases; ++i) {
    int64_t number = slice.first + i;
    uint64_t seed = caseSeed(kSeed, number);
    OwningOpRef<ModuleOp> program =
        Generator(&test.context, seed, {/*compiled=*/true, slice.bf16}).run();
    if (Outcome outcome = runner.run(*program, seed); !outcome)
      ADD_FAILURE() << "case " << number << ": " << name(outcome.kind).str()
                    << ": " << outcome.message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Slices, RandomCompiled,
    testing::Values(Slice{"f32", false, false, 0, 15},
                    Slice{"bf16", true, false, 0, 15},
                    Slice{"recorder", false, true, 0, 10},
                    Slice{"recorder_bf16", true, true, 0, 10}),
    [](const testing::TestParamInfo<Slice> &info) { return info.param.name; });

/// A fault in the partitioner changes the results of the compiled code.
TEST(RandomCompiled, FindsPlantedBugs) {
  TestContext test;
  CompiledRunner comparing(&test.context, {}, /*interpret=*/false,
                           /*prove=*/false);
  for (const char *name : {"lost-all-reduce", "offset-by-one", "wrong-axis"}) {
    const Bug *bug = llvm::find_if(
        plantedBugs(), [&](const Bug &b) { return b.name == StringRef(name); });
    ASSERT_NE(bug, plantedBugs().end()) << name;
    Found found = huntBug(*bug, comparing, kSeed, 20, {/*compiled=*/true});
    EXPECT_GE(found.number, 0) << name;
  }
}

/// Adds 2^10 to every argument that need not be an integer, and subtracts it
/// again. In f64 the rounding error is well within the tolerance; in f32 it
/// costs ten bits.
bool loseBits(ModuleOp module) {
  bool any = false;
  for (auto func : module.getOps<func::FuncOp>())
    for (BlockArgument argument : func.getArguments()) {
      auto type = cast<RankedTensorType>(argument.getType());
      unsigned index = argument.getArgNumber();
      auto sharding = func.getArgAttrOfType<dist::ShardingAttr>(
          index, dist::kShardingAttrName);
      if (!type.getElementType().isF32() || argument.use_empty() ||
          !nn::isOneOf(nn::roleOf(argument),
                       {nn::Role::Parameter, nn::Role::Input}) ||
          (sharding && !sharding.getPartial().empty()))
        continue;
      OpBuilder b = OpBuilder::atBlockBegin(argument.getOwner());
      Value much = nn::createSplat(b, func.getLoc(), type, 0x1p10);
      Operation *more = arith::AddFOp::create(b, func.getLoc(), argument, much);
      Value again =
          arith::SubFOp::create(b, func.getLoc(), more->getResult(0), much);
      argument.replaceAllUsesExcept(again, more);
      any = true;
    }
  return any;
}

/// Injects a transfer whose Wait comes only after the operation that reads the
/// data. Data arrive as late as possible, so the operation reads NaN.
TEST(RandomCompiled, FindsMissingWaits) {
  CompileStyle style;
  style.change = [](program::Program &program) {
    std::string where;
    return check::injectFault(program, "missing-wait", /*index=*/-1, where);
  };
  TestContext test;
  CompiledRunner runner(&test.context, style);
  int64_t broken = 0;
  for (int64_t number = 0; number < 12; ++number) {
    uint64_t seed = caseSeed(kSeed, number);
    OwningOpRef<ModuleOp> program =
        Generator(&test.context, seed, {/*compiled=*/true}).run();
    Outcome outcome = runner.run(*program, seed);
    if (outcome.kind == Outcome::NotCompiled) // has no place for it
      continue;
    ++broken;
    EXPECT_FALSE(outcome) << "case " << number;
  }
  EXPECT_GT(broken, 6);
}

TEST(RandomCompiled, FindsAnotherRounding) {
  TestContext test;
  CompiledRunner runner(&test.context, {});
  const Bug bug = {"lost-bits", "tiles of inputs are rounded", "dist-partition",
                   loseBits};
  int64_t planted = 0, found = 0;
  for (int64_t number = 0; number < 12; ++number) {
    uint64_t seed = caseSeed(kSeed, number);
    OwningOpRef<ModuleOp> program =
        Generator(&test.context, seed, {/*compiled=*/true}).run();
    bool has = false;
    Outcome outcome = runner.run(*program, seed, nullptr, &bug, &has);
    planted += has;
    found += outcome.kind == Outcome::WrongRounding;
    EXPECT_TRUE(outcome || outcome.kind == Outcome::WrongRounding)
        << name(outcome.kind).str() << ": " << outcome.message;
  }
  EXPECT_GT(planted, 6);
  EXPECT_GT(found, planted / 2);
}

} // namespace
