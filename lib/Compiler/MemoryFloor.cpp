// Reports models that cannot fit into memory under any memory plan.

#include "cleave/Compiler/Compiler.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/Memory/Footprint.h"
#include "cleave/Support/Errors.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cleave::compiler {

Operation *lossFunctionOf(ModuleOp model) {
  for (StringRef name : {nn::kLossTrainFunc, nn::kLossFunc})
    if (auto func = model.lookupSymbol<func::FuncOp>(name))
      return func;
  return nullptr;
}

LogicalResult checkMemoryFloor(ModuleOp model, const Config &config,
                               const Mesh &mesh, int64_t limit) {
  auto loss = cast_or_null<func::FuncOp>(lossFunctionOf(model));
  if (!loss || limit <= 0)
    return success();
  double trained = 0, frozen = 0; // elements
  for (unsigned arg = 0; arg < loss.getNumArguments(); ++arg) {
    auto type = dyn_cast<RankedTensorType>(loss.getArgumentTypes()[arg]);
    if (!type)
      continue;
    if (nn::roleOf(loss, arg) == nn::Role::Parameter)
      trained += double(type.getNumElements());
    else if (loss.getArgAttr(arg, nn::kFrozenAttr))
      frozen += double(type.getNumElements());
  }
  BoundaryAxes axes = boundaryAxes(config, mesh);
  auto product = [&](const std::vector<std::string> &names) {
    double size = 1;
    for (const std::string &name : names)
      size *= double(mesh.size(name));
    return size;
  };
  // An upper bound of the number of shards of a parameter before ZeRO shards it
  // further: the number of ranks along all axes except those of data
  // parallelism. The expert-parallel axis counts as well, because experts have
  // most of the parameters.
  double modelRanks = double(mesh.ranks()) / product(axes.all()) *
                      double(mesh.size(config.parallel.expert.axis));
  double zero = product(axes.sharded());
  int64_t stage = config.parallel.data.zero;
  auto share = [&](double bytes, int from) {
    return bytes / modelRanks / (stage >= from ? zero : 1);
  };
  bool isNarrow = config.train.precision == "bf16";
  double parameters = share((isNarrow ? 2 : 4) * trained + 4 * frozen, 3);
  double gradients = share(4 * trained, 2);
  double moments = config.train.optimizer == "adamw" ? 2 : 1;
  double state = share(4 * (moments + isNarrow) * trained, 1);
  double floor = parameters + gradients + state;
  if (floor <= double(limit))
    return success();
  return configError(model.getContext())
         << "a rank needs at least " << readableBytes(floor)
         << ", but there are " << readableBytes(limit) << ": parameters "
         << readableBytes(parameters) << ", gradients "
         << readableBytes(gradients) << ", state of " << config.train.optimizer
         << " " << readableBytes(state)
         << "; split them further: parallel.data.zero, mesh.tensor or "
            "mesh.pipeline";
}

} // namespace cleave::compiler
