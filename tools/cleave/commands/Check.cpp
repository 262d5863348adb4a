// cleave check: the partitioned program computes what the unpartitioned one
// computes. See the design's rule of correctness.

#include "CompileModel.h"
#include "PipelineModel.h"
#include "ShardedModel.h"
#include "commands/Commands.h"

#include "cleave/Check/Check.h"
#include "cleave/Check/Faults.h"
#include "cleave/Check/Passes.h"
#include "cleave/Check/Recording.h"
#include "cleave/Check/Views.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Interpreter/Interpreter.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/io/Npy.h"
#include "cleave/io/Weights.h"
#include "cleave/trainer/Train.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>

using namespace cleave;
using namespace cleave::driver;
using mlir::ModuleOp;
using mlir::OwningOpRef;

namespace {

struct CheckCommand : CommonOptions {
  std::string model, inputs, inject, gradients, record, against = "compiled";
  bool json = false, bisect = false, interpret = false;
  uint64_t seed = 0;
  int64_t injectIndex = -1, steps = 5;

  int run() const;

private:
  void verifyFlags() const;
  void verifyRecord(const Config &config) const;
  void verifyInterpretable(ModuleOp module) const;
};

// An array of a file as the check's tensor.
Tensor tensorOf(const ArrayView &array, mlir::MLIRContext &context,
                const std::string &name) {
  mlir::Builder builder(&context);
  bool floats = isFloat(array.dtype);
  Tensor tensor(mlir::RankedTensorType::get(
      array.shape, floats ? mlir::Type(builder.getF64Type())
                          : mlir::Type(builder.getI64Type())));
  if (floats)
    convertElements(array.dtype, array.data, "f64",
                    reinterpret_cast<std::byte *>(tensor.floats.data()),
                    array.elements(), name);
  else
    for (int64_t i = 0; i < array.elements(); ++i)
      tensor.ints[i] = integerAt(array.dtype, array.data, i);
  return tensor;
}

// Reads what `nn.data` points at, seen as `nn.view` says.
class ModelWeights {
public:
  explicit ModelWeights(const std::string &model)
      : files(std::filesystem::path(model).parent_path().string()) {}

  std::optional<Tensor> read(const check::Port &port) {
    auto data = port.attrs.getAs<mlir::DictionaryAttr>(kDataAttr);
    auto parts = port.attrs.getAs<mlir::ArrayAttr>(nn::kPartsAttr);
    if (!data && !parts)
      return std::nullopt;
    ManifestTensor tensor;
    tensor.name = port.name;
    auto view = port.attrs.getAs<mlir::DictionaryAttr>(kViewAttr);
    llvm::ArrayRef<int64_t> shape = port.type.getShape();
    if (view)
      shape = view.getAs<mlir::DenseI64ArrayAttr>("shape");
    tensor.shape.assign(shape.begin(), shape.end());
    mlir::MLIRContext &context = *port.type.getContext();
    std::string label = "weights of '" + port.name + "'";
    if (data) {
      tensor.weight = weightOf(data);
      return check::seenThrough(view,
                                tensorOf(files.view(tensor), context, label));
    }
    tensor.dtype = "f64";
    for (auto part : parts.getAsRange<mlir::DictionaryAttr>())
      tensor.parts.push_back(
          {part.getAs<mlir::StringAttr>("name").str(),
           weightOf(part.getAs<mlir::DictionaryAttr>("data"))});
    return check::seenThrough(
        view, tensorOf(initialValue(tensor, files, 0), context, label));
  }

private:
  static WeightRef weightOf(mlir::DictionaryAttr data) {
    WeightRef ref;
    ref.file = data.getAs<mlir::StringAttr>("file").str();
    ref.offset = data.getAs<mlir::IntegerAttr>("offset").getInt();
    ref.length = data.getAs<mlir::IntegerAttr>("length").getInt();
    ref.dtype = data.getAs<mlir::StringAttr>("dtype").str();
    return ref;
  }

  WeightFiles files;
};

OwningOpRef<ModuleOp> clone(ModuleOp module) {
  return llvm::cast<ModuleOp>(module->clone());
}

// Makes the engines of a check and keeps what they refer to.
class EngineMaker {
public:
  EngineMaker(const CheckCommand &command, const Config &config,
              const Mesh &mesh)
      : command(command), config(config), mesh(mesh),
        transport(chooseTransport(config.target.transport, mesh.ranks(),
                                  config.target.kind)) {
    if (!command.record.empty())
      recording = std::make_unique<check::Recording>(command.record);
  }

  // What was written down, where that was asked for.
  std::unique_ptr<check::Recording> recording;

  // The fault that was made, for people; empty: none.
  std::string fault;

  // The model as it was loaded, which pipeline stages are cut from.
  OwningOpRef<ModuleOp> untrained;

  // The stages of a pipeline on a mesh, with all their values tapped or with
  // gradients alone.
  OwningOpRef<ModuleOp> stages(const Mesh &mesh, Taps taps) {
    OwningOpRef<ModuleOp> model = clone(*untrained);
    return buildPipeline(*model, config, mesh, Purpose::Compile, taps);
  }

  // The partitioned program, with the fault that was asked for. Taps in the
  // stages of a pipeline; those of other programs are in `global`.
  OwningOpRef<ModuleOp> partition(ModuleOp global,
                                  Taps taps = Taps::Gradients) {
    OwningOpRef<ModuleOp> local;
    if (untrained) {
      local = stages(mesh, taps);
    } else {
      local = clone(global);
      runShardPhase(*local, config, mesh);
    }
    if (command.inject.empty() || breaksCommands())
      return local;
    std::string where;
    if (failed(check::injectFault(*local, command.inject, faultIndex(*local),
                                  where)))
      throw Failure(BadUsage, "--inject: " + where);
    fault = command.inject + ": " + where;
    return local;
  }

  check::Engine &sharded(ModuleOp local, bool wide) {
    return command.interpret
               ? interpret(local)
               : compile(local, wide, mesh, breaksCommands(), transport);
  }

  // `global` before partitioning.
  check::Engine &reference(ModuleOp global, bool wide) {
    OwningOpRef<ModuleOp> one = clone(global);
    if (isSharded(*one))
      removeShardings(*one);
    if (wide && (command.against == "interpreter" || command.interpret))
      return interpret(*one);
    runShardPhase(*one, config, Mesh());
    return compile(*one, wide, Mesh(), /*isBroken=*/false, "local");
  }

  check::Engine &interpret(ModuleOp module) {
    modules.push_back(clone(module));
    widen(*modules.back());
    Diagnostics diagnostics(*module.getContext());
    auto engine = check::makeInterpreterEngine(*modules.back());
    if (failed(engine))
      diagnostics.fail(BadUsage);
    engines.push_back(std::move(*engine));
    return *engines.back();
  }

private:
  // The place that was asked for. In a program with taps, which may have
  // others, it is the one of the same name, or else of the same index.
  int64_t faultIndex(ModuleOp local) {
    std::vector<std::string> names = check::faultPlaces(local, command.inject);
    int64_t count = names.size(), index = command.injectIndex;
    if (index < 0)
      index = count / 2;
    if (index >= count)
      return index; // refused
    if (!brokenName) {
      brokenName = names[index];
      before = std::count(names.begin(), names.begin() + index, *brokenName);
      return index;
    }
    int64_t seen = 0;
    for (auto [i, name] : llvm::enumerate(names))
      if (name == *brokenName && seen++ == before)
        return i;
    return index;
  }

  bool breaksCommands() const {
    return !command.interpret && check::isFaultOfCommands(command.inject);
  }

  check::Engine &compile(ModuleOp local, bool wide, const Mesh &mesh,
                         bool isBroken, const std::string &transport) {
    std::vector<std::string> unread; // of what comes after partitioning
    Diagnostics diagnostics(*local.getContext(), &unread);
    modules.push_back(clone(local));
    if (wide)
      widen(*modules.back());
    check::CompiledOptions options;
    options.device = deviceOf(config);
    options.recording = recording.get();
    options.recordingName = std::string(wide ? "exact-" : "rounding-") +
                            (&mesh == &this->mesh ? "sharded" : "reference");
    options.architectures = config.target.architectures;
    options.threads = threadsPerRank(config, mesh);
    options.overlap = config.target.overlap;
    options.tf32 = config.train.precision == "tf32";
    options.cluster = clusterNameOf(config);
    options.transport = transport;
    options.arrivesEarly = !wide; // so that both extremes are seen
    if (wide) // a few steps: compiling takes longer than running
      options.optLevel = 1;
    std::string where;
    bool hasPlace = true, refused = false;
    options.refused = &refused;
    if (isBroken)
      options.change = [&](program::Program &program) {
        auto broken = check::injectFault(program, command.inject,
                                         command.injectIndex, where);
        hasPlace = succeeded(broken);
        return broken;
      };
    auto engine = check::makeCompiledEngine(*modules.back(), options);
    if (!hasPlace)
      throw Failure(BadUsage, "--inject: " + where);
    if (failed(engine)) // as by `compile`
      diagnostics.fail(refused ? BadUsage : RunFailed);
    if (isBroken)
      fault = command.inject + ": " + where;
    engines.push_back(std::move(*engine));
    return *engines.back();
  }

  static void widen(ModuleOp module) {
    Diagnostics diagnostics(*module.getContext());
    mlir::PassManager passes(module.getContext());
    passes.addPass(createWidenPass());
    if (failed(passes.run(module)))
      diagnostics.fail(BadUsage);
  }

  // The fault that was made first, and places of the same name before it.
  std::optional<std::string> brokenName;
  int64_t before = 0;

  const CheckCommand &command;
  const Config &config;
  const Mesh &mesh;
  const std::string transport; // of the sharded program
  std::vector<OwningOpRef<ModuleOp>> modules;
  std::vector<std::unique_ptr<check::Engine>> engines;
};

mlir::DictionaryAttr viewOfParameter(ModuleOp module, const std::string &name) {
  check::Port port;
  port.role = "parameter";
  port.name = name;
  return check::viewOf(module, port);
}

// The gradients of the mean loss, under the names and in the shapes of the
// file.
void writeGradients(ModuleOp module, const check::Outcome &outcome,
                    const std::string &path) {
  std::vector<std::pair<std::string, Array>> arrays;
  auto add = [&](const std::string &name, const Tensor &tensor, double scale) {
    Array array = makeArray("f64", tensor.shape().vec());
    for (int64_t i = 0; i < tensor.size(); ++i)
      array.as<double>()[i] = tensor.floats[i] * scale;
    arrays.emplace_back(name, std::move(array));
  };
  for (const check::Named &tensor : outcome.tensors) {
    if (tensor.kind == check::TensorKind::Gradient)
      add("grad/" + tensor.name,
          check::asStored(viewOfParameter(module, tensor.name), tensor.value),
          1 / outcome.weight);
    if (tensor.kind == check::TensorKind::Output)
      add(tensor.name, tensor.value, 1);
  }
  Array loss = makeArray("f64", {}), weight = makeArray("f64", {});
  *loss.as<double>() = outcome.loss / outcome.weight;
  *weight.as<double>() = outcome.weight;
  arrays.emplace_back("loss", std::move(loss));
  arrays.emplace_back("weight", std::move(weight));
  NamedViews views;
  for (const auto &[name, array] : arrays)
    views.emplace_back(name, array);
  writeNpz(path, views);
}

/// NaN equals NaN in a comparison, and spreads: nothing would be compared.
static void refuseNaN(const std::string &model, const std::string &name,
                      const Tensor &tensor) {
  if (!tensor.isFloat())
    return;
  auto found = llvm::find_if(tensor.floats,
                             [](double value) { return std::isnan(value); });
  if (found == tensor.floats.end())
    return;
  auto at = static_cast<int64_t>(found - tensor.floats.begin());
  throw Failure(BadUsage, model + ": '" + name + "' holds NaN at element " +
                              std::to_string(at) + " of " +
                              std::to_string(tensor.size()) +
                              ", so there is nothing to compare; check a model "
                              "whose weights are numbers");
}

/// The same where values make NaN of numbers.
static void refuseUndefinedLoss(const std::string &model,
                                const check::CheckReport &report) {
  for (auto [index, loss] : llvm::enumerate(report.referenceLosses))
    if (std::isnan(loss))
      throw Failure(BadUsage, model + ": the loss of step " +
                                  std::to_string(index + 1) +
                                  " is NaN on one rank, too, so there is "
                                  "nothing to compare; give other values with "
                                  "--seed or --inputs");
}

void CheckCommand::verifyFlags() const {
  if (against != "interpreter" && against != "compiled")
    throw Failure(BadUsage, "--against " + against +
                                ": expected compiled or interpreter");
  const std::vector<std::string> &kinds = check::faultKinds();
  if (!inject.empty() && llvm::find(kinds, inject) == kinds.end())
    throw Failure(BadUsage, "--inject " + inject +
                                ": unknown kind of fault; did you mean '" +
                                *nearest(inject, kinds, true) + "'?");
  if (interpret && check::isFaultOfCommands(inject))
    throw Failure(BadUsage, "--inject " + inject +
                                ": is a fault of command lists, which "
                                "--interpret does not run; leave --interpret "
                                "out");
}

// Known before anything runs.
void CheckCommand::verifyInterpretable(ModuleOp module) const {
  Diagnostics diagnostics(*module.getContext());
  module.walk([&](mlir::Operation *op) {
    if (hasReferenceSemantics(op))
      return;
    op->emitOpError("cannot be interpreted: it has no reference semantics; "
                    "expected operations of nn, arith and math");
    diagnostics.fail(BadUsage);
  });
}

// Before the work.
void CheckCommand::verifyRecord(const Config &config) const {
  if (record.empty())
    return;
  for (auto [isGiven, flag] :
       {std::pair(!inject.empty(), "--inject"),
        {bisect, "--bisect"},
        {interpret, "--interpret"},
        {!gradients.empty(), "--gradients"},
        {against != "compiled", "--against interpreter"}})
    if (isGiven)
      throw Failure(BadUsage, std::string("--record repeats a plain check; "
                                          "leave out ") +
                                  flag);
  if (config.target.kind != "cuda")
    throw Failure(BadUsage, "--record writes programs for devices; give --set "
                            "target.kind=cuda");
  if (config.train.precision == "tf32")
    throw Failure(BadUsage, "--record checks on the CPU, which has no TF32; "
                            "use fp32 or bf16 as train.precision");
  std::error_code error;
  if (std::filesystem::exists(record) &&
      !std::filesystem::is_empty(record, error))
    throw Failure(BadUsage, record + " exists; choose another folder");
}

int CheckCommand::run() const {
  verifyFlags();
  LoadedConfig loaded = loadConfigOrFail(*this);
  Config &config = loaded.config;
  verifyRecord(config);
  refuseBookedTypes(config);
  Mesh mesh = resolveMeshOrFail(config, *this, model);
  if (!gradients.empty()) {
    protectInputs(gradients, model, *this, config);
    refuseToReplace(gradients, {inputs});
  }
  if (!inputs.empty())
    bindGivenInputs(config, model, inputs);

  mlir::MLIRContext context;
  registerAll(context);
  // Before the work.
  chooseTransport(config.target.transport, mesh.ranks(), config.target.kind);
  OwningOpRef<ModuleOp> global =
      loadModel(model, config, context, /*readWeights=*/true,
                /*compiles=*/!interpret);
  if (interpret || against == "interpreter")
    verifyInterpretable(*global);
  OwningOpRef<ModuleOp> untrained;
  if (isPipelined(config, mesh) && !isSharded(*global)) {
    if (makeSchedule(config, mesh).table.asynchronous)
      throw Failure(BadUsage,
                    "parallel.pipeline.schedule = \"" +
                        config.parallel.pipeline.schedule +
                        "\" changes the mathematics, so one rank is no "
                        "reference for it; check another schedule");
    untrained = clone(*global);
  }
  if (!isSharded(*global))
    runTrainPhase(*global, config, /*tapGradients=*/true);
  else if (!gradients.empty())
    throw Failure(BadUsage, "--gradients: '" + model +
                                "' is one function with shardings of its own; "
                                "it is not differentiated");
  mesh = meshOf(*global, mesh);
  if (mesh.ranks() == 1 && against == "compiled" && !interpret &&
      gradients.empty() && inject.empty() && record.empty())
    llvm::errs() << "cleave: remark: on one rank the program is compared with "
                    "itself; --against interpreter compares it with plain "
                    "loops\n";

  check::ValueOptions valueOptions;
  valueOptions.seed = seed;
  valueOptions.perturb = gradients.empty();
  valueOptions.drawIntegers = isSharded(*global);
  ModelWeights weights(model);
  valueOptions.weights =
      [&](const check::Port &port) -> mlir::FailureOr<std::optional<Tensor>> {
    std::optional<Tensor> tensor = weights.read(port);
    if (tensor)
      refuseNaN(model, port.name, *tensor);
    return tensor;
  };
  valueOptions.inputsFile = inputs;
  if (!inputs.empty())
    for (const auto &[name, array] : readNpz(inputs)) {
      valueOptions.inputs.emplace(name, tensorOf(array, context, name));
      valueOptions.inputsHeld[name] = array.dtype + shapeToString(array.shape);
    }
  check::Values values(*global, valueOptions);
  check::CheckOptions options;
  options.microbatches = config.train.microbatches;
  options.steps = steps;
  // A scalar is made of many values that were rounded, to bf16 or TF32, one way
  // and the other: one epsilon of that, where f32 has sixteen of its own.
  if (config.train.precision == "bf16")
    options.epsilon = 0x1p-7 / 16;
  else if (config.train.precision == "tf32")
    options.epsilon = 0x1p-10 / 16;

  Diagnostics diagnostics(context);
  if (failed(values.verifyInputs(options.microbatches)))
    diagnostics.fail(BadUsage);

  EngineMaker maker(*this, config, mesh);
  maker.untrained = std::move(untrained);
  OwningOpRef<ModuleOp> local = maker.partition(*global);
  check::Engine &sharded = maker.sharded(*local, /*wide=*/true);
  if (!gradients.empty()) {
    if (failed(values.setInitial(sharded)))
      diagnostics.fail(RunFailed);
    auto outcome =
        check::runStep(*global, sharded, values, 1, options.microbatches);
    if (failed(outcome))
      diagnostics.fail(RunFailed);
    writeGradients(*global, *outcome, gradients);
    return Success;
  }

  check::CheckReport report;
  report.seed = seed;
  report.fault = maker.fault;
  check::NamedTensors first;
  if (failed(check::runExact(*global, sharded,
                             maker.reference(*global, /*wide=*/true), values,
                             options, report, first)))
    diagnostics.fail(RunFailed);
  refuseUndefinedLoss(model, report);
  if (interpret)
    report.notes.push_back(
        "the interpreter computes in double: no rounding part");
  else if (!report.pass())
    report.notes.push_back(
        "the program is wrong in f64, so its rounding was not looked at");
  else if (failed(check::runRounding(*global,
                                     maker.sharded(*local, /*wide=*/false),
                                     maker.reference(*global, /*wide=*/false),
                                     values, options, report, first)))
    diagnostics.fail(RunFailed);

  if (maker.recording)
    if (std::string error = maker.recording->write(options.epsilon);
        !error.empty())
      throw Failure(RunFailed, error);

  if (bisect && !report.pass()) {
    OwningOpRef<ModuleOp> tapped, tappedLocal;
    check::Engine *unsharded = nullptr;
    if (maker.untrained) { // beside the same stages, each on one rank
      Mesh stagesAlone = mesh;
      for (auto &[axis, size] : stagesAlone.axes)
        if (axis != config.parallel.pipeline.axis)
          size = 1;
      tapped = maker.stages(stagesAlone, Taps::Values);
      unsharded = &maker.interpret(*tapped);
    } else {
      tapped = clone(*global);
      check::tapAllValues(*tapped);
      unsharded = &maker.reference(*tapped, /*wide=*/true);
    }
    tappedLocal = maker.partition(*tapped, Taps::Values);
    auto found = check::firstDifference(
        *tapped, maker.sharded(*tappedLocal, /*wide=*/true), *unsharded, values,
        options);
    if (failed(found))
      diagnostics.fail(RunFailed);
    report.firstDifference =
        !found->empty()   ? *found
        : maker.untrained ? "none among the values that each stage computes"
                          : "none among the values of one step";
    // Values that are kept are further places for a fault.
    if (maker.fault != report.fault)
      report.notes.push_back("the first difference was looked for with another "
                             "fault of this kind: " +
                             maker.fault);
  }

  std::string text;
  llvm::raw_string_ostream out(text);
  if (json)
    check::writeJson(report, out);
  else
    check::writeText(report, out);
  std::cout << text;
  return report.pass() ? Success : AnswerIsNo;
}

} // namespace

std::function<int()> driver::addCheck(CLI::App &app) {
  auto command = std::make_shared<CheckCommand>();
  app.add_option("model", command->model, "an ONNX file, or nn IR in .mlir")
      ->type_name("MODEL")
      ->required();
  app.add_option("--inputs", command->inputs,
                 "inputs by name; those that it lacks are random")
      ->type_name("FILE.npz");
  app.add_flag("--json", command->json, "print the report as JSON");
  std::string kinds;
  for (const std::string &kind : check::faultKinds())
    kinds += (kinds.empty() ? "" : ", ") + kind;
  app.add_option("--inject", command->inject,
                 "break the sharded program on purpose: " + kinds)
      ->type_name("KIND");
  app.add_option("--inject-index", command->injectIndex,
                 "which place to break; default: the middle one")
      ->type_name("N");
  app.add_flag("--bisect", command->bisect,
               "name the first operation whose value differs");
  app.add_option("--against", command->against,
                 "what the sharded program is compared with: the unsharded "
                 "program compiled, or interpreted")
      ->type_name("compiled|interpreter")
      ->capture_default_str();
  app.add_flag("--interpret", command->interpret,
               "interpret both programs: nothing is compiled");
  app.add_option("--seed", command->seed, "of all random values")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--steps", command->steps, "steps to run end to end")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--gradients", command->gradients,
                 "write loss, outputs and gradients at the stored weights, and "
                 "compare nothing")
      ->type_name("FILE.npz");
  app.add_option("--record", command->record,
                 "with target.kind = \"cuda\": check on this CPU, and write "
                 "programs and values for test/gpu/replay, which repeats the "
                 "check on a device")
      ->type_name("DIR");
  addConfigFlags(app, *command);
  addRanksFlag(app, *command);
  return [command] {
    try {
      return command->run();
    } catch (const Error &error) { // of files
      throw Failure(ExitCode(int(error.code)), error.what());
    }
  };
}
