// Describes the data movement of collectives.

#include "CollectivePattern.h"

#include "cleave/Dialect/Dist/IR/Exchange.h"
#include "cleave/Support/ValueUtils.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave;

static rt::Reduce reduceOf(dist::ReduceKind kind) {
  return kind == dist::ReduceKind::Sum   ? rt::Reduce::Sum
         : kind == dist::ReduceKind::Max ? rt::Reduce::Max
                                         : rt::Reduce::Min;
}

/// Operands are moved as a whole.
static void addWholeLayouts(CollectivePattern &pattern, ValueRange values) {
  for (Value value : values) {
    int64_t count = typeOf(value).getNumElements();
    pattern.layouts.push_back({1, count, 1, count});
  }
}

/// Adds the layout of each tile of a collective that concatenates tiles along a
/// dimension. A layout has two dimensions: all tile dimensions before the
/// concatenated one, merged, and the rest, merged.
static void addTileLayouts(CollectivePattern &pattern, ValueRange tiles,
                           ArrayRef<int64_t> dims) {
  for (auto [tile, dim] : llvm::zip(tiles, dims)) {
    ArrayRef<int64_t> shape = typeOf(tile).getShape();
    int64_t outer = llvm::product_of(shape.take_front(dim)),
            inner = llvm::product_of(shape.drop_front(dim));
    pattern.layouts.push_back({outer, inner, outer, inner});
  }
}

static CollectivePattern allReduce(dist::AllReduceOp op) {
  CollectivePattern pattern{rt::CollectiveKind::AllReduce};
  pattern.reduce = reduceOf(op.getKind());
  addWholeLayouts(pattern, op->getOperands());
  return pattern;
}

static CollectivePattern allGather(dist::AllGatherOp op) {
  CollectivePattern pattern{rt::CollectiveKind::AllGather};
  addTileLayouts(pattern, op->getOperands(), op.getDims());
  return pattern;
}

static CollectivePattern reduceScatter(dist::ReduceScatterOp op) {
  CollectivePattern pattern{rt::CollectiveKind::ReduceScatter};
  pattern.reduce = reduceOf(op.getKind());
  addTileLayouts(pattern, op->getResults(), op.getDims());
  return pattern;
}

/// Returns the pattern of an all-to-all. A block is the data that one member
/// sends to another. The block's outer dimensions are those before the split
/// dimension at the sender, and those before the concatenated dimension at the
/// receiver.
static CollectivePattern allToAll(dist::AllToAllOp op, int64_t members) {
  CollectivePattern pattern{rt::CollectiveKind::AllToAll};
  for (unsigned i = 0; i < op->getNumOperands(); ++i) {
    int64_t splitDim = op.getSplitDims()[i];
    int64_t concatDim = op.getConcatDims()[i];
    ArrayRef<int64_t> from = typeOf(op->getOperand(i)).getShape();
    ArrayRef<int64_t> to = typeOf(op->getResult(i)).getShape();
    int64_t outer = llvm::product_of(from.take_front(splitDim));
    int64_t dstOuter = llvm::product_of(to.take_front(concatDim));
    int64_t block = llvm::product_of(from) / members;
    pattern.layouts.push_back(
        {outer, block / outer, dstOuter, block / dstOuter});
  }
  return pattern;
}

static CollectivePattern permute(dist::CollectivePermuteOp op,
                                 int64_t members) {
  CollectivePattern pattern{rt::CollectiveKind::Permute};
  addWholeLayouts(pattern, op->getOperands());
  pattern.sources.assign(members, -1);
  ArrayRef<int64_t> pairs = op.getPairs();
  for (size_t i = 0; i + 1 < pairs.size(); i += 2)
    pattern.sources[pairs[i + 1]] = pairs[i];
  return pattern;
}

static FailureOr<CollectivePattern> exchange(dist::ExchangeOp op,
                                             dist::MeshAttr mesh) {
  CollectivePattern pattern{rt::CollectiveKind::Exchange};
  bool reduces = false;
  for (unsigned i = 0; i < op->getNumOperands(); ++i) {
    auto from = cast<dist::ShardingAttr>(op.getFrom()[i]);
    auto to = cast<dist::ShardingAttr>(op.getTo()[i]);
    auto whole = cast<TypeAttr>(op.getGlobal()[i]).getValue();
    pattern.layouts.push_back({1, typeOf(op->getOperand(i)).getNumElements(), 1,
                               typeOf(op->getResult(i)).getNumElements()});
    pattern.exchanges.push_back(dist::describeExchange(
        mesh, op.getAxes().getAxes(), from, to,
        cast<RankedTensorType>(whole).getShape(), op.getRounds()));
    if (pattern.exchanges.back().partial.empty())
      continue;
    // All operands of one command must have the same reduction.
    rt::Reduce kind = reduceOf(from.getPartialKind());
    if (reduces && kind != pattern.reduce)
      return op.emitOpError("reduces its operands in different ways");
    reduces = true;
    pattern.reduce = kind;
  }
  return pattern;
}

FailureOr<CollectivePattern> cleave::patternOf(dist::CollectiveOpInterface op,
                                               dist::MeshAttr mesh,
                                               int64_t members) {
  using Result = FailureOr<CollectivePattern>;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case([](dist::AllReduceOp op) { return Result(allReduce(op)); })
      .Case([](dist::AllGatherOp op) { return Result(allGather(op)); })
      .Case([](dist::ReduceScatterOp op) { return Result(reduceScatter(op)); })
      .Case([&](dist::AllToAllOp op) { return Result(allToAll(op, members)); })
      .Case([&](dist::CollectivePermuteOp op) {
        return Result(permute(op, members));
      })
      .Case([&](dist::ExchangeOp op) { return exchange(op, mesh); })
      .Default([](Operation *op) -> Result {
        return op->emitOpError("has no command that performs it");
      });
}
