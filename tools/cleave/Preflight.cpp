// Before a program is compiled.

#include "Preflight.h"

#include "Phases.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Memory/Footprint.h"
#include "cleave/device.h"
#include "cleave/io/Error.h"
#include "cleave/runtime.h"
#include "cleave/trainer/Data.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <filesystem>

using namespace mlir;

namespace cleave::driver {

namespace {

func::FuncOp lossOf(ModuleOp model) {
  for (StringRef name : {nn::kLossTrainFunc, nn::kLossFunc})
    if (auto func = model.lookupSymbol<func::FuncOp>(name))
      return func;
  return {};
}

std::string dtypeOf(Type element) {
  std::string text;
  llvm::raw_string_ostream(text) << element;
  return element.isUnsignedInteger() ? text.substr(1) : text; // ui8
}

StringRef textOf(func::FuncOp func, unsigned arg, StringRef key) {
  auto attr = func.getArgAttrOfType<StringAttr>(arg, key);
  return attr ? attr.getValue() : StringRef();
}

/// The inputs that a training program of this model has.
Manifest inputsOf(func::FuncOp loss, const Config &config) {
  Manifest manifest;
  manifest.configJson = writeConfigJson(config);
  for (unsigned arg = 0; arg < loss.getNumArguments(); ++arg) {
    auto type = dyn_cast<RankedTensorType>(loss.getArgumentTypes()[arg]);
    StringRef role = textOf(loss, arg, nn::kRoleAttr);
    static constexpr StringRef fed[] = {"tokens", "labels", "attention_mask",
                                        "position_ids", "input"};
    if (!type || !llvm::is_contained(fed, role) ||
        loss.getArgAttr(arg, nn::kWholeStepAttr)) // fed as another one is
      continue;
    ManifestInput input;
    input.name = textOf(loss, arg, nn::kNameAttr).str();
    input.role = role.str();
    input.dtype = dtypeOf(type.getElementType());
    input.shape = type.getShape().vec();
    input.batchDim =
        nn::batchDimOf(loss.getArgAttrDict(arg), type.getRank()).value_or(-1);
    if (role == "input") {
      auto source = config.data.inputs.find(input.name);
      input.source =
          source != config.data.inputs.end() ? source->second : input.name;
    } else if (role == "labels" && config.data.labels != "next") {
      input.source = config.data.labels;
    }
    manifest.inputs.push_back(std::move(input));
  }
  return manifest;
}

} // namespace

void checkMachine(const Config &config) {
  clusterOf(config);
  if (config.target.kind == "cuda" && cleave_find_cuda() != CLEAVE_OK)
    throw Failure(BadUsage, cleave_last_error());
}

void checkData(ModuleOp model, const Config &config) {
  func::FuncOp loss = lossOf(model);
  std::error_code error;
  if (!loss || !std::filesystem::exists(config.data.path, error))
    return;
  Manifest manifest = inputsOf(loss, config);
  try {
    openDataset(manifest, settingsOf(manifest));
  } catch (const Error &wrong) {
    throw Failure(ExitCode(int(wrong.code)), wrong.what());
  }
}

void checkMemoryFloor(ModuleOp model, const Config &config, const Mesh &mesh,
                      int64_t limit) {
  func::FuncOp loss = lossOf(model);
  if (!loss || limit <= 0)
    return;
  double trained = 0, frozen = 0; // elements
  for (unsigned arg = 0; arg < loss.getNumArguments(); ++arg) {
    auto type = dyn_cast<RankedTensorType>(loss.getArgumentTypes()[arg]);
    if (!type)
      continue;
    if (textOf(loss, arg, nn::kRoleAttr) == "parameter")
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
  // Whatever else splits, splits parameters at most so often: also the axis of
  // experts, which are most of a model that has them.
  double model_ = double(mesh.ranks()) / product(axes.all()) *
                  double(mesh.size(config.parallel.expert.axis));
  double zero = product(axes.sharded());
  int64_t stage = config.parallel.data.zero;
  auto share = [&](double bytes, int from) {
    return bytes / model_ / (stage >= from ? zero : 1);
  };
  bool isNarrow = config.train.precision == "bf16";
  double parameters = share((isNarrow ? 2 : 4) * trained + 4 * frozen, 3);
  double gradients = share(4 * trained, 2);
  double moments = config.train.optimizer == "adamw" ? 2 : 1;
  double state = share(4 * (moments + isNarrow) * trained, 1);
  double floor = parameters + gradients + state;
  if (floor <= double(limit))
    return;
  throw Failure(BadUsage,
                "a rank needs at least " + readableBytes(floor) +
                    ", but there are " + readableBytes(limit) +
                    ": parameters " + readableBytes(parameters) +
                    ", gradients " + readableBytes(gradients) + ", state of " +
                    config.train.optimizer + " " + readableBytes(state) +
                    "; split them further: parallel.data.zero, mesh.tensor or "
                    "mesh.pipeline");
}

} // namespace cleave::driver
