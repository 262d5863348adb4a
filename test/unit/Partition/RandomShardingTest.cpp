// Compares programs under random shardings in the interpreter: the
// unpartitioned function on one device with the per-rank program on all ranks.
// Sizes leave remainders, padding is poisoned, and dimensions are sharded over
// several axes and over sub-axes.
//
// A failure prints the program with its shardings; this text can be added as a
// test case.

#include "Context.h"
#include "RandomShardingCases.h"

#include "cleave/Interpreter/Interpreter.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Utils/PortTable.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <random>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::test;

namespace {

using Random = std::mt19937_64;

int64_t draw(Random &random, int64_t below) { return random() % below; }

/// Returns a random sharding, as text, for a tensor of `rank` dimensions.
std::string randomSharding(Random &random, int64_t rank, bool mayBePartial,
                           ArrayRef<std::string> axes) {
  std::vector<std::vector<std::string>> dims(rank);
  std::vector<std::string> partial;
  std::vector<std::string> shuffled(axes.begin(), axes.end());
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  for (const std::string &axis : shuffled) {
    int64_t place = draw(random, 2 * rank + 2);
    if (place < rank)
      dims[place].push_back(axis);
    else if (place == 2 * rank + 1 && mayBePartial)
      partial.push_back(axis);
  }
  std::string text = "#dist.sharding<@m, [";
  for (int64_t dim = 0; dim < rank; ++dim) {
    text += dim ? ", {" : "{";
    for (size_t i = 0; i < dims[dim].size(); ++i)
      text += (i ? ", " : "") + dims[dim][i];
    if (draw(random, 3) == 0)
      text += dims[dim].empty() ? "?" : ", ?";
    text += "}";
  }
  text += "]";
  if (!partial.empty()) {
    text += ", partial = sum{";
    for (size_t i = 0; i < partial.size(); ++i)
      text += (i ? ", " : "") + partial[i];
    text += "}";
  }
  return text + ">";
}

struct MeshCase {
  const char *mesh;
  std::vector<std::string> axes;
};

std::vector<MeshCase> meshes() {
  return {{"\"x\"=2", {"\"x\""}},
          {"\"x\"=3", {"\"x\""}},
          {"\"x\"=4", {"\"x\":(1)2", "\"x\":(2)2"}},
          {"\"x\"=2, \"y\"=3", {"\"x\"", "\"y\""}},
          {"\"x\"=2, \"y\"=2, \"z\"=2", {"\"x\"", "\"y\"", "\"z\""}}};
}

Tensor randomTensor(Random &random, RankedTensorType type, int64_t limit) {
  Tensor tensor(type);
  for (double &value : tensor.floats)
    value = double(draw(random, 2001) - 1000) / 500;
  for (int64_t &value : tensor.ints)
    value = draw(random, limit);
  return tensor;
}

class RandomSharding : public testing::TestWithParam<size_t> {};

std::string program(const ShardingCase &c, const MeshCase &mesh,
                    Random &random) {
  std::string text =
      std::string("dist.mesh @m <[") + mesh.mesh + "]>\nfunc.func @f(";
  auto rankOf = [](StringRef type) { return int64_t(type.count('x')); };
  for (size_t i = 0; i < c.arguments.size(); ++i) {
    StringRef type = c.arguments[i];
    bool isFloat = type.ends_with("f64");
    text += (i ? ", %" : "%") + std::string(1, 'a' + i) + ": tensor<" +
            type.str() + ">";
    if (draw(random, 4) != 0)
      text += " {dist.sharding = " +
              randomSharding(random, rankOf(type), isFloat, mesh.axes) + "}";
  }
  text += ") -> (";
  for (size_t i = 0; i < c.results.size(); ++i) {
    StringRef type = c.results[i];
    bool isFloat = type.ends_with("f64");
    text += (i ? ", tensor<" : "tensor<") + type.str() + ">";
    if (draw(random, 2) != 0)
      text += " {dist.sharding = " +
              randomSharding(random, rankOf(type), isFloat, mesh.axes) + "}";
  }
  text += std::string(") {\n") + c.body + "\n        return ";
  for (size_t i = 0; i < c.results.size(); ++i)
    text += (i ? ", %y" : "%y") + std::to_string(i);
  text += " : ";
  for (size_t i = 0; i < c.results.size(); ++i)
    text += (i ? ", tensor<" : "tensor<") + std::string(c.results[i]) + ">";
  return text + "\n}\n";
}

TEST_P(RandomSharding, AgreesWithOneDevice) {
  ShardingCase c = shardingCases()[GetParam()];
  TestContext test;
  MLIRContext &context = test.context;
  std::string &diagnostics = test.diagnostics;

  int64_t count = 40;
  if (const char *more = std::getenv("CLEAVE_RANDOM_SHARDINGS"))
    count = std::atoll(more);
  Random random(1234 + GetParam());
  for (int64_t trial = 0; trial < count; ++trial) {
    MeshCase mesh = meshes()[trial % meshes().size()];
    std::string text = program(c, mesh, random);
    SCOPED_TRACE(text);
    diagnostics.clear();
    OwningOpRef<ModuleOp> global = parseSourceString<ModuleOp>(text, &context);
    ASSERT_TRUE(global) << diagnostics;
    func::FuncOp whole = *global->getOps<func::FuncOp>().begin();
    std::vector<Tensor> arguments;
    for (Type type : whole.getArgumentTypes())
      arguments.push_back(
          randomTensor(random, cast<RankedTensorType>(type), c.limit));
    FailureOr<std::vector<Tensor>> expected = interpret(whole, arguments);
    ASSERT_TRUE(succeeded(expected)) << diagnostics;

    OwningOpRef<ModuleOp> local = global->clone();
    PassManager passes(&context);
    buildPartitionPipeline(passes);
    ASSERT_TRUE(succeeded(passes.run(*local))) << diagnostics;
    func::FuncOp part = *local->getOps<func::FuncOp>().begin();
    MeshAttr meshAttr = (*local->getOps<MeshOp>().begin()).getMesh();
    std::vector<RankTensors> tiles;
    for (unsigned i = 0; i < arguments.size(); ++i)
      tiles.push_back(shardTensor(arguments[i], meshAttr,
                                  partition::Port{part, false, i}.sharding()));
    auto actual = interpretRanks(part, meshAttr, tiles);
    ASSERT_TRUE(succeeded(actual)) << diagnostics;
    std::string printed;
    llvm::raw_string_ostream(printed) << *local;
    SCOPED_TRACE(printed);
    for (unsigned i = 0; i < expected->size(); ++i) {
      const Tensor &want = (*expected)[i];
      Assembled got = assembleTensor((*actual)[i], want.type, meshAttr,
                                     partition::Port{part, true, i}.sharding());
      EXPECT_EQ(got.replicaDifference, 0) << "result " << i;
      for (int64_t at = 0; at < want.size(); ++at) {
        if (!want.isFloat()) {
          ASSERT_EQ(got.whole.ints[at], want.ints[at])
              << "result " << i << " at " << at;
          continue;
        }
        double a = got.whole.floats[at], b = want.floats[at];
        ASSERT_TRUE(std::abs(a - b) <= 1e-10 * std::max(1.0, std::abs(b)))
            << "result " << i << " at " << at << ": " << a << ", expected "
            << b;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, RandomSharding,
                         testing::Range<size_t>(0, shardingCases().size()),
                         [](const testing::TestParamInfo<size_t> &info) {
                           return std::string(shardingCases()[info.param].name);
                         });

} // namespace
