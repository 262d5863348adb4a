// A fixed slice of the random programs (cleave-random-programs runs as many as
// one likes), and what the search itself is worth: planted bugs are found, and
// what fails shrinks to a program that a person can read.

#include "Context.h"
#include "Random/Bugs.h"
#include "Random/Shrink.h"

#include "cleave/Partition/Passes.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <map>

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

constexpr uint64_t kSeed = 1;

/// A quarter of the slice, so that they run side by side.
class RandomPrograms : public testing::TestWithParam<int64_t> {};

TEST_P(RandomPrograms, AgreeWithOneDevice) {
  constexpr int64_t kCases = 1000;
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

/// The program with its operations in another order.
OwningOpRef<ModuleOp> reordered(ModuleOp program, Random &random) {
  OwningOpRef<ModuleOp> copy = program.clone();
  Block &body = (*copy->getOps<func::FuncOp>().begin()).getBody().front();
  SmallVector<Operation *> waiting;
  for (Operation &op : body.without_terminator())
    waiting.push_back(&op);
  Operation *terminator = body.getTerminator();
  for (Operation *op : waiting)
    op->remove();
  while (!waiting.empty()) {
    // Any operation whose operands are there.
    SmallVector<size_t> ready;
    for (auto [index, op] : llvm::enumerate(waiting))
      if (llvm::all_of(op->getOperands(), [](Value operand) {
            return !operand.getDefiningOp() || operand.getDefiningOp()->getBlock();
          }))
        ready.push_back(index);
    size_t index = random.pick(ready);
    body.getOperations().insert(terminator->getIterator(), waiting[index]);
    waiting.erase(waiting.begin() + index);
  }
  return copy;
}

/// The shardings that propagation gives, by place.
std::map<std::string, Attribute> propagated(ModuleOp module) {
  PassManager passes(module.getContext());
  passes.addPass(createDistPropagatePass());
  EXPECT_TRUE(succeeded(passes.run(module)));
  std::map<std::string, Attribute> found;
  auto func = *module.getOps<func::FuncOp>().begin();
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    found["argument " + std::to_string(i)] = func.getArgAttr(i, dist::kShardingAttrName);
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    found["result " + std::to_string(i)] = func.getResultAttr(i, dist::kShardingAttrName);
  for (Operation &op : func.getBody().front().without_terminator())
    if (Attribute sharding = op.getAttr(dist::kShardingAttrName))
      found[cast<NameLoc>(op.getLoc()).getName().str()] = sharding;
  return found;
}

TEST(Propagation, DoesNotDependOnTheOrderOfOperations) {
  TestContext test;
  Random random(7);
  int64_t moved = 0;
  for (int64_t number = 0; number < 500; ++number) {
    OwningOpRef<ModuleOp> program = Generator(&test.context, caseSeed(kSeed, number)).run();
    auto func = *program->getOps<func::FuncOp>().begin();
    for (auto [index, op] : llvm::enumerate(func.getBody().front()))
      op.setLoc(NameLoc::get(StringAttr::get(&test.context, "op " + std::to_string(index))));
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

/// Refused by dist-verify-variance, or computing something else: not merely
/// invalid IR.
TEST_P(PlantedBug, IsFound) {
  TestContext test;
  Runner proving(&test.context), comparing(&test.context, /*prove=*/false);
  const Bug &bug = plantedBugs()[GetParam()];
  Found proof = huntBug(bug, proving, kSeed, 200);
  Found comparison = huntBug(bug, comparing, kSeed, 2000);
  EXPECT_GE(comparison.number, 0) << bug.description;
  RecordProperty("proof", std::to_string(proof.number));
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
  // Bugs of which values of the right kind come out are for the comparison.
  for (const char *name :
       {"lost-all-reduce", "wrong-axis", "max-for-sum", "slice-before-reduce",
        "keep-first-dropped", "reduce-after-non-linear", "partial-twice",
        "needed-whole"}) {
    const Bug *bug = llvm::find_if(
        plantedBugs(), [&](const Bug &b) { return b.name == StringRef(name); });
    ASSERT_NE(bug, plantedBugs().end()) << name;
    EXPECT_GE(huntBug(*bug, proving, kSeed, 200).number, 0) << name;
  }
}

/// A program with a lost sum comes down to the sum, and the file that is
/// written fails in the same way.
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
    OwningOpRef<ModuleOp> small = shrink(*program, [&](ModuleOp candidate) {
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
    (*parsed->getOps<func::FuncOp>().begin()).walk([&](Operation *) { ++ops; });
    EXPECT_LE(ops, 4) << text; // the function, its return, and two operations
  }
  EXPECT_EQ(tried, 5);
}

} // namespace
