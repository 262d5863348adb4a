// Checks that run before a program is compiled.

#include "Preflight.h"

#include "Diagnostics.h"

#include "cleave/Compiler/Compiler.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Support/Errors.h"
#include "cleave/device.h"
#include "cleave/io/Error.h"
#include "cleave/runtime.h"
#include "cleave/trainer/Data.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>

using namespace mlir;

namespace cleave::driver {

namespace {

std::string dtypeOf(Type element) {
  std::string text;
  llvm::raw_string_ostream(text) << element;
  return element.isUnsignedInteger() ? text.substr(1) : text; // ui8
}

/// Returns a manifest with the inputs that a training program of this model
/// will have.
Manifest inputsOf(func::FuncOp loss, const Config &config) {
  Manifest manifest;
  manifest.configJson = writeConfigJson(config);
  for (unsigned arg = 0; arg < loss.getNumArguments(); ++arg) {
    auto type = dyn_cast<RankedTensorType>(loss.getArgumentTypes()[arg]);
    std::optional<nn::Role> role = nn::roleOf(loss, arg);
    if (!type ||
        !nn::isOneOf(role,
                     {nn::Role::Tokens, nn::Role::Labels, nn::Role::Input}) ||
        loss.getArgAttr(arg, nn::kWholeStepAttr)) // fed as another one is
      continue;
    ManifestInput input;
    input.name = nn::nameOf(loss, arg).str();
    input.role = *inputRoleOf(nn::spell(role));
    input.dtype = dtypeOf(type.getElementType());
    input.shape = type.getShape().vec();
    input.batchDim =
        nn::batchDimOf(loss.getArgAttrDict(arg), type.getRank()).value_or(-1);
    if (role == nn::Role::Input) {
      auto source = config.data.inputs.find(input.name);
      input.source =
          source != config.data.inputs.end() ? source->second : input.name;
    } else if (role == nn::Role::Labels && config.data.labels != "next") {
      input.source = config.data.labels;
    }
    manifest.inputs.push_back(std::move(input));
  }
  return manifest;
}

} // namespace

void checkMachine(const Config &config) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  Diagnostics diagnostics(context);
  diagnostics.need(compiler::clusterOf(config, &context));
  if (config.target.kind == "cuda" && cleave_find_cuda() != CLEAVE_OK)
    throw Failure(BadUsage, cleave_last_error());
}

void warnOfCores(const Config &config, const Mesh &mesh) {
  int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  if (config.target.kind == "cpu" && !launcherWorldSize() &&
      mesh.ranks() > cores)
    warn(std::to_string(mesh.ranks()) + " ranks share " +
         std::to_string(cores) + " cores: times say nothing of " +
         std::to_string(mesh.ranks()) + " ranks");
}

/// Checks that data.path, if it is set, fits the inputs of the loss.
static LogicalResult checkData(func::FuncOp loss, const Config &config) {
  std::error_code error;
  if (!std::filesystem::exists(config.data.path, error))
    return success();
  Manifest manifest = inputsOf(loss, config);
  try {
    openDataset(manifest, settingsOf(manifest));
  } catch (const Error &wrong) {
    return report(loss.getContext(), wrong);
  }
  return success();
}

LogicalResult checkTraining(ModuleOp model, const Config &config,
                            const Mesh &mesh) {
  auto loss = cast_or_null<func::FuncOp>(compiler::lossFunctionOf(model));
  if (loss && failed(checkData(loss, config)))
    return failure();
  bool isHere = config.target.kind == "cpu" && !launcherWorldSize();
  int64_t limit = config.target.memory > 0
                      ? std::llround(std::ldexp(config.target.memory, 30))
                  : isHere ? compiler::memoryOfRank(mesh)
                           : 0;
  return compiler::checkMemoryFloor(model, config, mesh, limit);
}

} // namespace cleave::driver
