// strategy-tensor: which dimensions of which parameters to split.

#include "Boundary.h"
#include "DimClasses.h"
#include "cleave/Strategy/Passes.h"

#include "llvm/ADT/StringMap.h"

namespace cleave {
#define GEN_PASS_DEF_STRATEGYTENSORPASS
#include "cleave/Strategy/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

namespace {

/// A class is not worth its communication if a FLOP that it divides costs this
/// many times the bytes of the best class that communicates.
constexpr double kWorstCost = 32;

struct StrategyTensorPass
    : cleave::impl::StrategyTensorPassBase<StrategyTensorPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<dist::MeshOp> found = meshWithAxis(module, axis);
    if (failed(found))
      return signalPassFailure();
    mesh = *found;
    axisRef = dist::AxisRefAttr::get(&getContext(), axis);
    ways = dist::axisSize(mesh.getMesh(), axisRef);
    if (ways == 1)
      return;
    // The backward pass has all classes; a program for inference only, the
    // forward ones.
    auto func = module.lookupSymbol<func::FuncOp>(nn::kLossGradFunc);
    if (!func)
      func = module.lookupSymbol<func::FuncOp>(nn::kForwardFunc);
    if (!func) {
      module.emitError("has neither @loss_grad nor @forward to shard");
      return signalPassFailure();
    }
    DimClasses classes(func);
    SmallVector<const DimClass *> chosen = choose(classes);
    place(func, chosen);
  }

  /// Elements of the padded dimension per element of the dimension.
  double padding(const DimClass &dims) const {
    return double(dist::tileSize(dims.size, ways) * ways) / dims.size;
  }

  SmallVector<const DimClass *> choose(const DimClasses &classes) {
    SmallVector<const DimClass *> chosen;
    std::vector<bool> divided(classes.contractionFlops().size(), false);
    double best = 0;
    while (true) {
      const DimClass *next = nullptr;
      double nextRatio = 0;
      for (const DimClass &dims : classes.classes()) {
        if (!dims.splittable || dims.parameterDims.empty() ||
            padding(dims) > 1.5)
          continue;
        int64_t newly = 0;
        for (unsigned contraction : dims.divides)
          if (!divided[contraction])
            newly += classes.contractionFlops()[contraction];
        double ratio = double(newly) / std::max<int64_t>(dims.partialBytes, 1);
        if (ratio > nextRatio)
          next = &dims, nextRatio = ratio;
      }
      if (!next || nextRatio * kWorstCost < best)
        break;
      if (next->partialBytes > 0) // what is free is no measure
        best = std::max(best, nextRatio);
      chosen.push_back(next);
      for (unsigned contraction : next->divides)
        divided[contraction] = true;
    }
    return chosen;
  }

  void place(func::FuncOp func, ArrayRef<const DimClass *> chosen) {
    llvm::StringMap<dist::ShardingAttr> ofParameter;
    DenseMap<unsigned, Axes> axesOfArg;
    for (unsigned arg = 0; arg < func.getNumArguments(); ++arg)
      if (roleOf(func.getArgAttrDict(arg)) == "parameter")
        axesOfArg[arg] = axesOf(
            shardingOf(func.getArgAttrDict(arg)),
            cast<RankedTensorType>(func.getArgumentTypes()[arg]).getRank());
    for (const DimClass *dims : chosen)
      for (auto [arg, dim] : dims->parameterDims)
        // Of two chosen classes in one parameter the first wins.
        if (llvm::all_of(axesOfArg[arg],
                         [](auto &axes) { return axes.empty(); }))
          axesOfArg[arg][dim].push_back(axisRef);
    for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
      auto it = axesOfArg.find(arg);
      if (it == axesOfArg.end())
        continue;
      DictionaryAttr attrs = func.getArgAttrDict(arg);
      ofParameter[nameOf(attrs)] = closedSharding(mesh, it->second);
      auto type = cast<RankedTensorType>(func.getArgumentTypes()[arg]);
      bool split = llvm::any_of(it->second,
                                [](auto &axes) { return !axes.empty(); });
      for (auto [dim, axes] : llvm::enumerate(it->second))
        if (int64_t size = type.getDimSize(dim); !axes.empty() && size % ways)
          emitRemark(func.getLoc(), "parameter '")
              << nameOf(attrs) << "' of type " << type << ": dimension " << dim
              << " does not divide by the " << ways << " ranks of axis '"
              << axis << "', it is padded to "
              << dist::tileSize(size, ways) * ways;
      if (!split && type.getRank() >= 2)
        emitRemark(func.getLoc(), "parameter '")
            << nameOf(attrs) << "' of type " << type << " stays whole on the "
            << ways << " ranks of axis '" << axis << "'";
    }
    setBoundaryShardings(
        getOperation(),
        [&](RankedTensorType, DictionaryAttr attrs) -> dist::ShardingAttr {
          StringRef role = roleOf(attrs);
          if (role == "parameter" || role == "gradient" || role == "tap")
            return ofParameter.lookup(nameOf(attrs));
          if (role == "state")
            return ofParameter.lookup(nameOf(attrs).rsplit('.').first);
          return {};
        });
  }

  dist::MeshOp mesh;
  dist::AxisRefAttr axisRef;
  int64_t ways = 1;
};

} // namespace
