//===- Decompose.cpp - dist-decompose -------------------------------------===//
//
// On proved local programs: an operation that takes a gathered dimension tile by
// tile gets the tiles one after the other, as they go round among the ranks.
//
//===----------------------------------------------------------------------===//

#include "cleave/Cost/LinkModel.h"
#include "cleave/Dialect/Dist/IR/Padding.h"
#include "cleave/Interfaces/Streaming.h"
#include "cleave/Interfaces/TensorExpr.h"
#include "cleave/Partition/FactorGraph.h"
#include "cleave/Partition/Passes.h"

namespace cleave {
#define GEN_PASS_DEF_DISTDECOMPOSEPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// The dimension that is this factor alone; -1 where there is none.
int64_t dimOf(const TensorFactors &dims, int64_t factor) {
  for (auto [dim, made] : llvm::enumerate(dims))
    if (made.size() == 1 && made[0] == factor)
      return dim;
  return -1;
}

/// A tile that is gathered for the operation, or into which its result goes.
struct Tile {
  unsigned index = 0; // of the operand or result
  int64_t dim = 0;
  Operation *collective = nullptr; // an all-gather or a reduce-scatter
  unsigned part = 0;               // the collective's operand
};

/// An operation whose tiles can go round.
struct Ring {
  Operation *op = nullptr;
  ShardingRule rule;
  int64_t factor = 0, whole = 0, tile = 0, ranks = 1;
  AxisListAttr axes;
  SmallVector<Tile> gathered, scattered;

  bool isPadded() const { return tile * ranks != whole; }
};

/// Looks through the cut behind a gather, or the pad before a scatter, of padding.
Value throughPadding(Value value, int64_t dim) {
  if (auto slice = value.getDefiningOp<nn::SliceOp>()) {
    bool cuts = llvm::all_of(slice.getOffsets(), [](int64_t at) { return at == 0; }) &&
                llvm::all_of(slice.getStrides(), [](int64_t step) { return step == 1; });
    for (auto [index, size] : llvm::enumerate(typeOf(slice.getInput()).getShape()))
      cuts &= int64_t(index) == dim || size == typeOf(value).getDimSize(index);
    if (cuts)
      return slice.getInput();
  }
  return value;
}

bool findGather(Ring &ring, unsigned operand) {
  int64_t dim = dimOf(ring.rule.operands[operand], ring.factor);
  Value whole = throughPadding(ring.op->getOperand(operand), dim);
  auto gather = whole.getDefiningOp<AllGatherOp>();
  if (dim < 0 || !gather)
    return false;
  unsigned part = cast<OpResult>(whole).getResultNumber();
  if (gather.getDims()[part] != dim || (ring.axes && gather.getAxes() != ring.axes))
    return false;
  ring.axes = gather.getAxes();
  ring.tile = typeOf(gather.getInputs()[part]).getDimSize(dim);
  ring.gathered.push_back({operand, dim, gather, part});
  return true;
}

bool findScatter(Ring &ring, unsigned result) {
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
  if (!scatter || scatter.getKind() != ReduceKind::Sum || scatter.getAxes() != ring.axes ||
      scatter.getDims()[use.getOperandNumber()] != dim)
    return false;
  ring.scattered.push_back({result, dim, scatter, use.getOperandNumber()});
  return true;
}

/// Emits the rounds of one ring where its operation stands.
class RingEmitter {
public:
  RingEmitter(Ring &ring, const MeshAxes &mesh)
      : ring(ring), mesh(mesh), builder(ring.op), loc(ring.op->getLoc()), expr(builder, loc),
        streaming(cast<StreamingInterface>(ring.op)) {}

  /// Modelled seconds of communication that computation does not hide, gathered
  /// less going round; the memory that gathering takes beyond what the operation
  /// has anyway counts against it.
  bool isBetterThanGathering(const cost::LinkModel &links, const Cluster &cluster) {
    auto bytesIn = [](ArrayRef<Tile> tiles, auto valueOf) {
      double bytes = 0;
      for (const Tile &tile : tiles)
        bytes += cleave::bytesOf(valueOf(tile).getType());
      return bytes;
    };
    double tiles = bytesIn(ring.gathered,
                           [](const Tile &tile) { return tile.collective->getOperand(tile.part); });
    double sums = bytesIn(ring.scattered,
                          [](const Tile &tile) { return tile.collective->getResult(tile.part); });
    double own = 0;
    for (auto [index, operand] : llvm::enumerate(ring.op->getOperands()))
      if (llvm::none_of(ring.gathered, [&](const Tile &tile) { return tile.index == index; }))
        own += cleave::bytesOf(operand.getType());
    for (auto [index, dims] : llvm::enumerate(ring.rule.results))
      if (dimOf(dims, ring.factor) < 0)
        own += cleave::bytesOf(ring.op->getResult(index).getType());
    if (ring.ranks * (tiles + sums) > own)
      return true;
    AxisSet group = setOf(mesh.decompose(ring.axes.getAxes()));
    double rounds = roundsToGo().size();
    double flops = 0;
    if (auto model = dyn_cast<CostInterface>(ring.op))
      flops = model.getFlops();
    double computed = cluster.matmulSeconds(flops / ring.ranks);
    double passed = links.permute(group, tiles), added = sums ? links.permute(group, sums) : 0;
    double round = (rounds - 1) * std::max(0.0, passed + added - computed) + added;
    double gathered = links.allGather(group, ring.ranks * tiles);
    if (sums)
      gathered += links.reduceScatter(group, ring.ranks * sums);
    return round <= gathered;
  }

  void run() {
    SmallVector<int64_t> rounds = roundsToGo();
    own = AxisIndexOp::create(builder, loc, scalar(), mesh.name(), ring.axes);
    SmallVector<Value> tiles, travelling, mine;
    for (const Tile &tile : ring.gathered)
      tiles.push_back(cleared(tile));
    for (auto [step, distance] : llvm::enumerate(rounds)) {
      SmallVector<Value> next;
      if (step + 1 < rounds.size())
        next = passed(tiles, rounds[step + 1] - distance, purposeOf(ring.gathered));
      // What was added up so far goes on while this round is computed.
      if (step > 1)
        travelling = passed(travelling, distance - rounds[step - 1], purposeOf(ring.scattered));
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
      travelling = passed(travelling, -rounds.back(), purposeOf(ring.scattered));
      for (auto [value, more] : llvm::zip_equal(mine, travelling))
        value = expr.add(value, more);
    }
    finish(mine);
  }

private:
  RankedTensorType scalar() { return RankedTensorType::get({}, builder.getI64Type()); }

  static Purpose purposeOf(ArrayRef<Tile> tiles) {
    return tiles.empty() ? Purpose::Activation
                         : cast<CollectiveOpInterface>(tiles[0].collective).getPurpose();
  }

  /// Distances, in ranks before this one, of the tiles that any rank reads: all of
  /// them, unless positions are indices and a window says otherwise.
  SmallVector<int64_t> roundsToGo() {
    SmallVector<int64_t> rounds = llvm::to_vector(llvm::seq<int64_t>(ring.ranks));
    std::optional<StreamReach> reach = streaming.getReach();
    if (!reach || !isIndex(reach->own, ring.tile) || !isIndex(reach->streamed, 0))
      return rounds;
    // The first query of a tile reads `before` elements before it, the last one
    // `after` behind it.
    int64_t before = llvm::divideCeil(reach->before, ring.tile);
    int64_t after = llvm::divideCeil(reach->after, ring.tile);
    llvm::erase_if(rounds, [&](int64_t distance) {
      return distance > before && ring.ranks - distance > after;
    });
    return rounds;
  }

  /// Whether `value` counts 0, 1, ...; from the offset of this rank's tile on where
  /// `tile` is given.
  bool isIndex(Value value, int64_t tile) const {
    if (!tile)
      return isa_and_present<nn::IotaOp>(value.getDefiningOp()) && typeOf(value).getRank() == 1;
    if (auto select = value.getDefiningOp<arith::SelectOp>();
        select && select->hasAttr(kPadMaskAttrName))
      value = select.getTrueValue(); // queries that are padding read nothing of use
    auto add = value.getDefiningOp<arith::AddIOp>();
    auto spread = add ? add.getRhs().getDefiningOp<nn::BroadcastOp>() : nn::BroadcastOp();
    auto offset = spread ? spread.getInput().getDefiningOp<TileOffsetOp>() : TileOffsetOp();
    return offset && isIndex(add.getLhs(), 0) && int64_t(offset.getTile()) == tile &&
           offset.getAxes() == ring.axes;
  }

  /// The tile of a rank, with zeros in place of padding, which nothing may read
  /// even where it does not count.
  Value cleared(const Tile &tile) {
    Value value = cast<AllGatherOp>(tile.collective).getInputs()[tile.part];
    if (!ring.isPadded())
      return value;
    RankedTensorType type = typeOf(value);
    auto select = arith::SelectOp::create(
        builder, loc, expr.broadcast(inside(own), type, {tile.dim}), value, expr.splat(type, 0));
    select->setAttr(kPadMaskAttrName, builder.getUnitAttr());
    return copyMarks(select)->getResult(0);
  }

  /// Which elements of the tile of rank `index` are no padding.
  Value inside(Value index) {
    auto type = RankedTensorType::get({ring.tile}, builder.getI64Type());
    Value begin = expr.make<arith::MulIOp>(index, expr.splatInt(scalar(), ring.tile));
    Value left = expr.make<arith::SubIOp>(expr.splatInt(scalar(), ring.whole), begin);
    return expr.compare(arith::CmpIPredicate::slt, expr.make<nn::IotaOp>(type, 0),
                        expr.broadcast(left, type, {}));
  }

  /// The values of the rank that stands `distance` before.
  SmallVector<Value> passed(ValueRange values, int64_t distance, Purpose purpose) {
    if (values.empty())
      return {};
    SmallVector<int64_t> pairs;
    for (int64_t rank = 0; rank < ring.ranks; ++rank)
      pairs.append({rank, ((rank + distance) % ring.ranks + ring.ranks) % ring.ranks});
    auto permute = CollectivePermuteOp::create(
        builder, loc, TypeRange(values), values, builder.getDenseI64ArrayAttr(pairs), mesh.name(),
        ring.axes, PurposeAttr::get(builder.getContext(), purpose));
    return copyMarks(permute)->getResults();
  }

  /// The operation on the tile of the rank that stands `distance` before.
  Operation *emitRound(ArrayRef<Value> tiles, int64_t distance) {
    Value origin = own;
    if (distance) {
      Value ahead = expr.make<arith::AddIOp>(own, expr.splatInt(scalar(), ring.ranks - distance));
      origin = expr.make<arith::RemSIOp>(ahead, expr.splatInt(scalar(), ring.ranks));
    }
    SmallVector<Value> operands(ring.op->getOperands());
    for (auto [tile, value] : llvm::zip_equal(ring.gathered, tiles))
      operands[tile.index] = value;
    for (auto [index, operand] : llvm::enumerate(operands))
      if (operand == ring.op->getOperand(index))
        if (int64_t dim = dimOf(ring.rule.operands[index], ring.factor); dim >= 0)
          operand = partOf(operand, dim, origin);
    Operation *part = builder.clone(*ring.op);
    part->setOperands(operands);
    for (auto [index, result] : llvm::enumerate(part->getResults()))
      if (int64_t dim = dimOf(ring.rule.results[index], ring.factor); dim >= 0) {
        SmallVector<int64_t> shape(typeOf(result).getShape());
        shape[dim] = ring.tile;
        result.setType(typeOf(result).clone(shape));
      }
    if (ring.isPadded()) {
      builder.setInsertionPoint(part);
      cast<StreamingInterface>(part).maskTile(builder, inside(origin));
      builder.setInsertionPoint(ring.op);
    }
    return part;
  }

  /// The part of a whole operand that goes with the tile of rank `origin`.
  Value partOf(Value value, int64_t dim, Value origin) {
    RankedTensorType type = typeOf(value);
    SmallVector<int64_t> shape(type.getShape());
    if (ring.isPadded()) {
      SmallVector<int64_t> low(shape.size()), high(shape.size());
      high[dim] = ring.tile * ring.ranks - ring.whole;
      shape[dim] = ring.tile * ring.ranks;
      value = nn::PadOp::create(builder, loc, type.clone(shape), value, low, high, APFloat(0.0));
    }
    shape[dim] = ring.ranks;
    shape.insert(shape.begin() + dim + 1, ring.tile);
    Value parts = expr.make<nn::ReshapeOp>(type.clone(shape), value);
    return expr.make<nn::GatherOp>(parts, origin, uint64_t(dim));
  }

  /// Results without the factor.
  void combine(Operation *part, bool isFirst) {
    SmallVector<Value> values;
    for (auto [index, dims] : llvm::enumerate(ring.rule.results))
      if (dimOf(dims, ring.factor) < 0)
        values.push_back(part->getResult(index));
    sums = isFirst ? values : streaming.combineTiles(builder, sums, values);
  }

  void finish(ArrayRef<Value> mine) {
    size_t next = 0;
    for (auto [index, dims] : llvm::enumerate(ring.rule.results))
      if (dimOf(dims, ring.factor) < 0)
        ring.op->getResult(index).replaceAllUsesWith(sums[next++]);
    for (auto [tile, value] : llvm::zip_equal(ring.scattered, mine))
      tile.collective->getResult(tile.part).replaceAllUsesWith(value);
  }

  /// What phases have noted of the operation holds for what it becomes.
  Operation *copyMarks(Operation *op) {
    for (NamedAttribute mark : ring.op->getDiscardableAttrs())
      if (!op->hasAttr(mark.getName()))
        op->setAttr(mark.getName(), mark.getValue());
    return op;
  }

  Ring &ring;
  const MeshAxes &mesh;
  OpBuilder builder;
  Location loc;
  TensorExpr expr;
  StreamingInterface streaming;
  Value own;
  SmallVector<Value> sums;
};

/// Drops the parts of a collective that nothing reads any more.
void dropParts(Operation *collective) {
  SmallVector<Value> inputs;
  SmallVector<Type> types;
  SmallVector<int64_t> dims;
  SmallVector<Value> kept;
  auto all = cast<CollectiveOpInterface>(collective);
  auto dimsAttr = collective->getAttrOfType<DenseI64ArrayAttr>("dims");
  for (auto [index, result] : llvm::enumerate(all->getResults()))
    if (!result.use_empty()) {
      inputs.push_back(all->getOperand(index));
      types.push_back(result.getType());
      dims.push_back(dimsAttr[index]);
      kept.push_back(result);
    }
  if (kept.size() < all->getNumResults() && !kept.empty()) {
    OperationState state(all->getLoc(), all->getName(), inputs, types, all->getAttrs());
    state.attributes.set("dims", DenseI64ArrayAttr::get(all->getContext(), dims));
    Operation *fewer = OpBuilder(all).create(state);
    for (auto [from, to] : llvm::zip_equal(kept, fewer->getResults()))
      from.replaceAllUsesWith(to);
  }
  if (kept.size() < all->getNumResults())
    all->erase();
}

struct DistDecomposePass : cleave::impl::DistDecomposePassBase<DistDecomposePass> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<MeshAxes> mesh = MeshAxes::of(getOperation());
    if (failed(mesh))
      return signalPassFailure();
    FailureOr<Cluster> machine = cost::loadCluster(getOperation(), cluster);
    if (failed(machine))
      return signalPassFailure();
    if (plan != "auto" && plan != "ring" && plan != "gather") {
      getOperation().emitError("unknown plan '") << plan << "'; expected auto, ring or gather";
      return signalPassFailure();
    }
    auto links = cost::LinkModel::of(getOperation(), *mesh, *machine);
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      SmallVector<StreamingInterface> found;
      func.walk([&](StreamingInterface op) { found.push_back(op); });
      for (StreamingInterface op : found)
        if (std::optional<Ring> ring = ringOf(op, *mesh)) {
          bool isWanted = plan == "ring";
          if (plan == "auto")
            isWanted = RingEmitter(*ring, *mesh).isBetterThanGathering(links, *machine);
          if (isWanted)
            decompose(*ring, *mesh);
        }
    }
  }

  std::optional<Ring> ringOf(StreamingInterface op, const MeshAxes &mesh) {
    Ring ring;
    ring.op = op;
    ring.rule = ShardingRule::of(op);
    ring.factor = op.getStreamedFactor();
    ring.whole = ring.rule.factors[ring.factor].size;
    for (unsigned operand : op.getStreamedOperands())
      if (!findGather(ring, operand))
        return std::nullopt;
    for (auto [index, dims] : llvm::enumerate(ring.rule.results))
      if (dimOf(dims, ring.factor) >= 0 && !findScatter(ring, index))
        return std::nullopt;
    ring.ranks = axesSize(mesh.mesh(), ring.axes.getAxes());
    bool wanted = llvm::all_of(ring.axes.getAxes(), [&](AxisRefAttr axis) {
      return axes.empty() || llvm::is_contained(axes, axis.getName().getValue());
    });
    // A tile beyond the end would be nobody's.
    if (!wanted || ring.ranks < 2 || ring.tile * (ring.ranks - 1) >= ring.whole)
      return std::nullopt;
    return ring;
  }

  void decompose(Ring &ring, const MeshAxes &mesh) {
    RingEmitter(ring, mesh).run();
    // From the readers to what they read.
    SmallVector<Operation *> dead;
    for (const Tile &tile : ring.scattered)
      if (!llvm::is_contained(dead, tile.collective))
        dead.push_back(tile.collective);
    for (Operation *scatter : dead) {
      SmallVector<Value> inputs(scatter->getOperands());
      dropParts(scatter);
      for (Value input : inputs)
        if (auto pad = input.getDefiningOp<nn::PadOp>(); pad && pad->use_empty())
          pad.erase();
    }
    SmallVector<Value> read(ring.op->getOperands());
    ring.op->erase();
    for (Value value : read)
      if (auto slice = value.getDefiningOp<nn::SliceOp>(); slice && slice->use_empty())
        slice.erase();
    dead.clear();
    for (const Tile &tile : ring.gathered)
      if (!llvm::is_contained(dead, tile.collective))
        dead.push_back(tile.collective);
    llvm::for_each(dead, dropParts);
  }
};

} // namespace
