// strategy-expert: finds the parameters of experts and shards them.

#include "DimClasses.h"
#include "StrategyUtils.h"
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

/// Looks through saves, rematerializations and reshapes.
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
    for (auto [name, ref] :
         {std::pair<StringRef, dist::AxisRefAttr *>(axis, &axisRef),
          {tensorAxis, &widthRef}}) {
      if (name.empty())
        continue;
      FailureOr<dist::MeshOp> found = meshWithAxis(module, name);
      if (failed(found))
        return signalPassFailure();
      mesh = *found;
      auto split = dist::AxisRefAttr::get(&getContext(), name);
      if (dist::axisSize(mesh.getMesh(), split) > 1)
        *ref = split;
    }
    if (!axisRef && !widthRef)
      return;
    for (auto func : module.getOps<func::FuncOp>())
      if (!func.isDeclaration() && failed(findExperts(func)))
        return signalPassFailure();
    if (experts.empty() && required) {
      module.emitError("the module has no experts to split over axis '")
          << (axisRef ? axis : tensorAxis)
          << "': no parameter is read by nn.grouped_dot";
      return signalPassFailure();
    }
    place();
    if (!axisRef)
      return;
    for (auto func : module.getOps<func::FuncOp>())
      if (!func.isDeclaration())
        gatherMatrices(func);
  }

  /// Records which dimension of a parameter enumerates the experts. Such
  /// parameters are the matrices of grouped products, and tensors from which
  /// rows are gathered by the same expert ids.
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
    int64_t ranks = axisRef ? dist::axisSize(mesh.getMesh(), axisRef) : 1;
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
        if (axisRef && !dims.splittable)
          return emitError(func.getArgument(arg).getLoc(), "parameter '")
                 << name << "' of " << dims.size
                 << " experts is read as a whole, so axis '" << axis
                 << "' cannot split it";
        if (!hasOverride(getOperation(), name))
          experts.insert({name, of});
      }
    }
    return widthRef ? findWidth(func, classes) : success();
  }

  /// Records the inner dimension of the experts, their MLP width: the result of
  /// an expert's first matrix product has this dimension, and the second
  /// product contracts it. Only the parameters of experts have it.
  LogicalResult findWidth(func::FuncOp func, const DimClasses &classes) {
    bool any = false;
    // If a dimension is sharded, the results of products that contract it
    // become partial sums. Dimensions with the fewest bytes of such results are
    // preferred.
    SmallVector<const DimClass *> order;
    for (const DimClass &dims : classes.classes())
      order.push_back(&dims);
    llvm::stable_sort(order, [](const DimClass *a, const DimClass *b) {
      return a->partialBytes < b->partialBytes;
    });
    llvm::StringSet<> taken;
    for (const DimClass *at : order) {
      const DimClass &dims = *at;
      auto isOfExpert = [&](std::pair<unsigned, int64_t> of) {
        auto it = experts.find(nameOf(func.getArgAttrDict(of.first)));
        return it != experts.end() && it->second != of.second &&
               !taken.contains(it->first());
      };
      if (!dims.splittable || dims.parameterDims.empty() ||
          !llvm::all_of(dims.parameterDims, isOfExpert))
        continue;
      any = true;
      for (auto [arg, dim] : dims.parameterDims) {
        taken.insert(nameOf(func.getArgAttrDict(arg)));
        widths.insert({nameOf(func.getArgAttrDict(arg)), dim});
      }
    }
    if (!any && !experts.empty())
      return func.emitError("@")
             << func.getName() << " has no width of experts that axis '"
             << tensorAxis
             << "' could split: each dimension of their matrices is "
             << "shared with other parameters, or read as a whole";
    return success();
  }

  /// Shards the dimension of experts of all recorded parameters (findExperts):
  /// by the axis of experts first, and then by the axes of other strategies.
  void place() {
    auto placed = [&](RankedTensorType type, DictionaryAttr attrs,
                      StringRef name) -> dist::ShardingAttr {
      auto it = experts.find(name);
      if (it == experts.end())
        return {};
      dist::ShardingAttr given = shardingOf(attrs);
      Axes axes = axesOf(given, type.getRank());
      if (widthRef) {
        axes.assign(type.getRank(), {});
        if (auto width = widths.find(name); width != widths.end())
          axes[width->second].push_back(widthRef);
      }
      SmallVector<dist::AxisRefAttr> &list = axes[it->second];
      if (axisRef)
        list.insert(list.begin(), axisRef);
      return closedSharding(mesh, axes,
                            given && !widthRef ? given.getPartial()
                                               : ArrayRef<dist::AxisRefAttr>());
    };
    llvm::StringSet<> said;
    setBoundaryShardings(
        getOperation(),
        [&](RankedTensorType type, DictionaryAttr attrs) -> dist::ShardingAttr {
          std::optional<Role> role = roleOf(attrs);
          StringRef name = nameOf(attrs);
          if (role == Role::State)
            return placed(type, attrs, name.rsplit('.').first);
          if (role != Role::Parameter && role != Role::Gradient &&
              role != Role::Tap)
            return {};
          dist::ShardingAttr sharding = placed(type, attrs, name);
          if (sharding && role == Role::Parameter && said.insert(name).second)
            remarkOnPadding(getOperation().getLoc(), name, type,
                            axesOf(sharding, type.getRank()), mesh.getMesh());
          return sharding;
        });
  }

  /// Lets grouped products (grouped GEMM) read expert matrices that are not
  /// sharded over the axis of experts, so that tokens stay on their rank. Each
  /// reader gets a constraint of its own. The partitioner decides later whether
  /// tokens are dispatched to the experts instead.
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
  dist::AxisRefAttr axisRef, widthRef;      // null: nothing is split over it
  llvm::StringMap<int64_t> experts, widths; // dimension by parameter name
};

} // namespace
