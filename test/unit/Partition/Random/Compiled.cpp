// Runs the part of a random test that follows the partitioning: compiles the
// program, runs its ranks as threads, and compares the results. The limits are
// those of `cleave check` (docs/check.md): four times the error of the
// single-device program. These tensors are small, so a result may happen to be
// exact for one draw of inputs. Therefore the error is measured for several
// draws, and the largest one counts.

#include "Compiled.h"

#include "Oracle.h"

#include "cleave/Autodiff/Passes.h"
#include "cleave/Check/Compare.h"
#include "cleave/Check/Engine.h"
#include "cleave/Check/Passes.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Utils/PortTable.h"
#include "control.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;
using namespace cleave;
using namespace cleave::random;
using check::Engine;
using check::Port;

namespace {

template <typename Function> Function *ofRecorder(const char *name) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library ? reinterpret_cast<Function *>(dlsym(library, name)) : nullptr;
}

/// Returns the errors that the simulated CUDA library has found since the last
/// call.
std::string recordedErrors() {
  static auto *take = ofRecorder<decltype(cleaveRecorderTakeErrors)>(
      "cleaveRecorderTakeErrors");
  std::string text(1 << 14, 0);
  if (!take || take(text.data(), text.size()) == 0)
    return "";
  text.resize(text.find('\n') + 1); // one error has many followers
  return text;
}

func::FuncOp functionOf(ModuleOp module) {
  return *module.getOps<func::FuncOp>().begin();
}

bool isAnyNumber(const Port &port) {
  return isa<FloatType>(port.type.getElementType()) &&
         nn::isOneOf(port.role, {nn::Role::Parameter, nn::Role::Input});
}

/// Gives every tensor a name, and the function the name that `cleave check`
/// runs.
void nameAll(ModuleOp module) {
  Builder builder(module.getContext());
  func::FuncOp func = functionOf(module);
  func.setName(nn::kForwardFunc);
  for (partition::Port &port : partition::portsOf(module)) {
    if (!port.name().empty())
      continue;
    auto name =
        builder.getStringAttr((port.isResult ? "r" : "i") + Twine(port.index));
    auto role = nn::RoleAttr::get(module.getContext(),
                                  port.isResult ? nn::Role::Output
                                                : nn::Role::Constant);
    if (port.isResult) {
      func.setResultAttr(port.index, nn::kNameAttr, name);
      func.setResultAttr(port.index, nn::kRoleAttr, role);
    } else {
      func.setArgAttr(port.index, nn::kNameAttr, name);
      func.setArgAttr(port.index, nn::kRoleAttr, role);
    }
  }
}

/// Returns the program for one device: without shardings, on a mesh of one
/// rank.
OwningOpRef<ModuleOp> onOneDevice(ModuleOp global) {
  OwningOpRef<ModuleOp> one = global.clone();
  MLIRContext *context = global.getContext();
  one->walk([](dist::ConstrainOp op) {
    op.replaceAllUsesWith(op.getInput());
    op.erase();
  });
  func::FuncOp func = functionOf(*one);
  auto key = StringAttr::get(context, dist::kShardingAttrName);
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    func.removeArgAttr(i, key);
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    func.removeResultAttr(i, key);
  dist::MeshOp mesh = *one->getOps<dist::MeshOp>().begin();
  mesh.setMeshAttr(dist::MeshAttr::get(
      context,
      {dist::MeshAxisAttr::get(context, StringAttr::get(context, "x"), 1)}));
  return one;
}

LogicalResult runPass(ModuleOp module, std::unique_ptr<Pass> pass) {
  PassManager passes(module.getContext());
  passes.addPass(std::move(pass));
  return passes.run(module);
}

/// Returns the program in f64 in which every bf16 value is rounded to bf16. A
/// compiled kernel may omit roundings of values inside it, so the roundings of
/// a compiled program depend on how it is divided into kernels. No compiled
/// program rounds more values than this program.
OwningOpRef<ModuleOp> rounding(ModuleOp global) {
  OwningOpRef<ModuleOp> module = global.clone();
  SmallVector<Value> narrow;
  auto add = [&](ValueRange values) {
    for (Value value : values)
      if (getElementTypeOrSelf(value.getType()).isBF16())
        narrow.push_back(value);
  };
  add(functionOf(*module).getArguments());
  module->walk([&](Operation *op) { add(op->getResults()); });
  OpBuilder b(global.getContext());
  for (Value value : narrow) {
    b.setInsertionPointAfterValue(value);
    Location loc = value.getLoc();
    auto wide = cast<RankedTensorType>(value.getType()).clone(b.getF64Type());
    // Veltkamp's splitting: with p = x (2^45 + 1), computed in f64, p - (p - x)
    // is x rounded to 8 bits.
    Operation *start = arith::ExtFOp::create(b, loc, wide, value);
    Value x = start->getResult(0),
          factor = nn::createSplat(b, loc, wide, 0x1p45 + 1);
    Value scaled = arith::MulFOp::create(b, loc, x, factor);
    Value lost = arith::SubFOp::create(b, loc, scaled, x);
    Value kept = arith::SubFOp::create(b, loc, scaled, lost);
    Value rounded = arith::TruncFOp::create(b, loc, value.getType(), kept);
    value.replaceAllUsesExcept(rounded, start);
  }
  if (failed(runPass(*module, createWidenPass())))
    return {};
  return module;
}

OwningOpRef<ModuleOp> widened(ModuleOp module) {
  OwningOpRef<ModuleOp> wide = module.clone();
  if (failed(runPass(*wide, createWidenPass())))
    return {};
  return wide;
}

constexpr check::Tolerances tolerances;

/// How far a scalar may be off, relative to the magnitudes from which it is
/// computed, even if the single-device program happens to compute it without
/// error. `cleave check` allows the same for scalars.
constexpr double scalarShare = tolerances.scalarEpsilons * 0x1p-23;

/// The largest error of each result against f64 so far. The error is relative
/// to the magnitude of the result or, if that is small, to a fraction of the
/// largest magnitude of all results.
struct Errors {
  std::vector<double> worst;

  void add(ArrayRef<Tensor> found, const Oracle &oracle, double allowed) {
    double largest = 0;
    for (const Tensor &tensor : oracle.results)
      if (tensor.isFloat())
        largest =
            std::max(largest, check::difference(tensor, tensor).magnitude);
    worst.resize(found.size());
    for (auto [got, want, tolerance, error] :
         llvm::zip_equal(found, oracle.results, oracle.tolerances, worst)) {
      check::Difference difference = check::difference(got, want);
      double more = difference.largest;
      if (want.isFloat())
        more -= allowed * tolerance.magnitude;
      if (more <= 0)
        continue;
      double unit =
          std::max(difference.magnitude, tolerances.roundingFloor * largest);
      error = std::max(error, want.isFloat()
                                  ? more / unit
                                  : std::numeric_limits<double>::infinity());
    }
  }
};

} // namespace

/// A case: one program, its values and its engines.
struct CompiledRunner::Case {
  Case(const CompileStyle &style, ModuleOp wide, uint64_t seed)
      : style(style), random(Random::mix(seed) + 1) {
    func::FuncOp func = functionOf(wide);
    arguments = check::argumentsOf(func);
    results = check::resultsOf(func);
    if (style.device == program::Device::Cuda)
      transport = random.chance(1, 2) ? "nccl" : "local";
    threads = random.between(1, 2);
    overlap = random.chance(2, 3);
  }

  std::vector<Tensor> draw() {
    std::vector<Tensor> values;
    for (const Port &port : arguments) {
      values.push_back(randomTensor(random, port.type));
      if (isAnyNumber(port))
        for (double &x : values.back().floats)
          x = float(double(random.between(-3000000, 3000000)) / 1e6);
    }
    return values;
  }

  std::unique_ptr<Engine> compile(ModuleOp local, bool wide, bool sharded) {
    check::CompiledOptions options;
    options.device = style.device;
    options.architectures = {"sm_90"};
    options.threads = threads;
    options.arrivesEarly = !wide;
    options.overlap = overlap;
    options.transport = sharded ? transport : "local";
    options.optLevel = 1; // compiling takes longer than running
    if (sharded)
      options.change = style.change;
    auto engine = check::makeCompiledEngine(local, options);
    return failed(engine) ? nullptr : std::move(*engine);
  }

  /// Computes all results for one draw of inputs. The outcome says whether
  /// replicas of a result differ between ranks.
  Outcome compute(Engine &engine, ArrayRef<Tensor> values,
                  std::vector<Tensor> &found) {
    for (auto [port, value] : llvm::zip_equal(arguments, values))
      if (failed(engine.set(port, value)))
        return {Outcome::NotRun, ""};
    if (failed(engine.run(nn::kForwardFunc)))
      return {Outcome::NotRun, ""};
    found.clear();
    for (const Port &port : results) {
      FailureOr<check::Gathered> got = engine.get(port);
      if (failed(got))
        return {Outcome::NotRun, ""};
      if (got->replicaDifference != 0)
        return {Outcome::ReplicaDiffers,
                "copies of '" + port.name + "' differ by " +
                    std::to_string(got->replicaDifference)};
      found.push_back(std::move(got->whole));
    }
    return {};
  }

  CompileStyle style;
  Random random;
  std::vector<Port> arguments, results;
  std::string transport = "local";
  int64_t threads;
  bool overlap;
};

CompiledRunner::CompiledRunner(MLIRContext *context, CompileStyle style,
                               bool interpret, bool prove)
    : Runner(context, prove), style(style) {
  interprets = interpret;
}

Outcome CompiledRunner::run(ModuleOp global, uint64_t seed, Coverage *coverage,
                            const Bug *bug, bool *planted) {
  OwningOpRef<ModuleOp> program = global.clone();
  diagnostics.clear();
  if (llvm::range_size(program->getOps<func::FuncOp>()) != 1)
    return {Outcome::BadProgram, "expected one function"};
  if (failed(verify(*program)))
    return {Outcome::BadProgram, diagnostics};
  nameAll(*program);
  if (style.bf16 && failed(runPass(*program, createMixedPrecisionPass())))
    return {Outcome::Refused, diagnostics};
  return Runner::run(*program, seed, coverage, bug, planted);
}

/// Compiles and runs the program in a child process, so that a crash of the
/// compiled code is a failing case, too. The parent runs nothing, so the fork
/// loses no threads.
Outcome CompiledRunner::runLocal(ModuleOp global, ModuleOp local,
                                 uint64_t seed) {
  int ends[2];
  if (::pipe(ends) != 0)
    return {Outcome::NotRun, "no pipe can be made"};
  pid_t child = fork();
  if (child < 0)
    return {Outcome::NotRun, "no process can be made"};
  if (child == 0) {
    close(ends[0]);
    Outcome outcome = runHere(global, local, seed);
    llvm::raw_fd_ostream out(ends[1], /*shouldClose=*/true);
    out << int(outcome.kind) << "\n" << outcome.message;
    out.close();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, got);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  auto [kind, message] = StringRef(text).split('\n');
  int number = Outcome::Crashed;
  if (WIFSIGNALED(status))
    return {Outcome::Crashed, "by signal " + std::to_string(WTERMSIG(status))};
  if (kind.getAsInteger(10, number))
    return {Outcome::Crashed,
            "with exit code " + std::to_string(WEXITSTATUS(status))};
  return {Outcome::Kind(number), message.str()};
}

Outcome CompiledRunner::runHere(ModuleOp global, ModuleOp local,
                                uint64_t seed) {
  bool isRecorded = style.device == program::Device::Cuda;
  auto withDiagnostics = [&](Outcome outcome) {
    std::string recorded = isRecorded ? recordedErrors() : std::string();
    outcome.message += diagnostics;
    if (!recorded.empty()) // the cause of what else is wrong
      return Outcome{Outcome::Disordered, recorded + outcome.message};
    return outcome;
  };
  OwningOpRef<ModuleOp> wideGlobal = widened(global), wide = widened(local),
                        rounded = rounding(global), one = onOneDevice(global);
  PassManager passes(global.getContext());
  buildPartitionPipeline(passes);
  if (!wideGlobal || !wide || !rounded || failed(passes.run(*one)))
    return withDiagnostics({Outcome::NotCompiled, ""});

  Case run(style, *wideGlobal, seed);
  std::vector<std::vector<Tensor>> values;
  std::vector<Oracle> oracles;
  for (int64_t i = 0; i < style.draws; ++i) {
    values.push_back(run.draw());
    FailureOr<Oracle> oracle = Oracle::of(functionOf(*wideGlobal), values[i]);
    if (failed(oracle))
      return withDiagnostics({Outcome::BadProgram, ""});
    oracles.push_back(std::move(*oracle));
  }

  std::vector<Tensor> found;
  {
    std::unique_ptr<Engine> engine = run.compile(*wide, true, true);
    if (!engine)
      return withDiagnostics({Outcome::NotCompiled, "in f64: "});
    for (int64_t i = 0; i < style.draws; ++i) {
      if (Outcome outcome = run.compute(*engine, values[i], found); !outcome)
        return withDiagnostics(outcome);
      for (auto [port, want, got, tolerance] : llvm::zip_equal(
               run.results, oracles[i].results, found, oracles[i].tolerances))
        if (std::string what = difference(want, got, tolerance); !what.empty())
          return withDiagnostics(
              {Outcome::WrongCompiled, "draw " + std::to_string(i) + ": '" +
                                           port.name + "' is " + what});
    }
  }

  std::unique_ptr<Engine> sharded = run.compile(local, false, true),
                          alone = run.compile(*one, false, false);
  if (!sharded || !alone)
    return withDiagnostics({Outcome::NotCompiled, ""});
  Errors ours, theirs;
  for (int64_t i = 0; i < style.draws; ++i) {
    for (auto [engine, errors, allowed] :
         {std::tuple{&sharded, &ours, scalarShare}, {&alone, &theirs, 0.0}}) {
      if (Outcome outcome = run.compute(**engine, values[i], found); !outcome)
        return withDiagnostics(outcome);
      errors->add(found, oracles[i], allowed);
    }
    FailureOr<std::vector<Tensor>> written =
        interpret(functionOf(*rounded), values[i]);
    if (failed(written))
      return withDiagnostics({Outcome::BadProgram, ""});
    theirs.add(*written, oracles[i], 0);
  }
  double epsilon = style.bf16 ? 0x1p-7 : scalarShare;
  for (auto [port, error, alone] :
       llvm::zip_equal(run.results, ours.worst, theirs.worst)) {
    double limit = tolerances.roundingFactor * alone +
                   tolerances.roundingSlack +
                   (port.type.getRank() == 0 ? epsilon : 0);
    if (!(error <= limit))
      return withDiagnostics(
          {Outcome::WrongRounding,
           llvm::formatv("'{0}' has an error of {1:E}, on one device {2:E}, so "
                         "the limit is {3:E}\n",
                         port.name, error, alone, limit)});
  }
  sharded.reset();
  alone.reset();
  return withDiagnostics({});
}

std::string cleave::random::prepareRecorder() {
  // The recorder reads this variable when it is first used.
  setenv("CLEAVE_RECORDER_KEEP_GOING", "1", 1);
  setenv("CLEAVE_RECORDER_DEVICES", "16", 1);
  setenv("CLEAVE_RECORDER_TIMEOUT", "20", 1);
  setenv("CLEAVE_HOST_KERNELS", "1", 1);
  if (!ofRecorder<decltype(cleaveRecorderTakeErrors)>(
          "cleaveRecorderTakeErrors"))
    return "libcuda.so.1 is not the recorder; it is built where the CUDA "
           "toolkit is";
  return "";
}
