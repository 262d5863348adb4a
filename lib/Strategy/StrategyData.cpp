// strategy-data: the batch, and what follows for gradients and state.

#include "Boundary.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Strategy/Passes.h"

#include "llvm/ADT/StringMap.h"

namespace cleave {
#define GEN_PASS_DEF_STRATEGYDATAPASS
#include "cleave/Strategy/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

namespace {

struct StrategyDataPass : cleave::impl::StrategyDataPassBase<StrategyDataPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<dist::MeshOp> found = meshWithAxis(module, axis);
    if (failed(found))
      return signalPassFailure();
    mesh = *found;
    meshAttr = mesh.getMesh();
    axisRef = dist::AxisRefAttr::get(&getContext(), axis);
    ways = dist::axisSize(mesh.getMesh(), axisRef);
    if (ways == 1)
      return;
    if (zero != 0 && zero != 1) {
      module.emitError("zero ") << zero << " is not yet supported; use 0 or 1";
      return signalPassFailure();
    }
    collectParameters();
    remarkOnUnevenBatch();
    setBoundaryShardings(
        module, [&](RankedTensorType type, DictionaryAttr attrs) {
          return boundary(type, attrs);
        });
    if (auto update = module.lookupSymbol<func::FuncOp>(nn::kUpdateFunc))
      constrainUpdate(update);
  }

  /// Says once that ranks hold different numbers of samples.
  void remarkOnUnevenBatch() {
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
        auto type = dyn_cast<RankedTensorType>(func.getArgumentTypes()[arg]);
        if (!holdsSamples(roleOf(func.getArgAttrDict(arg))) || !type)
          continue;
        std::optional<int64_t> dim =
            nn::batchDimOf(func.getArgAttrDict(arg), type.getRank());
        if (!dim || type.getDimSize(*dim) % ways == 0)
          continue;
        emitRemark(func.getLoc(), "a batch of ")
            << type.getDimSize(*dim) << " does not divide by the " << ways
            << " ranks of axis '" << axis << "': it is padded to "
            << dist::tileSize(type.getDimSize(*dim), ways) * ways
            << " with samples of weight 0";
        return;
      }
  }

  /// The shardings that other strategies gave to the parameters.
  void collectParameters() {
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
        DictionaryAttr attrs = func.getArgAttrDict(arg);
        auto type = dyn_cast<RankedTensorType>(func.getArgumentTypes()[arg]);
        if (roleOf(attrs) == "parameter" && type)
          parameters.insert({nameOf(attrs),
                             axesOf(shardingOf(attrs), type.getRank())});
      }
  }

  Axes parameterAxes(StringRef name, int64_t rank) const {
    auto it = parameters.find(name);
    return it != parameters.end() ? it->second : Axes(rank);
  }

  /// Whether the parameter lies over this axis, or a part of it, already.
  bool isSplitByHand(const Axes &axes) const {
    return llvm::any_of(axes, [&](auto &list) {
      return llvm::any_of(list, [&](dist::AxisRefAttr other) {
        return dist::overlaps(meshAttr, axisRef, other);
      });
    });
  }

  /// The optimizer state's axes: the parameter's, and with `zero` this one.
  Axes stateAxes(StringRef parameter, RankedTensorType type) const {
    Axes axes = parameterAxes(parameter, type.getRank());
    if (zero == 0 || isSplitByHand(axes))
      return axes;
    std::optional<int64_t> best;
    double bestPadding = 0;
    for (int64_t dim = 0; dim < type.getRank(); ++dim) {
      int64_t size = type.getDimSize(dim);
      int64_t before = dist::axesSize(meshAttr, axes[dim]);
      // Tiles of tiles must be tiles of the whole, or elements would have to
      // cross the other axes: a dimension that is split already must divide.
      if (size < 2 || (before > 1 && size % (before * ways) != 0))
        continue;
      double padding = double(dist::tileSize(size, before * ways) * before *
                              ways) / size;
      if (!best || padding < bestPadding)
        best = dim, bestPadding = padding;
    }
    if (best)
      axes[*best].push_back(axisRef);
    return axes;
  }

  /// Outputs stay as they are computed: whoever reads them gathers.
  dist::ShardingAttr openFurther(dist::ShardingAttr sharding,
                                 int64_t batchDim) const {
    SmallVector<dist::DimShardingAttr> dims;
    for (auto [index, dim] : llvm::enumerate(sharding.getDims()))
      dims.push_back(dist::DimShardingAttr::get(sharding.getContext(),
                                                dim.getAxes(),
                                                int64_t(index) != batchDim));
    return dist::ShardingAttr::get(sharding.getContext(), sharding.getMesh(),
                                   dims);
  }

  dist::ShardingAttr boundary(RankedTensorType type,
                              DictionaryAttr attrs) const {
    StringRef role = roleOf(attrs), name = nameOf(attrs);
    int64_t rank = type.getRank();
    if (holdsSamples(role)) {
      // Without a batch dimension: an input is whole on every rank, an output
      // as it is computed.
      std::optional<int64_t> dim = nn::batchDimOf(attrs, rank);
      if (rank == 0 || (!dim && role == "output"))
        return {};
      Axes axes = axesOf(shardingOf(attrs), rank);
      if (dim) // before the axes of other strategies
        axes[*dim].insert(axes[*dim].begin(), axisRef);
      dist::ShardingAttr sharding = closedSharding(mesh, axes);
      return role == "output" ? openFurther(sharding, *dim) : sharding;
    }
    if (role == "parameter")
      return closedSharding(mesh, parameterAxes(name, rank));
    if (role == "state")
      return closedSharding(mesh, stateAxes(name.rsplit('.').first, type));
    if (role == "tap")
      return closedSharding(mesh, stateAxes(name, type));
    // Sums that each rank adds up by itself, perhaps over other axes too.
    if (role == "gradient" || role == "loss" || role == "weight") {
      Axes axes = role == "gradient" ? parameterAxes(name, rank) : Axes(rank);
      llvm::SmallVector<dist::AxisRefAttr> partial;
      if (!isSplitByHand(axes))
        partial.push_back(axisRef);
      if (dist::ShardingAttr given = shardingOf(attrs))
        llvm::append_range(partial, given.getPartial());
      return closedSharding(mesh, axes, partial);
    }
    return {};
  }

  /// Asks for the reduced gradient, and for the piece of the parameter that
  /// goes with it.
  void constrainUpdate(func::FuncOp update) {
    OpBuilder b = OpBuilder::atBlockBegin(&update.getBody().front());
    for (unsigned arg = 0; arg < update.getNumArguments(); ++arg) {
      DictionaryAttr attrs = update.getArgAttrDict(arg);
      StringRef role = roleOf(attrs), name = nameOf(attrs);
      auto type = cast<RankedTensorType>(update.getArgumentTypes()[arg]);
      Axes axes(type.getRank());
      if (role == "gradient" || (role == "parameter" && zero == 1))
        axes = stateAxes(name, type);
      else if (role != "loss" && role != "weight")
        continue;
      BlockArgument argument = update.getArgument(arg);
      auto constrained = dist::ConstrainOp::create(
          b, argument.getLoc(), type, argument, closedSharding(mesh, axes));
      argument.replaceAllUsesExcept(constrained, constrained);
    }
  }

  dist::MeshOp mesh;
  dist::MeshAttr meshAttr;
  dist::AxisRefAttr axisRef;
  int64_t ways = 1;
  llvm::StringMap<Axes> parameters;
};

} // namespace
