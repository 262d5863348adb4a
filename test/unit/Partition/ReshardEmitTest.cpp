// Tests reshards as the partitioner emits them. The values are partial sums, or
// candidates for maxima or minima; some reshards change the kind of reduction.
// Tests that dist-verify-variance accepts the reshards, and tests what the
// interpreter computes on all ranks.

#include "Context.h"

#include "../../../lib/Partition/Reshard/ReshardExhaustive.h"

#include "cleave/Interpreter/Interpreter.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Utils/PortTable.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <random>
#include <set>

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// Makes the partial values of each rank. The partial sums of an element are
/// distinct. Of a maximum or minimum, one candidate is the element's value and
/// the other candidates are worse.
RankTensors termsOf(const Tensor &whole, const MeshAxes &mesh,
                    const Layout &layout) {
  RankTensors tiles =
      shardTensor(whole, mesh.mesh(), mesh.sharding(layout.reduced()));
  int64_t terms = mesh.size(layout.partial);
  AxisListAttr axes = mesh.list(layout.partial);
  for (auto [rank, tile] : llvm::enumerate(tiles)) {
    int64_t term = groupIndex(mesh.mesh(), axes.getAxes(), rank);
    for (int64_t i = 0; terms > 1 && i < tile.size(); ++i) {
      double &value = tile.floats[i];
      if (layout.kind == ReduceKind::Sum)
        value = term ? term + (value - value) : value - terms * (terms - 1) / 2;
      else if (i % terms != term)
        value += layout.kind == ReduceKind::Max ? -1 - term : 1 + term;
    }
  }
  return tiles;
}

TEST(ReshardEmit, OtherReductions) {
  TestContext test;
  std::mt19937 random(5);
  const ReduceKind kinds[] = {ReduceKind::Sum, ReduceKind::Max,
                              ReduceKind::Min};
  // The pairs of reduction kinds (before, after) of all reshards that were
  // tested.
  std::set<std::pair<ReduceKind, ReduceKind>> seen;
  int64_t collectives = 0, exchanges = 0;
  for (const std::vector<int64_t> &sizes :
       std::vector<std::vector<int64_t>>{{3}, {2, 2}, {2, 3}, {2, 2, 2}}) {
    std::string meshText;
    for (auto [index, size] : llvm::enumerate(sizes))
      meshText += (index ? ", \"" : "\"") + std::string(1, char('a' + index)) +
                  "\"=" + std::to_string(size);
    OwningOpRef<ModuleOp> empty = parseSourceString<ModuleOp>(
        "dist.mesh @m <[" + meshText + "]>", &test.context);
    ASSERT_TRUE(empty) << test.diagnostics;
    MeshAxes mesh = *MeshAxes::of(*empty);
    for (unsigned rank = 1; rank <= 2; ++rank) {
      std::vector<Layout> layouts = layoutsOf(mesh, rank, SIZE_MAX);
      for (int k = 0; k < 60; ++k) {
        Layout from = layouts[random() % layouts.size()],
               to = layouts[random() % layouts.size()];
        if (from.partial)
          from.kind = kinds[random() % 3];
        if (to.partial)
          to.kind = kinds[random() % 3];
        if (from == to || !(from.partial | to.partial))
          continue;
        std::string type = "tensor<", text;
        for (unsigned dim = 0; dim < rank; ++dim)
          type += std::to_string(1 + random() % 13) + "x";
        type += "f64>";
        llvm::raw_string_ostream(text)
            << "dist.mesh @m <[" << meshText << "]>\nfunc.func @f(%x: " << type
            << " {dist.sharding = " << mesh.sharding(from) << "}) -> (" << type
            << " {dist.sharding = " << mesh.sharding(to)
            << "}) {\n  return %x : " << type << "\n}\n";
        SCOPED_TRACE(text);
        test.diagnostics.clear();
        OwningOpRef<ModuleOp> module =
            parseSourceString<ModuleOp>(text, &test.context);
        ASSERT_TRUE(module) << test.diagnostics;
        auto func = *module->getOps<func::FuncOp>().begin();
        Tensor whole(cast<RankedTensorType>(func.getArgumentTypes()[0]));
        for (int64_t i = 0; i < whole.size(); ++i)
          whole.floats[i] = double(i * 7 % 31) - 11;
        PassManager passes(&test.context);
        buildPartitionPipeline(passes);
        ASSERT_TRUE(succeeded(passes.run(*module))) << test.diagnostics;
        std::string printed;
        llvm::raw_string_ostream(printed) << *module;
        SCOPED_TRACE(printed);
        module->walk([&](CollectiveOpInterface op) {
          ++collectives;
          exchanges += isa<ExchangeOp>(op.getOperation());
          seen.insert({from.partial ? from.kind : ReduceKind::Sum,
                       to.partial ? to.kind : ReduceKind::Sum});
        });
        func = *module->getOps<func::FuncOp>().begin();
        EXPECT_EQ((Port{func, false, 0}.sharding()), mesh.sharding(from));
        EXPECT_EQ((Port{func, true, 0}.sharding()), mesh.sharding(to));
        auto result =
            interpretRanks(func, mesh.mesh(), {termsOf(whole, mesh, from)});
        ASSERT_TRUE(succeeded(result)) << test.diagnostics;
        Assembled got = assembleTensor((*result)[0], whole.type, mesh.mesh(),
                                       mesh.sharding(to));
        EXPECT_EQ(got.replicaDifference, 0);
        EXPECT_EQ(got.whole.floats, whole.floats);
      }
    }
  }
  EXPECT_EQ(seen.size(), 9u);
  EXPECT_GT(collectives, 300);
  EXPECT_GT(exchanges, 50);
}

} // namespace
