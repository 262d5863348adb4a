// Canonicalization of nn.scan: drops what a loop carries, reads or stacks
// without need, and moves what all iterations compute alike to before the loop.

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::nn;

namespace {

/// Creates a scan with some of the operands and results of `scan`, and moves
/// the region into it. `kept` has a bit for each operand, `keptStacked` one for
/// each stacked result. The arguments of dropped operands have no uses.
ScanOp keepSome(ScanOp scan, const llvm::BitVector &kept,
                const llvm::BitVector &keptStacked, PatternRewriter &rewriter) {
  SmallVector<Value> groups[3]; // initial values, slices, captures
  size_t firstSlice = scan.getInits().size(),
         firstCapture = firstSlice + scan.getSlices().size();
  for (unsigned operand : kept.set_bits())
    groups[operand < firstSlice     ? 0
           : operand < firstCapture ? 1
                                    : 2]
        .push_back(scan->getOperand(operand));
  Operation *yield = scan.getBody()->getTerminator();
  llvm::BitVector droppedArguments = kept;
  droppedArguments.flip();
  llvm::BitVector dropped = droppedArguments;
  dropped.resize(firstSlice); // the yielded values: carried, then stacked
  SmallVector<Type> stacked;
  for (unsigned index = 0; index < keptStacked.size(); ++index) {
    dropped.push_back(!keptStacked.test(index));
    if (keptStacked.test(index))
      stacked.push_back(yield->getOperand(firstSlice + index).getType());
  }
  auto narrow =
      ScanOp::create(rewriter, scan.getLoc(), scan.getTrips(), groups[0],
                     groups[1], groups[2], stacked, scan.getReverse());
  narrow->setDiscardableAttrs(scan->getDiscardableAttrDictionary());
  rewriter.modifyOpInPlace(yield, [&] { yield->eraseOperands(dropped); });
  scan.getBody()->eraseArguments(droppedArguments);
  rewriter.eraseBlock(narrow.getBody());
  rewriter.inlineRegionBefore(scan.getRegion(), narrow.getRegion(),
                              narrow.getRegion().end());
  unsigned next = 0;
  for (OpResult result : scan.getResults())
    if (!dropped.test(result.getResultNumber()))
      rewriter.replaceAllUsesWith(result, narrow.getResult(next++));
  rewriter.eraseOp(scan);
  return narrow;
}

/// Drops slices and captures that the region does not read, and stacked results
/// that nothing reads.
struct DropUnread : OpRewritePattern<ScanOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ScanOp scan,
                                PatternRewriter &rewriter) const override {
    llvm::BitVector kept(scan->getNumOperands(), true),
        keptStacked(scan.getStacked().size(), true);
    for (BlockArgument argument : scan.getBody()->getArguments())
      if (argument.use_empty() &&
          argument.getArgNumber() >= scan.getInits().size())
        kept.reset(argument.getArgNumber());
    for (auto [index, result] : llvm::enumerate(scan.getStacked()))
      if (result.use_empty())
        keptStacked.reset(index);
    if (kept.all() && keptStacked.all())
      return failure();
    keepSome(scan, kept, keptStacked, rewriter);
    return success();
  }
};

/// Reads an operand that is passed several times, as a slice or as a capture,
/// by the argument of the first.
struct ReadOnce : OpRewritePattern<ScanOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ScanOp scan,
                                PatternRewriter &rewriter) const override {
    bool changed = false;
    auto merge = [&](OperandRange operands, ArrayRef<BlockArgument> arguments) {
      llvm::DenseMap<Value, Value> first;
      for (auto [operand, argument] : llvm::zip_equal(operands, arguments)) {
        auto [it, isNew] = first.try_emplace(operand, argument);
        if (isNew || argument.use_empty())
          continue;
        rewriter.replaceAllUsesWith(argument, it->second);
        changed = true;
      }
    };
    merge(scan.getSlices(), scan.getSliceArguments());
    merge(scan.getCaptures(), scan.getCaptureArguments());
    return success(changed);
  }
};

/// Makes a capture of a carried value that no iteration changes.
struct CaptureUnchanged : OpRewritePattern<ScanOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ScanOp scan,
                                PatternRewriter &rewriter) const override {
    llvm::BitVector kept(scan->getNumOperands(), true);
    for (auto [argument, yielded] :
         llvm::zip_equal(scan.getCarriedArguments(), scan.getYieldedCarries()))
      if (argument == yielded)
        kept.reset(argument.getArgNumber());
    if (kept.all())
      return failure();
    for (unsigned operand = 0; operand < scan.getInits().size(); ++operand) {
      if (kept.test(operand))
        continue;
      Value init = scan.getInits()[operand];
      rewriter.replaceAllUsesWith(scan.getResult(operand), init);
      BlockArgument argument = scan.getBody()->getArgument(operand);
      rewriter.modifyOpInPlace(scan,
                               [&] { scan.getCapturesMutable().append(init); });
      kept.push_back(true);
      Value capture =
          scan.getBody()->addArgument(init.getType(), init.getLoc());
      rewriter.replaceAllUsesWith(argument, capture);
    }
    keepSome(scan, kept, llvm::BitVector(scan.getStacked().size(), true),
             rewriter);
    return success();
  }
};

/// Moves an operation that reads only captures and constants to before the
/// loop, which captures its result. Operations with a result larger than each
/// of their operands (such as nn.broadcast) stay: their result would be stored
/// before the loop, while an iteration usually computes it in a fused kernel.
struct HoistInvariant : OpRewritePattern<ScanOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ScanOp scan,
                                PatternRewriter &rewriter) const override {
    size_t firstCapture = scan.getInits().size() + scan.getSlices().size();
    auto isCapture = [&](Value value) {
      auto argument = dyn_cast<BlockArgument>(value);
      return argument && argument.getArgNumber() >= firstCapture;
    };
    auto isConstant = [](Value value) {
      Operation *def = value.getDefiningOp();
      return def && def->hasTrait<OpTrait::ConstantLike>();
    };
    auto isInvariant = [&](Operation &op) {
      return isPure(&op) && op.getNumRegions() == 0 &&
             llvm::any_of(op.getOperands(), isCapture) &&
             llvm::all_of(op.getOperands(), [&](Value value) {
               return isCapture(value) || isConstant(value);
             });
    };
    auto elements = [](Value value) {
      return cast<RankedTensorType>(value.getType()).getNumElements();
    };
    for (Operation &op : scan.getBody()->without_terminator()) {
      if (!isInvariant(op))
        continue;
      int64_t largest = 0;
      for (Value operand : op.getOperands())
        largest = std::max(largest, elements(operand));
      if (llvm::any_of(op.getResults(),
                       [&](Value v) { return elements(v) > largest; }))
        continue;
      hoist(scan, op, isCapture, rewriter);
      return success();
    }
    return failure();
  }

  static void hoist(ScanOp scan, Operation &op,
                    llvm::function_ref<bool(Value)> isCapture,
                    PatternRewriter &rewriter) {
    rewriter.setInsertionPoint(scan);
    IRMapping outside;
    for (Value operand : op.getOperands())
      if (isCapture(operand))
        outside.map(operand, scan->getOperand(
                                 cast<BlockArgument>(operand).getArgNumber()));
      else
        rewriter.clone(*operand.getDefiningOp(), outside);
    Operation *moved = rewriter.clone(op, outside);
    rewriter.modifyOpInPlace(
        scan, [&] { scan.getCapturesMutable().append(moved->getResults()); });
    SmallVector<Value> captures;
    for (Value result : moved->getResults())
      captures.push_back(
          scan.getBody()->addArgument(result.getType(), result.getLoc()));
    rewriter.replaceOp(&op, captures);
  }
};

} // namespace

void ScanOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                         MLIRContext *context) {
  patterns.add<DropUnread, ReadOnce, CaptureUnchanged, HoistInvariant>(context);
}
