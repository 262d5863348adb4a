// A fixed sample of the random programs (cleave-random-programs runs any
// number). Also tests the search itself: planted bugs are found, and failing
// programs shrink to a readable size.

#include "../TriesAll.h"
#include "Context.h"
#include "Random/Bugs.h"
#include "Random/Shrink.h"

#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Utils/PortTable.h"
#include "cleave/Reduce/Reduce.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <map>

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

constexpr uint64_t kSeed = 1;

/// A quarter of the sample, so that the quarters run in parallel.
class RandomPrograms : public testing::TestWithParam<int64_t> {};

TEST_P(RandomPrograms, AgreeWithOneDevice) {
  const int64_t kCases = test::triesAll() ? 1000 : 250;
  TestContext test;
  Runner runner(&test.context);
  for (int64_t number = GetParam() * kCases; number < (GetParam() + 1) * kCases;
       ++number) {
    uint64_t seed = caseSeed(kSeed, number);
    OwningOpRef<ModuleOp> program = Generator(&test.context, seed).run();
    Outcome outcome = runner.run(*program, seed);
    if (outcome)
      continue;
    std::string path =
        testing::TempDir() + "case-" + std::to_string(number) + ".mlir";
    reportShrunk(*program, seed, runner, outcome, path);
    FAIL() << "case " << number << ", written to " << path << ": "
           << name(outcome.kind).str() << ": " << outcome.message;
  }
}

INSTANTIATE_TEST_SUITE_P(Slice, RandomPrograms, testing::Range<int64_t>(0, 4));

TEST(RandomProgram, FollowsFromItsSeed) {
  auto print = [](uint64_t seed) {
    TestContext test;
    std::string text;
    llvm::raw_string_ostream(text) << *Generator(&test.context, seed).run();
    return text;
  };
  for (uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(print(seed), print(seed));
  EXPECT_NE(print(0), print(1));
}

/// Every operation with a sharding rule is generated, so that every rule is
/// tested.
TEST(RandomProgram, HasEveryOperationWithARule) {
  TestContext test;
  Coverage coverage;
  for (int64_t number = 0; number < 4000; ++number)
    coverage.note(*Generator(&test.context, caseSeed(kSeed, number)).run());
  EXPECT_EQ(coverage.unseen(&test.context), "");
}

/// Randomly reorders the operations of a body.
void reorder(Block &body, Random &random) {
  SmallVector<Operation *> waiting;
  for (Operation &op : body.without_terminator())
    waiting.push_back(&op);
  Operation *terminator = body.getTerminator();
  for (Operation *op : waiting)
    op->remove();
  auto isThere = [&](Value value) {
    Operation *op = value.getDefiningOp();
    return !op || op->getBlock();
  };
  while (!waiting.empty()) {
    // The operations whose operands have already been placed.
    SmallVector<size_t> ready;
    for (auto [index, op] : llvm::enumerate(waiting)) {
      bool isReady = llvm::all_of(op->getOperands(), isThere);
      for (Region &region : op->getRegions())
        region.walk([&](Operation *inner) {
          isReady &= llvm::all_of(inner->getOperands(), isThere);
        });
      if (isReady)
        ready.push_back(index);
    }
    size_t index = random.pick(ready);
    body.getOperations().insert(terminator->getIterator(), waiting[index]);
    waiting.erase(waiting.begin() + index);
  }
}

OwningOpRef<ModuleOp> reordered(ModuleOp program, Random &random) {
  OwningOpRef<ModuleOp> copy = program.clone();
  for (auto func : copy->getOps<func::FuncOp>())
    reorder(func.getBody().front(), random);
  return copy;
}

/// Returns the shardings after propagation, by position in the program.
std::map<std::string, Attribute> propagated(ModuleOp module) {
  PassManager passes(module.getContext());
  passes.addPass(createDistPropagatePass());
  EXPECT_TRUE(succeeded(passes.run(module)));
  std::map<std::string, Attribute> found;
  for (const partition::Port &port : partition::portsOf(module)) {
    func::FuncOp func = port.func;
    found[(func.getName() + (port.isResult ? " result " : " argument ") +
           Twine(port.index))
              .str()] = port.sharding();
  }
  module.walk([&](Operation *op) {
    if (Attribute sharding = op->getAttr(dist::kShardingAttrName))
      found[cast<NameLoc>(op->getLoc()).getName().str()] = sharding;
  });
  return found;
}

TEST(Propagation, DoesNotDependOnTheOrderOfOperations) {
  TestContext test;
  Random random(7);
  int64_t moved = 0;
  for (int64_t number = 0; number < 500; ++number) {
    OwningOpRef<ModuleOp> program =
        Generator(&test.context, caseSeed(kSeed, number)).run();
    int64_t place = 0;
    program->walk([&](Operation *op) {
      op->setLoc(NameLoc::get(
          StringAttr::get(&test.context, "op " + std::to_string(place++))));
    });
    OwningOpRef<ModuleOp> other = reordered(*program, random);
    std::string before, after;
    llvm::raw_string_ostream(before) << *program;
    llvm::raw_string_ostream(after) << *other;
    moved += before != after;
    ASSERT_EQ(propagated(*program), propagated(*other)) << before;
  }
  EXPECT_GT(moved, 250);
}

class PlantedBug : public testing::TestWithParam<size_t> {};

/// The bug changes the result but leaves valid IR. The test
/// MostAreRefusedByTheProof below covers the bugs that dist-verify-variance
/// must find.
TEST_P(PlantedBug, IsFound) {
  TestContext test;
  Runner comparing(&test.context, /*prove=*/false);
  const Bug &bug = plantedBugs()[GetParam()];
  Found comparison = huntBug(bug, comparing, kSeed, 2000);
  EXPECT_GE(comparison.number, 0) << bug.description;
  RecordProperty("comparison", std::to_string(comparison.number));
}

INSTANTIATE_TEST_SUITE_P(Planted, PlantedBug,
                         testing::Range<size_t>(0, plantedBugs().size()),
                         [](const testing::TestParamInfo<size_t> &info) {
                           std::string name = plantedBugs()[info.param].name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(PlantedBugs, MostAreRefusedByTheProof) {
  TestContext test;
  Runner proving(&test.context);
  // dist-verify-variance must find these bugs. The bugs that are not in this
  // list keep the variance of each value (such as replicated or partial) valid,
  // so only the comparison of results can find them.
  for (const char *name :
       {"lost-all-reduce", "wrong-axis", "max-for-sum", "slice-before-reduce",
        "keep-first-dropped", "reduce-after-non-linear", "partial-twice",
        "needed-whole", "pad-unmasked", "mask-dropped", "wrong-identity",
        "mask-by-one", "mask-dimension", "indices-unguarded",
        "offset-forgotten", "offset-by-one"}) {
    const Bug *bug = llvm::find_if(
        plantedBugs(), [&](const Bug &b) { return b.name == StringRef(name); });
    ASSERT_NE(bug, plantedBugs().end()) << name;
    EXPECT_GE(huntBug(*bug, proving, kSeed, 500).number, 0) << name;
  }
}

/// A program with a dropped all-reduce shrinks to the operations around that
/// sum, and the file that is written fails in the same way.
TEST(Shrinking, LeavesWhatFails) {
  TestContext test;
  Runner runner(&test.context, /*prove=*/false);
  const Bug *bug = llvm::find_if(plantedBugs(), [](const Bug &b) {
    return b.name == StringRef("lost-all-reduce");
  });
  int64_t tried = 0;
  for (int64_t number = 0; number < 100 && tried < 5; ++number) {
    uint64_t seed = caseSeed(kSeed, number);
    OwningOpRef<ModuleOp> program = Generator(&test.context, seed).run();
    Outcome outcome = runner.run(*program, seed, nullptr, bug);
    if (outcome.kind != Outcome::WrongResult)
      continue;
    ++tried;
    OwningOpRef<ModuleOp> small =
        reduce::shrink(*program, [&](ModuleOp candidate) {
          return runner.run(candidate, seed, nullptr, bug).kind ==
                 Outcome::WrongResult;
        });
    std::string text;
    llvm::raw_string_ostream(text) << *small;
    OwningOpRef<ModuleOp> parsed =
        parseSourceString<ModuleOp>(text, &test.context);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(runner.run(*parsed, seed, nullptr, bug).kind,
              Outcome::WrongResult)
        << text;
    int64_t ops = 0;
    for (auto func : parsed->getOps<func::FuncOp>())
      func.walk([&](Operation *) { ++ops; });
    EXPECT_LE(ops, 5) << text; // the function, its return, a few operations
  }
  EXPECT_EQ(tried, 5);
}

} // namespace
