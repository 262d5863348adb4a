// strategy-expert: which parameters are experts, and how they lie.

#include "Boundary.h"
#include "DimClasses.h"
#include "cleave/Strategy/Passes.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace cleave {
#define GEN_PASS_DEF_STRATEGYEXPERTPASS
#include "cleave/Strategy/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

/// Looks through what keeps values and places them.
static Value rootOf(Value value) {
  while (Operation *def = value.getDefiningOp()) {
    if (!isa<nn::SaveOp, nn::RematerializeOp, nn::ReshapeOp>(def))
      break;
    value = def->getOperand(0);
  }
  return value;
}

namespace {

struct StrategyExpertPass
    : cleave::impl::StrategyExpertPassBase<StrategyExpertPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<dist::MeshOp> found = meshWithAxis(module, axis);
    if (failed(found))
      return signalPassFailure();
    mesh = *found;
    axisRef = dist::AxisRefAttr::get(&getContext(), axis);
    if (dist::axisSize(mesh.getMesh(), axisRef) == 1)
      return;
    for (auto func : module.getOps<func::FuncOp>())
      if (!func.isDeclaration() && failed(findExperts(func)))
        return signalPassFailure();
    if (experts.empty() && required) {
      module.emitError("has no experts to split over axis '")
          << axis << "': no parameter is read by nn.grouped_dot";
      return signalPassFailure();
    }
    place();
    for (auto func : module.getOps<func::FuncOp>())
      if (!func.isDeclaration())
        gatherMatrices(func);
  }

  /// Notes the dimensions of parameters that count experts: those of matrices
  /// that rows choose, and of tables that are read by the same choice.
  LogicalResult findExperts(func::FuncOp func) {
    SmallVector<std::pair<Value, int64_t>> counted;
    llvm::SmallPtrSet<Value, 8> choices;
    func.walk([&](nn::GroupedDotOp op) {
      counted.push_back({op.getMatrices(), 0});
      choices.insert(rootOf(op.getIds()));
    });
    if (counted.empty())
      return success();
    func.walk([&](nn::GatherOp op) {
      if (choices.contains(rootOf(op.getIndices())))
        counted.push_back({op.getTable(), op.getDim()});
    });
    DimClasses classes(func);
    int64_t ranks = dist::axisSize(mesh.getMesh(), axisRef);
    for (auto [value, dim] : counted) {
      std::optional<unsigned> index = classes.indexOf(value, dim);
      if (!index)
        continue;
      const DimClass &dims = classes.classes()[*index];
      for (auto [arg, of] : dims.parameterDims) {
        StringRef name = nameOf(func.getArgAttrDict(arg));
        if (dims.size < ranks)
          return emitError(func.getArgument(arg).getLoc(), "parameter '")
                 << name << "' has " << dims.size << " experts, fewer than the "
                 << ranks << " ranks of axis '" << axis << "'; take at most "
                 << dims.size;
        if (!dims.splittable)
          return emitError(func.getArgument(arg).getLoc(), "parameter '")
                 << name << "' of " << dims.size
                 << " experts is read as a whole, so axis '" << axis
                 << "' cannot split it";
        if (!hasOverride(getOperation(), name))
          experts.insert({name, of});
      }
    }
    return success();
  }

  /// Experts lie over the axis first, then as other strategies said.
  void place() {
    auto placed = [&](RankedTensorType type, DictionaryAttr attrs,
                      StringRef name) -> dist::ShardingAttr {
      auto it = experts.find(name);
      if (it == experts.end())
        return {};
      dist::ShardingAttr given = shardingOf(attrs);
      Axes axes = axesOf(given, type.getRank());
      SmallVector<dist::AxisRefAttr> &list = axes[it->second];
      list.insert(list.begin(), axisRef);
      return closedSharding(mesh, axes,
                            given ? given.getPartial()
                                  : ArrayRef<dist::AxisRefAttr>());
    };
    llvm::StringSet<> said;
    setBoundaryShardings(
        getOperation(),
        [&](RankedTensorType type, DictionaryAttr attrs) -> dist::ShardingAttr {
          StringRef role = roleOf(attrs), name = nameOf(attrs);
          if (role == "state")
            return placed(type, attrs, name.rsplit('.').first);
          if (role != "parameter" && role != "gradient" && role != "tap")
            return {};
          dist::ShardingAttr sharding = placed(type, attrs, name);
          if (sharding && role == "parameter" && said.insert(name).second)
            remarkOnPadding(getOperation().getLoc(), name, type,
                            axesOf(sharding, type.getRank()), mesh.getMesh());
          return sharding;
        });
  }

  /// Matrices are read whole (as far as the axis goes) by the products of rows,
  /// which stay where they are: one constraint for each reader. Where rows go
  /// to the experts instead is decided when programs are local.
  void gatherMatrices(func::FuncOp func) {
    func.walk([&](nn::GroupedDotOp op) {
      OpBuilder builder(op);
      SmallVector<dist::DimShardingAttr> dims;
      for (int64_t dim = 0; dim < 3; ++dim)
        dims.push_back(dist::DimShardingAttr::get(
            &getContext(), ArrayRef<dist::AxisRefAttr>(), /*isOpen=*/dim != 0));
      auto whole = dist::ShardingAttr::get(
          &getContext(), FlatSymbolRefAttr::get(mesh.getSymNameAttr()), dims);
      Value matrices = op.getMatrices();
      op.getMatricesMutable().assign(dist::ConstrainOp::create(
          builder, op.getLoc(), matrices.getType(), matrices, whole,
          dist::PurposeAttr::get(&getContext(), dist::Purpose::Expert)));
    });
  }

  dist::MeshOp mesh;
  dist::AxisRefAttr axisRef;
  llvm::StringMap<int64_t> experts; // dimension by parameter
};

} // namespace
