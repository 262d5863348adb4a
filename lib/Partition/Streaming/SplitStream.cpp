//===- SplitStream.cpp - dist-split-stream --------------------------------===//
//
// Rewrites per-rank programs that dist-verify-variance has accepted. A
// streaming operation (StreamingInterface) can process a dimension of its
// operands tile by tile, as attention can along its keys. If every rank
// computes such an operation from the gathered tiles of all ranks, each rank
// instead computes it on its own tile, and the partial results are combined
// over the ranks.
//
//===----------------------------------------------------------------------===//

#include "StreamTiles.h"
#include "cleave/Partition/Verify/Variance.h"

#include "cleave/Cost/LinkModel.h"
#include "cleave/Partition/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_DISTSPLITSTREAMPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// For a result that has the dimension which the operation can process tile by
/// tile: checks that the result has one reader, which slices this rank's tile,
/// and adds this slice to `stream.scattered`.
bool findSlice(Stream &stream, unsigned result) {
  int64_t dim = dimOf(stream.rule.results[result], stream.factor);
  Value value = stream.op->getResult(result);
  if (dim < 0 || !value.hasOneUse())
    return false;
  auto slice = dyn_cast<dist::SliceOp>(*value.user_begin());
  if (!slice || slice.getAxes() != stream.axes ||
      int64_t(slice.getDim()) != dim)
    return false;
  stream.scattered.push_back({result, dim, slice, 0});
  return true;
}

struct SplitEmitter : TileEmitter {
  using TileEmitter::TileEmitter;

  void run() {
    nameIndices();
    SmallVector<Value> tiles, partial;
    for (const StreamTile &tile : stream.gathered)
      tiles.push_back(cleared(tile));
    Operation *part = emitPart(tiles, ownIndex());
    for (auto [index, dims] : llvm::enumerate(stream.rule.results))
      if (dimOf(dims, stream.factor) < 0)
        partial.push_back(part->getResult(index));
    SmallVector<Value> whole = stream.op.combineRanks(
        builder, partial, [&](ValueRange values, ReduceKind kind) {
          return reduced(values, kind);
        });
    size_t next = 0;
    for (auto [index, dims] : llvm::enumerate(stream.rule.results))
      if (dimOf(dims, stream.factor) < 0)
        stream.op->getResult(index).replaceAllUsesWith(whole[next++]);
    for (const StreamTile &tile : stream.scattered)
      tile.collective->getResult(0).replaceAllUsesWith(
          part->getResult(tile.index));
  }

private:
  SmallVector<Value> reduced(ValueRange values, ReduceKind kind) {
    MLIRContext *context = builder.getContext();
    Purpose purpose =
        cast<CollectiveOpInterface>(stream.gathered[0].collective).getPurpose();
    Operation *all = AllReduceOp::create(
        builder, loc, TypeRange(values), ReduceKindAttr::get(context, kind),
        values, mesh.name(), stream.axes, PurposeAttr::get(context, purpose));
    return copyMarks(all)->getResults();
  }
};

struct DistSplitStreamPass
    : cleave::impl::DistSplitStreamPassBase<DistSplitStreamPass> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<cost::Machine> machine =
        cost::Machine::load(getOperation(), cluster);
    if (failed(machine))
      return signalPassFailure();
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      std::vector<Stream> found;
      func.walk([&](StreamingInterface op) {
        if (std::optional<Stream> stream = streamOf(op, machine->mesh))
          if (always || isBetterThanGathering(*stream, machine->mesh,
                                              machine->links, machine->cluster))
            found.push_back(std::move(*stream));
      });
      if (found.empty())
        continue;
      // The analysis of the whole function runs before the first operation is
      // replaced.
      Variance variance(machine->mesh);
      if (failed(variance.verify(func)))
        return signalPassFailure();
      llvm::erase_if(found, [&](const Stream &stream) {
        AxisSet group = setOf(machine->mesh.decompose(stream.axes.getAxes()));
        for (auto [index, operand] : llvm::enumerate(stream.op->getOperands()))
          if (!stream.isGathered(index) &&
              !variance.isInvariant(operand, group))
            return true;
        return false;
      });
      for (Stream &stream : found) {
        SplitEmitter(stream, machine->mesh).run();
        stream.erase();
      }
    }
  }

private:
  static std::optional<Stream> streamOf(StreamingInterface op,
                                        const MeshAxes &mesh) {
    std::optional<Stream> stream = findStream(op, mesh);
    if (!stream)
      return std::nullopt;
    for (auto [index, dims] : llvm::enumerate(stream->rule.results))
      if (dimOf(dims, stream->factor) >= 0 && !findSlice(*stream, index))
        return std::nullopt;
    return stream;
  }

  /// Compares modelled seconds of communication and computation.
  static bool isBetterThanGathering(const Stream &stream, const MeshAxes &mesh,
                                    const cost::LinkModel &links,
                                    const Cluster &cluster) {
    AxisSet group = setOf(mesh.decompose(stream.axes.getAxes()));
    double flops = 0;
    if (auto model =
            dyn_cast<CostInterface>(static_cast<Operation *>(stream.op)))
      flops = model.getFlops();
    // Results that do not have the streamed dimension are reduced over the
    // ranks. If there are several (the output and the log-sum-exp of
    // attention), there are two all-reduces: the first of the smallest result,
    // from which each rank computes the weight of its partial results, and the
    // second of all weighted results.
    SmallVector<double> results;
    for (auto [index, dims] : llvm::enumerate(stream.rule.results))
      if (dimOf(dims, stream.factor) < 0)
        results.push_back(
            cleave::bytesOf(stream.op->getResult(index).getType()));
    double split = links.allReduce(group, llvm::sum_of(results)) +
                   cluster.matmulSeconds(flops / stream.ranks);
    if (results.size() > 1)
      split += links.allReduce(group, *llvm::min_element(results));
    double gathered =
        links.allGather(group, stream.ranks * bytesOfTiles(stream)) +
        cluster.matmulSeconds(flops);
    return split <= gathered;
  }
};

} // namespace
