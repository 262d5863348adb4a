//===- Decompose.cpp - dist-decompose -------------------------------------===//
//
// Rewrites per-rank programs that dist-verify-variance has accepted. A
// streaming operation (StreamingInterface) can process a dimension of its
// operands tile by tile, as attention can along its keys. This pass replaces
// the all-gather of these operands by a ring: the tiles pass around the ranks,
// and the operation gets one tile after the other.
//
//===----------------------------------------------------------------------===//

#include "StreamTiles.h"

#include "cleave/Cost/LinkModel.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Support/ValueUtils.h"

namespace cleave {
#define GEN_PASS_DEF_DISTDECOMPOSEPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

bool findScatter(Stream &ring, unsigned result) {
  int64_t dim = dimOf(ring.rule.results[result], ring.factor);
  Value value = ring.op->getResult(result);
  if (dim < 0 || !value.hasOneUse())
    return false;
  if (auto pad = dyn_cast<nn::PadOp>(*value.user_begin())) {
    value = pad;
    if (!value.hasOneUse())
      return false;
  }
  OpOperand &use = *value.use_begin();
  auto scatter = dyn_cast<ReduceScatterOp>(use.getOwner());
  if (!scatter || scatter.getKind() != ReduceKind::Sum ||
      scatter.getAxes() != ring.axes ||
      scatter.getDims()[use.getOperandNumber()] != dim)
    return false;
  ring.scattered.push_back({result, dim, scatter, use.getOperandNumber()});
  return true;
}

/// Emits the steps of a ring in place of the all-gather and of the operation
/// that reads it.
class RingEmitter : TileEmitter {
public:
  RingEmitter(Stream &ring, const MeshAxes &mesh)
      : TileEmitter(ring, mesh), ring(ring) {}

  /// Returns whether the ring is at least as fast as gathering, by modelled
  /// exposed communication. Also returns true if gathering needs more memory
  /// than the other operands and results of the operation.
  bool isBetterThanGathering(const cost::LinkModel &links,
                             const Cluster &cluster) {
    double tiles = bytesOfTiles(ring), sums = 0;
    for (const StreamTile &tile : ring.scattered)
      sums += cleave::bytesOf(tile.collective->getResult(tile.part).getType());
    if (ring.ranks * (tiles + sums) > bytesOfTheRest(ring))
      return true;
    AxisSet group = setOf(mesh.decompose(ring.axes.getAxes()));
    double rounds = roundsToGo().size();
    double flops = 0;
    if (auto model = dyn_cast<CostInterface>(ring.op.getOperation()))
      flops = model.getFlops();
    double computed = cluster.matmulSeconds(flops / ring.ranks);
    double passed = links.permute(group, tiles),
           added = sums ? links.permute(group, sums) : 0;
    double round =
        (rounds - 1) * std::max(0.0, passed + added - computed) + added;
    double gathered = links.allGather(group, ring.ranks * tiles);
    if (sums)
      gathered += links.reduceScatter(group, ring.ranks * sums);
    return round <= gathered;
  }

  void run() {
    nameIndices();
    SmallVector<int64_t> rounds = roundsToGo();
    SmallVector<Value> tiles, travelling, mine;
    for (const StreamTile &tile : ring.gathered)
      tiles.push_back(cleared(tile));
    for (auto [step, distance] : llvm::enumerate(rounds)) {
      SmallVector<Value> next;
      if (step + 1 < rounds.size())
        next = passed(tiles, rounds[step + 1] - distance,
                      purposeOf(ring.gathered));
      // The partial sum accumulated so far is sent on to the next rank while
      // this step of the ring is computed.
      if (step > 1)
        travelling = passed(travelling, distance - rounds[step - 1],
                            purposeOf(ring.scattered));
      Operation *part = emitRound(tiles, distance);
      combine(part, step == 0);
      for (auto [index, tile] : llvm::enumerate(ring.scattered)) {
        Value value = part->getResult(tile.index);
        if (step == 0)
          mine.push_back(value);
        else if (step == 1)
          travelling.push_back(value);
        else
          travelling[index] = expr.add(travelling[index], value);
      }
      tiles = next;
    }
    if (!travelling.empty()) {
      travelling =
          passed(travelling, -rounds.back(), purposeOf(ring.scattered));
      for (auto [value, more] : llvm::zip_equal(mine, travelling))
        value = expr.add(value, more);
    }
    finish(mine);
  }

private:
  static Purpose purposeOf(ArrayRef<StreamTile> tiles) {
    return tiles.empty()
               ? Purpose::Activation
               : cast<CollectiveOpInterface>(tiles[0].collective).getPurpose();
  }

  /// Returns the steps of the ring that are needed, each given by a distance d:
  /// in this step, each rank processes the tile of the rank that is d ranks
  /// before it. A step is left out if no rank needs its tile. This is possible
  /// only if the positions of elements are their indices and the attention
  /// window excludes whole tiles.
  SmallVector<int64_t> roundsToGo() {
    SmallVector<int64_t> rounds =
        llvm::to_vector(llvm::seq<int64_t>(ring.ranks));
    std::optional<StreamReach> reach = ring.op.getReach();
    if (!reach || !isIndex(reach->own, ring.tile) ||
        !isIndex(reach->streamed, 0))
      return rounds;
    // The first query of a tile reads `before` elements before the tile, the
    // last query reads `after` elements beyond it.
    int64_t before = llvm::divideCeil(reach->before, ring.tile);
    int64_t after = llvm::divideCeil(reach->after, ring.tile);
    llvm::erase_if(rounds, [&](int64_t distance) {
      return distance > before && ring.ranks - distance > after;
    });
    return rounds;
  }

  /// Returns whether `value` holds the indices 0, 1, ... or, if `tile` is not
  /// 0, the indices from the begin of this rank's tile.
  bool isIndex(Value value, int64_t tile) const {
    if (!tile)
      return isa_and_present<nn::IotaOp>(value.getDefiningOp()) &&
             typeOf(value).getRank() == 1;
    if (auto select = value.getDefiningOp<arith::SelectOp>();
        select && select->hasAttr(kPadMaskAttrName))
      value = select.getTrueValue(); // results of padded queries are not used
    auto add = value.getDefiningOp<arith::AddIOp>();
    auto spread =
        add ? add.getRhs().getDefiningOp<nn::BroadcastOp>() : nn::BroadcastOp();
    auto offset = spread ? spread.getInput().getDefiningOp<TileOffsetOp>()
                         : TileOffsetOp();
    return offset && isIndex(add.getLhs(), 0) &&
           int64_t(offset.getTile()) == tile && offset.getAxes() == ring.axes;
  }

  /// Emits a permutation that sends each rank's values to the rank that is
  /// `distance` ranks after it. Returns the received values.
  SmallVector<Value> passed(ValueRange values, int64_t distance,
                            Purpose purpose) {
    if (values.empty())
      return {};
    SmallVector<int64_t> pairs;
    for (int64_t rank = 0; rank < ring.ranks; ++rank)
      pairs.append(
          {rank, ((rank + distance) % ring.ranks + ring.ranks) % ring.ranks});
    auto permute = CollectivePermuteOp::create(
        builder, loc, TypeRange(values), values,
        builder.getDenseI64ArrayAttr(pairs), mesh.name(), ring.axes,
        PurposeAttr::get(builder.getContext(), purpose));
    return copyMarks(permute)->getResults();
  }

  /// Emits the operation on the tiles of the rank that is `distance` ranks
  /// before this one.
  Operation *emitRound(ArrayRef<Value> tiles, int64_t distance) {
    Value origin = ownIndex();
    if (distance) {
      Value ahead = expr.make<arith::AddIOp>(
          origin, expr.splatInt(scalar(), ring.ranks - distance));
      origin =
          expr.make<arith::RemSIOp>(ahead, expr.splatInt(scalar(), ring.ranks));
    }
    return emitPart(tiles, origin);
  }

  /// Combines those results of one step of the ring that do not have the
  /// streamed dimension (it is reduced in them) with the same results of
  /// earlier steps.
  void combine(Operation *part, bool isFirst) {
    SmallVector<Value> values;
    for (auto [index, dims] : llvm::enumerate(ring.rule.results))
      if (dimOf(dims, ring.factor) < 0)
        values.push_back(part->getResult(index));
    sums = isFirst ? values : ring.op.combineTiles(builder, sums, values);
  }

  void finish(ArrayRef<Value> mine) {
    size_t next = 0;
    for (auto [index, dims] : llvm::enumerate(ring.rule.results))
      if (dimOf(dims, ring.factor) < 0)
        ring.op->getResult(index).replaceAllUsesWith(sums[next++]);
    for (auto [tile, value] : llvm::zip_equal(ring.scattered, mine))
      tile.collective->getResult(tile.part).replaceAllUsesWith(value);
  }

  Stream &ring;
  SmallVector<Value> sums;
};

struct DistDecomposePass
    : cleave::impl::DistDecomposePassBase<DistDecomposePass> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<cost::Machine> machine =
        cost::Machine::load(getOperation(), cluster);
    if (failed(machine))
      return signalPassFailure();
    if (plan != "auto" && plan != "ring" && plan != "gather") {
      getOperation().emitError("unknown plan '")
          << plan << "'; expected auto, ring or gather";
      return signalPassFailure();
    }
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      SmallVector<StreamingInterface> found;
      func.walk([&](StreamingInterface op) { found.push_back(op); });
      for (StreamingInterface op : found)
        if (std::optional<Stream> ring = ringOf(op, machine->mesh)) {
          bool isWanted = plan == "ring";
          if (plan == "auto")
            isWanted =
                RingEmitter(*ring, machine->mesh)
                    .isBetterThanGathering(machine->links, machine->cluster);
          if (isWanted) {
            RingEmitter(*ring, machine->mesh).run();
            ring->erase();
          }
        }
    }
  }

  std::optional<Stream> ringOf(StreamingInterface op, const MeshAxes &mesh) {
    std::optional<Stream> ring = findStream(op, mesh);
    if (!ring)
      return std::nullopt;
    for (auto [index, dims] : llvm::enumerate(ring->rule.results))
      if (dimOf(dims, ring->factor) >= 0 && !findScatter(*ring, index))
        return std::nullopt;
    bool wanted = llvm::all_of(ring->axes.getAxes(), [&](AxisRefAttr axis) {
      return axes.empty() ||
             llvm::is_contained(axes, axis.getName().getValue());
    });
    return wanted ? ring : std::nullopt;
  }
};

} // namespace
