// cleave check: checks that the partitioned program computes the same as the
// unpartitioned one.

#include "Diagnostics.h"
#include "commands/Commands.h"

#include "cleave/Check/Check.h"
#include "cleave/Check/Faults.h"
#include "cleave/Check/Programs.h"
#include "cleave/Check/StoredValues.h"
#include "cleave/Compiler/Dialects.h"
#include "cleave/Compiler/Import.h"
#include "cleave/Compiler/Pipelined.h"
#include "cleave/Compiler/Sharded.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interpreter/Interpreter.h"
#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/trainer/Train.h"

#include "llvm/Support/raw_ostream.h"

#include <filesystem>
#include <iostream>
#include <memory>

using namespace cleave;
using namespace cleave::driver;
using compiler::isSharded;
using mlir::ModuleOp;
using mlir::OwningOpRef;

namespace {

OwningOpRef<ModuleOp> clone(ModuleOp module) {
  return llvm::cast<ModuleOp>(module->clone());
}

struct CheckCommand : CommonOptions, check::CheckedPrograms {
  std::string model, inputs, weights, gradients;
  bool json = false, bisect = false;
  uint64_t seed = 0;
  int64_t steps = 5;

  int run() const;

private:
  void verifyFlags() const;
  void verifyRecord(const Config &config) const;
  void verifyInterpretable(ModuleOp module) const;
  void prepareFiles(Config &config) const;
  OwningOpRef<ModuleOp> load(const Config &config, mlir::MLIRContext &context,
                             Diagnostics &diagnostics) const;
  void differentiate(ModuleOp global, const Config &config,
                     Diagnostics &diagnostics) const;
  check::ValueOptions valuesFor(ModuleOp global,
                                Diagnostics &diagnostics) const;
  void writeGradients(ModuleOp global, check::Engine &sharded,
                      check::Values &values, int64_t microbatches,
                      Diagnostics &diagnostics) const;
  void print(const check::CheckReport &report) const;
  OwningOpRef<ModuleOp> cutForStages(ModuleOp module, const Config &config,
                                     const Mesh &mesh) const;
  check::CheckOptions optionsFor(const Config &config) const;
  check::CheckReport compare(check::Programs &engines, ModuleOp global,
                             ModuleOp local, check::Engine &sharded,
                             check::Values &values,
                             const check::CheckOptions &options) const;
  void findFirstDifference(check::Programs &engines, ModuleOp global,
                           check::Values &values,
                           const check::CheckOptions &options,
                           const Config &config, const Mesh &mesh,
                           check::CheckReport &report) const;
};

/// Checks that a number is at least 1. The validator of CLI11 is not used,
/// because its error message would contain the largest double.
const CLI::Validator aboveZero(
    [](const std::string &text) {
      int64_t value = 0;
      return CLI::detail::lexical_cast(text, value) && value > 0
                 ? std::string()
                 : "expected a number of at least 1, found '" + text + "'";
    },
    "");

/// Refuses values that are not finite: the check counts NaN as equal to NaN,
/// and values that are computed from a NaN are NaN, too. So if such a
/// comparison finds no difference, this proves nothing.
void refuseUndefined(const std::string &model, check::CheckReport &report) {
  if (report.undefined.empty())
    return;
  std::string found = report.undefined + " on one rank";
  if (report.pass())
    throw Failure(BadUsage, model + ": " + found +
                                ", so that nothing after it can be compared; "
                                "give other values with --seed or --inputs, or "
                                "fewer --steps");
  report.notes.push_back(found);
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

// Refuses operations that cannot be interpreted, before anything runs.
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

// --record: refuses flags and settings that it does not support, before
// anything runs.
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

/// If `config` asks for a pipeline, returns a copy of the model, from which the
/// stages of the pipeline are cut. Returns null without a pipeline, or if the
/// model has shardings of its own.
OwningOpRef<ModuleOp> CheckCommand::cutForStages(ModuleOp module,
                                                 const Config &config,
                                                 const Mesh &mesh) const {
  if (!compiler::isPipelined(config, mesh) || isSharded(module))
    return nullptr;
  Diagnostics diagnostics(*module.getContext());
  auto schedule = diagnostics.need(
      compiler::makeSchedule(config, mesh, module.getContext()));
  if (schedule.table.asynchronous)
    throw Failure(BadUsage, "parallel.pipeline.schedule = \"" +
                                config.parallel.pipeline.schedule +
                                "\" changes the mathematics, so one rank is no "
                                "reference for it; check another schedule");
  return clone(module);
}

check::CheckOptions CheckCommand::optionsFor(const Config &config) const {
  check::CheckOptions options;
  options.microbatches = config.train.microbatches;
  options.steps = steps;
  // A scalar may differ by 16 * options.epsilon. By default, this is 16 machine
  // epsilons of f32. In bf16 and TF32, one machine epsilon of the type is
  // enough, because a scalar is a sum of many rounded values. So
  // options.epsilon is set to a sixteenth of that machine epsilon.
  if (config.train.precision == "bf16")
    options.epsilon = 0x1p-7 / 16;
  else if (config.train.precision == "tf32")
    options.epsilon = 0x1p-10 / 16;
  return options;
}

/// Runs both parts of the check. The exact part compares the sharded and the
/// unsharded program in f64, the rounding part in the training precision.
check::CheckReport
CheckCommand::compare(check::Programs &engines, ModuleOp global, ModuleOp local,
                      check::Engine &sharded, check::Values &values,
                      const check::CheckOptions &options) const {
  Diagnostics diagnostics(*global.getContext());
  check::CheckReport report;
  report.seed = seed;
  report.fault = engines.fault;
  check::NamedTensors first;
  check::Engine *reference =
      diagnostics.need(engines.reference(global, /*wide=*/true));
  if (failed(check::runExact(global, sharded, *reference, values, options,
                             report, first))) {
    // If an injected fault makes the ranks' programs inconsistent, the run
    // stops with an error. The fault counts as detected.
    if (!report.stopped || report.fault.empty())
      diagnostics.fail(RunFailed);
    report.notes.push_back("the broken program stopped: " +
                           diagnostics.errorText());
    return report;
  }
  refuseUndefined(model, report);
  if (interpret)
    report.notes.push_back(
        "the interpreter computes in double: no rounding part");
  else if (!report.pass())
    report.notes.push_back(
        "the program is wrong in f64, so its rounding was not looked at");
  else
    diagnostics.need(
        check::runRounding(
            global, *diagnostics.need(engines.sharded(local, /*wide=*/false)),
            *diagnostics.need(engines.reference(global, /*wide=*/false)),
            values, options, report, first),
        RunFailed);
  return report;
}

/// --bisect: names the first value that differs between the sharded and the
/// unsharded program. For this, it runs programs that keep all their values.
void CheckCommand::findFirstDifference(check::Programs &engines,
                                       ModuleOp global, check::Values &values,
                                       const check::CheckOptions &options,
                                       const Config &config, const Mesh &mesh,
                                       check::CheckReport &report) const {
  Diagnostics diagnostics(*global.getContext());
  OwningOpRef<ModuleOp> tapped;
  check::Engine *unsharded = nullptr;
  if (engines.untrained) { // beside the same stages, each on one rank
    Mesh stagesAlone = mesh;
    for (auto &[axis, size] : stagesAlone.axes)
      if (axis != config.parallel.pipeline.axis)
        size = 1;
    tapped = diagnostics.need(engines.stages(stagesAlone, check::Taps::Values));
    unsharded = diagnostics.need(engines.interpret(*tapped));
  } else {
    tapped = clone(global);
    check::tapAllValues(*tapped);
    unsharded = diagnostics.need(engines.reference(*tapped, /*wide=*/true));
  }
  OwningOpRef<ModuleOp> local =
      diagnostics.need(engines.partition(*tapped, check::Taps::Values));
  check::Engine *sharded =
      diagnostics.need(engines.sharded(*local, /*wide=*/true));
  std::string found = diagnostics.need(
      check::firstDifference(*tapped, *sharded, *unsharded, values, options),
      RunFailed);
  report.firstDifference =
      !found.empty()      ? found
      : engines.untrained ? "none among the values that each stage computes"
                          : "none among the values of one step";
  // These programs keep all values, so they have more commands at which a fault
  // can be injected. Another fault than in the first comparison may have been
  // injected.
  if (engines.fault != report.fault)
    report.notes.push_back("the first difference was looked for with another "
                           "fault of this kind: " +
                           engines.fault);
}

/// Checks that output files do not replace inputs. If --inputs is given, its
/// arrays determine the symbolic dimensions.
void CheckCommand::prepareFiles(Config &config) const {
  if (!gradients.empty()) {
    protectInputs(gradients, model, *this, config);
    refuseToReplace(gradients, {inputs});
    refuseOtherKind(gradients, "PK", "an .npz file");
  }
  if (!inputs.empty())
    bindGivenInputs(config, model, inputs);
}

OwningOpRef<ModuleOp> CheckCommand::load(const Config &config,
                                         mlir::MLIRContext &context,
                                         Diagnostics &diagnostics) const {
  compiler::LoadOptions options;
  options.readWeights = options.trains = true;
  options.compiles = !interpret;
  OwningOpRef<ModuleOp> global =
      diagnostics.need(compiler::loadModel(model, config, context, options));
  // Without --inputs, the inputs are random, so an index may be out of range
  // for the table that it indexes. nn.check_index would then stop the run, so
  // it is removed. The sharded and the unsharded program both read zeros for
  // such an index.
  if (inputs.empty())
    global->walk([](nn::CheckIndexOp op) {
      op.replaceAllUsesWith(op.getInput());
      op.erase();
    });
  if (interpret || against == "interpreter")
    verifyInterpretable(*global);
  return global;
}

/// Adds loss and gradients to a model. A function with shardings of its own is
/// left unchanged.
void CheckCommand::differentiate(ModuleOp global, const Config &config,
                                 Diagnostics &diagnostics) const {
  if (!isSharded(global)) {
    diagnostics.need(compiler::addLoss(global, config));
    diagnostics.need(
        compiler::addGradients(global, config, /*tapGradients=*/true));
  } else if (!gradients.empty()) {
    throw Failure(BadUsage, "--gradients: '" + model +
                                "' is one function with shardings of its own; "
                                "it is not differentiated");
  }
}

check::ValueOptions CheckCommand::valuesFor(ModuleOp global,
                                            Diagnostics &diagnostics) const {
  check::ValueOptions options =
      diagnostics.need(check::storedValues(model, inputs, weights, global));
  options.seed = seed;
  options.perturb = gradients.empty();
  options.drawIntegers = isSharded(global);
  return options;
}

/// --gradients: writes the gradients of the first step to a file.
void CheckCommand::writeGradients(ModuleOp global, check::Engine &sharded,
                                  check::Values &values, int64_t microbatches,
                                  Diagnostics &diagnostics) const {
  diagnostics.need(values.setInitial(sharded), RunFailed);
  check::Outcome outcome = diagnostics.need(
      check::runStep(global, sharded, values, 1, microbatches), RunFailed);
  diagnostics.need(check::writeGradients(global, outcome, gradients));
}

void CheckCommand::print(const check::CheckReport &report) const {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (json)
    check::writeJson(report, out);
  else
    check::writeText(report, out);
  std::cout << text;
}

int CheckCommand::run() const {
  verifyFlags();
  LoadedConfig loaded = loadConfigOrFail(*this);
  Config &config = loaded.config;
  verifyRecord(config);
  refuseBookedTypes(config);
  Mesh mesh = resolveMeshOrFail(config, *this, model);
  warnOfIdleKeys(loaded, mesh);
  prepareFiles(config);

  mlir::MLIRContext context;
  compiler::loadDialects(context);
  // chooseTransport() may fail, so it is called before the model is compiled.
  std::string transport = chooseTransport(config.target.transport, mesh.ranks(),
                                          config.target.kind);
  Diagnostics diagnostics(context);
  OwningOpRef<ModuleOp> global = load(config, context, diagnostics);
  OwningOpRef<ModuleOp> untrained = cutForStages(*global, config, mesh);
  differentiate(*global, config, diagnostics);
  mesh = compiler::meshOf(*global, mesh);
  if (mesh.ranks() == 1 && against == "compiled" && !interpret &&
      gradients.empty() && inject.empty() && record.empty())
    warn("on one rank the program is compared with itself; --against "
         "interpreter compares it with plain loops");

  check::Values values(*global, valuesFor(*global, diagnostics));
  check::CheckOptions options = optionsFor(config);
  diagnostics.need(values.verifyInputs(options.microbatches));

  check::Programs engines(*this, config, mesh, transport);
  engines.untrained = std::move(untrained);
  OwningOpRef<ModuleOp> local = diagnostics.need(engines.partition(*global));
  check::Engine &sharded =
      *diagnostics.need(engines.sharded(*local, /*wide=*/true));
  if (!gradients.empty()) {
    writeGradients(*global, sharded, values, options.microbatches, diagnostics);
    return Success;
  }

  check::CheckReport report =
      compare(engines, *global, *local, sharded, values, options);
  if (engines.recording)
    if (std::string error = engines.recording->write(options.epsilon);
        !error.empty())
      throw Failure(RunFailed, error);
  if (bisect && !report.pass() && !report.stopped)
    findFirstDifference(engines, *global, values, options, config, mesh,
                        report);

  print(report);
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
  app.add_option(
         "--weights", command->weights,
         "weights by their names: a checkpoint, a run (its newest one) or "
         "a .safetensors file; default: the model's own")
      ->type_name("DIR|FILE");
  app.add_flag("--json", command->json, "print the report as JSON");
  std::string kinds;
  for (const std::string &kind : check::faultKinds())
    kinds += (kinds.empty() ? "" : ", ") + kind;
  app.add_option("--inject", command->inject,
                 "inject a fault into the sharded program: " + kinds)
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
      ->check(aboveZero)
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
  addBindFlag(app, *command);
  addDumpFlag(app);
  addRanksFlag(app, *command);
  return [command] {
    try {
      return command->run();
    } catch (const Error &error) { // of files
      throw Failure(ExitCode(int(error.code)), error.what());
    }
  };
}
