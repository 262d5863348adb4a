//===- SplitHandovers.cpp - dist-split-handovers --------------------------===//
//
// Chooses the layout in which a value passes from one pipeline stage to the
// next. Inside the stages the value has the layout that propagation gave it. If
// that layout replicates the value over several ranks, each rank may send a
// tile, and the receivers gather.
//
// Both stages make the same decision, because it depends only on the type, the
// sharding inside the stage and the links.
//
//===----------------------------------------------------------------------===//

#include "cleave/Cost/LinkModel.h"
#include "cleave/Interfaces/BoundaryAttrs.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Propagation/FactorGraph.h"
#include "cleave/Partition/Reshard/Reshard.h"
#include "cleave/Partition/Utils/Describe.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"

namespace cleave {
#define GEN_PASS_DEF_DISTSPLITHANDOVERSPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// The largest number of mesh axes for which all combinations of axes that may
/// split the tile are tried.
constexpr size_t kMaxAxes = 8;

struct DistSplitHandoversPass
    : cleave::impl::DistSplitHandoversPassBase<DistSplitHandoversPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (previous.empty() && next.empty())
      return;
    FailureOr<cost::Machine> machine = cost::Machine::load(module, cluster);
    if (failed(machine))
      return signalPassFailure();
    mesh = machine->mesh;
    for (auto func : module.getOps<func::FuncOp>())
      if (!func.isExternal())
        split(func, machine->links, machine->cluster);
  }

  /// Returns the class of the link over which the value of an argument or
  /// result (`port`) passes between stages; "" if the value does not leave the
  /// stage.
  StringRef linkOf(const Port &port) const {
    if (port.role() == nn::Role::Activation)
      return port.isResult ? next : previous;
    if (port.role() == nn::Role::Cotangent)
      return port.isResult ? previous : next;
    return {};
  }

  void split(func::FuncOp func, const cost::LinkModel &links,
             const Cluster &machine) {
    BoundaryAttrs boundary(func);
    tiles.clear();
    inside.clear();
    inTiles.clear();
    for (bool isResult : {false, true}) {
      unsigned count = isResult ? func.getNumResults() : func.getNumArguments();
      for (unsigned index = 0; index < count; ++index) {
        Port port{func, isResult, index};
        StringRef link = linkOf(port);
        auto type = dyn_cast<RankedTensorType>(port.type());
        ShardingAttr whole = port.sharding();
        if (link.empty() || !type || !whole)
          continue;
        Layout layout = mesh.layout(whole);
        std::optional<Layout> tile =
            cheapest(type, layout, links, machine.link(link.str()));
        if (!tile)
          continue;
        ShardingAttr sharding = mesh.sharding(*tile);
        if (isResult) {
          boundary.setResult(index, kShardingAttrName, sharding);
          boundary.setResult(index, kInsideAttr, whole);
          report(port, type, layout, *tile);
        } else {
          boundary.setArgument(index, kShardingAttrName, sharding);
          boundary.setArgument(index, kInsideAttr, whole);
          inside[func.getArgument(index)] = whole;
        }
        tiles[{isResult, index}] = sharding;
      }
    }
    boundary.apply();
    Operation *terminator = func.getBody().front().getTerminator();
    for (OpOperand &operand : terminator->getOpOperands())
      if (auto tile = tiles.find({true, operand.getOperandNumber()});
          tile != tiles.end())
        makeInTiles(operand.get(), tile->second);
    OpBuilder builder = OpBuilder::atBlockBegin(&func.getBody().front());
    for (BlockArgument argument : func.getArguments())
      if (ShardingAttr whole = inside.lookup(argument))
        gatherFor(argument, whole, builder);
  }

  /// Finds the layout in tiles with which the value reaches the next stage
  /// fastest. The time includes the transfer, and the gather of the tiles in
  /// the next stage. Returns nullopt if sending the value in its own layout
  /// takes no longer. Tiles are cut along the outermost dimension that divides
  /// evenly, so that they are contiguous and have no padding.
  std::optional<Layout> cheapest(RankedTensorType type, const Layout &layout,
                                 const cost::LinkModel &links,
                                 const LinkClass &link) const {
    Axes free = listOf(mesh.everyAxis() & ~layout.used());
    if (layout.partial || free.size() > kMaxAxes)
      return std::nullopt;
    double bytes = elementBytes(type);
    for (int64_t extent : mesh.tile(layout, type.getShape()))
      bytes *= extent;
    auto sending = [&](double bytes) {
      return link.latency + bytes / link.bytesPerSecond;
    };
    double least = sending(bytes);
    std::optional<Layout> best;
    for (uint64_t choice = 1; choice < uint64_t(1) << free.size(); ++choice) {
      Axes axes;
      for (auto [place, axis] : llvm::enumerate(free))
        if (choice >> place & 1)
          axes.push_back(axis);
      double seconds = sending(bytes / mesh.size(axes)) +
                       links.allGather(setOf(axes), bytes);
      if (seconds >= least)
        continue;
      for (auto [dim, size] : llvm::enumerate(type.getShape())) {
        if (size % (mesh.size(layout.dims[dim]) * mesh.size(axes)))
          continue;
        best = layout;
        best->dims[dim].append(axes.begin(), axes.end());
        least = seconds;
        break;
      }
    }
    return best;
  }

  /// `value` is sent to another stage in tiles. If nothing else reads the
  /// value, sets its layout to `tile`, so that a rank computes only the tile
  /// that it sends. If an addition computes the value, its terms get the layout
  /// `tile` under the same condition.
  void makeInTiles(Value value, ShardingAttr tile) {
    Operation *def = value.getDefiningOp();
    if (!def || !value.hasOneUse() || isa<ConstrainOp>(def) ||
        def->getNumRegions() || isGenerator(def))
      return;
    auto given = def->getAttrOfType<ArrayAttr>(kShardingAttrName);
    if (!given)
      return;
    SmallVector<Attribute> shardings(given.getValue());
    shardings[cast<OpResult>(value).getResultNumber()] = tile;
    def->setAttr(kShardingAttrName, ArrayAttr::get(&getContext(), shardings));
    ShardingRule rule = ruleOf(def);
    for (OpOperand &operand : def->getOpOperands())
      if (rule.isTerm(operand.getOperandNumber()) &&
          operand.get().getType() == value.getType()) {
        inTiles.insert(&operand);
        makeInTiles(operand.get(), tile);
      }
  }

  /// Inserts one gather of an argument that is received in tiles, for all
  /// readers. Readers that only pass it on to the next stage, or add it to a
  /// value that is sent, read the tile.
  void gatherFor(BlockArgument argument, ShardingAttr whole,
                 OpBuilder &builder) {
    ShardingAttr tile = tiles.lookup({false, argument.getArgNumber()});
    auto staysSplit = [&](OpOperand &use) {
      if (use.getOwner()->hasTrait<OpTrait::IsTerminator>())
        return tiles.lookup({true, use.getOperandNumber()}) == tile;
      auto given = use.getOwner()->getAttrOfType<ArrayAttr>(kShardingAttrName);
      return inTiles.contains(&use) && given && given.size() == 1 &&
             given[0] == tile;
    };
    if (llvm::all_of(argument.getUses(), staysSplit))
      return;
    auto gathered =
        ConstrainOp::create(builder, argument.getLoc(), argument, whole);
    gathered->setAttr(kShardingAttrName, builder.getArrayAttr({whole}));
    argument.replaceUsesWithIf(gathered, [&](OpOperand &use) {
      return use.getOwner() != gathered && !staysSplit(use);
    });
  }

  /// Emits one remark for a value, even if several functions contain it.
  void report(const Port &port, RankedTensorType type, const Layout &layout,
              const Layout &tile) {
    if (!told.insert(port.name()).second)
      return;
    auto bytesOf = [&](const Layout &at) {
      return mesh.tile(at, type).getNumElements() * elementBytes(type);
    };
    emitRemark(port.loc())
        << partition::describe(port) << " of type " << type
        << " goes to the neighbouring stage in tiles over axes "
        << partition::describe(mesh.list(tile.used() & ~layout.used()))
        << ": a rank sends " << bytesOf(tile) << " bytes instead of "
        << bytesOf(layout) << ", which the receivers gather";
  }

  MeshAxes mesh;
  /// Data of the current function. `tiles`: the layout of each argument or
  /// result that is sent in tiles; the flag in the key is true for results.
  /// `inside`: the layout that an argument has within the stage. `inTiles`:
  /// operands of additions that are read as tiles. `told`: remarks that were
  /// already emitted.
  llvm::DenseMap<std::pair<unsigned, unsigned>, ShardingAttr> tiles;
  llvm::DenseMap<Value, ShardingAttr> inside;
  llvm::DenseSet<OpOperand *> inTiles;
  llvm::StringSet<> told;
};

} // namespace
