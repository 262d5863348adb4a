//===- Combine.cpp - dist-combine -----------------------------------------===//
//
// Reduces the number and the size of collectives in per-rank programs: replaces
// an all-reduce by a reduce-scatter if each rank reads only its tile of the
// result, removes pairs of operations that cancel, and merges equal
// collectives.
//
//===----------------------------------------------------------------------===//

#include "cleave/Dialect/Dist/IR/Padding.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Propagation/FactorGraph.h"
#include "cleave/Support/ValueUtils.h"
#include "mlir/IR/PatternMatch.h"

namespace cleave {
#define GEN_PASS_DEF_DISTCOMBINEPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

namespace {

/// If every reader of an all-reduce takes only the rank's own slice, over the
/// same axes and along one dimension that divides evenly, the all-reduce
/// becomes a reduce-scatter.
void scatterReductions(Block &block, MeshAttr mesh) {
  SmallVector<AllReduceOp> reductions(block.getOps<AllReduceOp>());
  for (AllReduceOp reduce : reductions) {
    if (reduce.getNumOperands() != 1 || reduce->getResult(0).use_empty())
      continue;
    SmallVector<dist::SliceOp> slices;
    for (Operation *user : reduce->getResult(0).getUsers()) {
      auto slice = dyn_cast<dist::SliceOp>(user);
      if (!slice || slice.getAxes() != reduce.getAxes() ||
          (!slices.empty() && slices[0].getDim() != slice.getDim()))
        break;
      slices.push_back(slice);
    }
    auto type = typeOf(reduce->getResult(0));
    int64_t ways = axesSize(mesh, reduce.getAxes().getAxes());
    if (slices.empty() ||
        size_t(std::distance(reduce->getResult(0).use_begin(),
                             reduce->getResult(0).use_end())) !=
            slices.size() ||
        type.getDimSize(slices[0].getDim()) % ways != 0)
      continue;
    OpBuilder builder(reduce);
    auto scatter = ReduceScatterOp::create(
        builder, reduce.getLoc(), TypeRange{slices[0].getType()},
        reduce.getKindAttr(), reduce.getInputs(),
        builder.getDenseI64ArrayAttr({int64_t(slices[0].getDim())}),
        reduce.getMeshAttr(), reduce.getAxes(), reduce.getPurposeAttr());
    setPadding(scatter, paddingOf(reduce));
    for (dist::SliceOp slice : slices) {
      slice.replaceAllUsesWith(scatter->getResult(0));
      slice.erase();
    }
    reduce.erase();
  }
}

/// Removes two kinds of pairs of operations that cancel: a gather followed by a
/// slice of the rank's own tile, and a slice followed by the gather of the same
/// tiles.
void cancelInverses(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (auto slice = dyn_cast<dist::SliceOp>(op)) {
      auto gather = slice.getInput().getDefiningOp<AllGatherOp>();
      if (!gather || gather.getNumOperands() != 1 ||
          gather.getAxes() != slice.getAxes() ||
          gather.getDims()[0] != int64_t(slice.getDim()) ||
          gather.getInputs()[0].getType() != slice.getType())
        continue;
      slice.replaceAllUsesWith(gather.getInputs()[0]);
      slice.erase();
      if (gather->use_empty())
        gather.erase();
    } else if (auto gather = dyn_cast<AllGatherOp>(op)) {
      if (gather.getNumOperands() != 1)
        continue;
      auto slice = gather.getInputs()[0].getDefiningOp<dist::SliceOp>();
      // A slice and the gather of its tiles cancel only if the sliced value is
      // the same on all ranks of the group. This is certain if a gather or an
      // all-reduce over the same axes has computed the value.
      Operation *source = slice ? slice.getInput().getDefiningOp() : nullptr;
      bool alike = false;
      if (auto reduce = dyn_cast_or_null<AllReduceOp>(source))
        alike = reduce.getAxes() == slice.getAxes();
      else if (auto whole = dyn_cast_or_null<AllGatherOp>(source))
        alike = whole.getAxes() == slice.getAxes();
      if (!alike || gather.getAxes() != slice.getAxes() ||
          gather.getDims()[0] != int64_t(slice.getDim()) ||
          gather->getResult(0).getType() != slice.getInput().getType())
        continue;
      gather->getResult(0).replaceAllUsesWith(slice.getInput());
      gather.erase();
      if (slice->use_empty())
        slice.erase();
    }
  }
}

/// Merges equal collectives on equal operands. Merging does not keep a gathered
/// value alive from the forward to the backward pass, because the backward pass
/// reads the saved operand, which is another value.
void shareEqual(Block &block) {
  llvm::DenseMap<std::pair<Value, Attribute>, Operation *> seen;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (!isa<CollectiveOpInterface>(op) || op.getNumOperands() != 1)
      continue;
    SmallVector<NamedAttribute> attrs(op.getAttrs());
    attrs.emplace_back(StringAttr::get(op.getContext(), "op"),
                       op.getName().getIdentifier());
    attrs.emplace_back(StringAttr::get(op.getContext(), "type"),
                       TypeAttr::get(op.getResult(0).getType()));
    auto [at, isNew] = seen.insert(
        {{op.getOperand(0), DictionaryAttr::get(op.getContext(), attrs)}, &op});
    if (isNew)
      continue;
    op.replaceAllUsesWith(at->second);
    op.erase();
  }
}

struct DistCombinePass : cleave::impl::DistCombinePassBase<DistCombinePass> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<MeshAxes> mesh = MeshAxes::of(getOperation());
    if (failed(mesh))
      return signalPassFailure();
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      if (func.isExternal())
        continue;
      // Blocks of loops and branches are included. No erased operation has
      // regions, so the list of blocks stays valid.
      SmallVector<Block *> blocks;
      func.walk([&](Block *block) { blocks.push_back(block); });
      for (Block *block : blocks) {
        cancelInverses(*block);
        scatterReductions(*block, mesh->mesh());
        shareEqual(*block);
      }
    }
  }
};

} // namespace
