// Runs the two programs of `cleave check`, the sharded program and the
// reference on one rank, and compares their results.

#include "cleave/Check/Check.h"

#include "cleave/Dialect/NN/IR/NN.h"

#include "llvm/Support/Format.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

/// Runs the functions of a program in the order of a training step.
class Runner {
public:
  Runner(ModuleOp module, Engine &engine, Values &values, int64_t microbatches)
      : module(module), engine(engine), values(values),
        microbatches(microbatches) {}

  FailureOr<Outcome> step(int64_t step) {
    if (failed(forward(step)))
      return failure();
    // A program without @loss_grad is only evaluated: @forward has run, and
    // nothing else remains to be done.
    if (!module.lookupSymbol(nn::kLossGradFunc) &&
        module.lookupSymbol(nn::kForwardFunc))
      return std::move(outcome);
    if (failed(gradients(step)) || failed(update()))
      return failure();
    return std::move(outcome);
  }

private:
  func::FuncOp find(StringRef name) {
    auto func = module.lookupSymbol<func::FuncOp>(name);
    return func && engine.hasFunction(name) ? func : func::FuncOp();
  }

  static std::optional<TensorKind> kindOf(const Port &port) {
    if (!port.role)
      return std::nullopt;
    switch (*port.role) {
    case nn::Role::Output:
      return TensorKind::Output;
    case nn::Role::Tap:
      return TensorKind::Gradient;
    case nn::Role::State:
    case nn::Role::Count:
      return TensorKind::State;
    case nn::Role::Parameter:
      return TensorKind::Parameter;
    case nn::Role::Buffer:
      return TensorKind::Buffer;
    case nn::Role::Loss:
    case nn::Role::Weight:
      return TensorKind::Loss;
    case nn::Role::Metric:
      return port.name == "grad_norm" ? TensorKind::Norm : TensorKind::Loss;
    default:
      return std::nullopt;
    }
  }

  /// Gets from the engine those results of the function that a check compares
  /// (only those of kind `only`, if given), and adds them to the outcome of the
  /// run.
  LogicalResult collect(func::FuncOp func,
                        std::optional<TensorKind> only = std::nullopt) {
    for (const Port &port : resultsOf(func)) {
      std::optional<TensorKind> kind = kindOf(port);
      if (!kind || (only && kind != only))
        continue;
      FailureOr<Gathered> got = engine.get(port);
      if (failed(got))
        return failure();
      outcome.tensors.push_back({port.name, *kind, std::move(got->whole),
                                 got->replicaDifference, got->rankOf});
    }
    return success();
  }

  LogicalResult forward(int64_t step) {
    func::FuncOp func = find(nn::kForwardFunc);
    if (!func)
      return success();
    if (failed(values.setMicrobatch(engine, step, 0)) ||
        failed(engine.run(nn::kForwardFunc)))
      return failure();
    return collect(func);
  }

  LogicalResult gradients(int64_t step) {
    func::FuncOp func = find(nn::kLossGradFunc);
    if (!func)
      return module.emitError("the module has no function @loss_grad to check");
    // True if @loss_grad itself sums gradients, loss or loss weight over
    // microbatches. Such sums must be zero before the first microbatch.
    bool addsGradients = false, addsLoss = false, addsWeight = false;
    for (const Port &port : argumentsOf(func)) {
      bool isGradient = port.role == nn::Role::Gradient;
      bool isLoss =
          port.role == nn::Role::Loss || port.role == nn::Role::Weight;
      addsGradients |= isGradient;
      addsLoss |= port.role == nn::Role::Loss;
      addsWeight |= port.role == nn::Role::Weight;
      if ((isGradient || isLoss || port.role == nn::Role::Accumulator) &&
          failed(engine.set(port, Tensor(port.type))))
        return failure();
    }
    if (microbatches > 1 && !(addsGradients && addsLoss && addsWeight))
      return func.emitError("adds up no ")
             << (!addsGradients ? "gradients"
                 : !addsLoss    ? "loss"
                                : "weight")
             << ", but a step has " << microbatches << " microbatches";
    for (int64_t k = 0; k < microbatches; ++k)
      if (failed(values.setMicrobatch(engine, step, k)) ||
          failed(engine.run(nn::kLossGradFunc)))
        return failure();
    for (const Port &port : resultsOf(func)) {
      bool isLoss = port.role == nn::Role::Loss;
      if (!isLoss && port.role != nn::Role::Weight)
        continue;
      FailureOr<Gathered> got = engine.get(port);
      if (failed(got))
        return failure();
      (isLoss ? outcome.loss : outcome.weight) = got->whole.floats[0];
    }
    return collect(func, TensorKind::Buffer);
  }

  LogicalResult update() {
    func::FuncOp func = find(nn::kUpdateFunc);
    if (!func)
      return module.emitError("the module has no function @update to check");
    if (failed(engine.run(nn::kUpdateFunc)))
      return failure();
    return collect(func);
  }

  ModuleOp module;
  Engine &engine;
  Values &values;
  int64_t microbatches;
  Outcome outcome;
};

void append(std::vector<TensorReport> &all, std::vector<TensorReport> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()),
             std::make_move_iterator(more.end()));
}

/// Records the noise of each gradient, that is, how much rounding alone changes
/// it: its difference from the gradient that was computed from inputs with
/// perturbed last digits (`perturbed`).
void noteNoise(NamedTensors &tensors, const NamedTensors &perturbed) {
  for (auto [tensor, other] : llvm::zip_equal(tensors, perturbed)) {
    if (tensor.kind != TensorKind::Gradient)
      continue;
    Difference found = difference(other.value, tensor.value);
    if (std::isfinite(found.largest))
      tensor.noise = found.largest;
  }
}

/// The error limit of a gradient normally includes its noise, that is, how much
/// rounding alone changes it. Noise that is too large for this (above
/// Tolerances::noiseCap) could hide a mistake and is not included. Adds a note
/// to the report for each such gradient.
void noteCapped(CheckReport &report, const NamedTensors &reference,
                const Tolerances &tolerances) {
  for (const TensorReport &found : report.tensors) {
    if (!found.aboveNoiseCap)
      continue;
    auto tensor = llvm::find_if(reference, [&](const Named &other) {
      return other.kind == found.kind && other.name == found.name;
    });
    std::string note;
    llvm::raw_string_ostream(note)
        << "rounding may move the gradient of '" << found.name << "' by "
        << llvm::format("%.1e", tolerances.noiseFactor * tensor->noise)
        << ", which is more than " << llvm::format("%.0e", tolerances.noiseCap)
        << " of the largest gradient: it is compared as one that does not "
           "cancel";
    report.notes.push_back(note);
  }
}

void addReplicas(CheckReport &report, const NamedTensors &tensors) {
  ReplicaReport found = worstReplica(tensors);
  if (found.largest > report.replicas.largest || std::isnan(found.largest))
    report.replicas = found;
}

} // namespace

FailureOr<Outcome> check::runStep(ModuleOp module, Engine &engine,
                                  Values &values, int64_t step,
                                  int64_t microbatches) {
  return Runner(module, engine, values, microbatches).step(step);
}

/// Describes the first undefined value among the results of a step: a NaN, or
/// an infinite loss or gradient. The loss and the gradients are considered
/// first. All other values, such as masks, may be infinite.
static std::string findUndefined(const Outcome &outcome, int64_t step) {
  std::string place = " of step " + std::to_string(step);
  if (outcome.weight != 0 && !std::isfinite(outcome.loss))
    return "the loss" + place + " is not finite";
  for (const Named &tensor : outcome.tensors)
    if (tensor.kind == TensorKind::Gradient &&
        !llvm::all_of(tensor.value.floats,
                      [](double value) { return std::isfinite(value); }))
      return "the gradient of '" + tensor.name + "'" + place + " is not finite";
  for (const Named &tensor : outcome.tensors)
    if (llvm::any_of(tensor.value.floats,
                     [](double value) { return std::isnan(value); }))
      return "'" + tensor.name + "'" + place + " holds NaN";
  return "";
}

LogicalResult check::runExact(ModuleOp module, Engine &sharded,
                              Engine &reference, Values &values,
                              const CheckOptions &options, CheckReport &report,
                              NamedTensors &first) {
  report.tolerance = options.tolerances.exact;
  reference.begin("perturbed");
  if (failed(values.setInitial(reference, /*perturbed=*/true)))
    return failure();
  FailureOr<Outcome> perturbed =
      runStep(module, reference, values, 1, options.microbatches);
  if (failed(perturbed))
    return failure();
  reference.begin("steps");
  for (Engine *engine : {&sharded, &reference})
    if (failed(values.setInitial(*engine)))
      return failure();
  for (int64_t step = 1; step <= options.steps; ++step) {
    FailureOr<Outcome> ours =
        runStep(module, sharded, values, step, options.microbatches);
    FailureOr<Outcome> theirs =
        runStep(module, reference, values, step, options.microbatches);
    report.stopped = failed(ours) && succeeded(theirs);
    if (failed(ours) || failed(theirs))
      return failure();
    if (ours->weight != 0 || theirs->weight != 0) {
      report.shardedLosses.push_back(ours->loss / ours->weight);
      report.referenceLosses.push_back(theirs->loss / theirs->weight);
    }
    if (report.undefined.empty())
      report.undefined = findUndefined(*theirs, step);
    addReplicas(report, ours->tensors);
    if (step == 1)
      noteNoise(theirs->tensors, perturbed->tensors);
    else
      for (auto [tensor, before] : llvm::zip_equal(theirs->tensors, first))
        tensor.noise = before.noise;
    if (step == 1 || step == options.steps)
      append(report.tensors, compareExact(ours->tensors, theirs->tensors, step,
                                          options.tolerances));
    if (step == 1) {
      noteCapped(report, theirs->tensors, options.tolerances);
      first = std::move(theirs->tensors);
    }
  }
  return success();
}

LogicalResult check::runRounding(ModuleOp module, Engine &sharded,
                                 Engine &unsharded, Values &values,
                                 const CheckOptions &options,
                                 CheckReport &report,
                                 const NamedTensors &reference) {
  NamedTensors real[2];
  for (auto [engine, tensors] :
       {std::pair{&sharded, &real[0]}, std::pair{&unsharded, &real[1]}}) {
    if (failed(values.setInitial(*engine)))
      return failure();
    FailureOr<Outcome> outcome =
        runStep(module, *engine, values, 1, options.microbatches);
    if (failed(outcome))
      return failure();
    *tensors = std::move(outcome->tensors);
  }
  addReplicas(report, real[0]);
  append(report.tensors, compareRounding(real[0], real[1], reference,
                                         options.epsilon, options.tolerances));
  return success();
}
