// cleave check: the partitioned program computes what the unpartitioned one
// computes. See the design's rule of correctness.

#include "Phases.h"
#include "commands/Commands.h"

#include "cleave/Check/Check.h"
#include "cleave/Check/Faults.h"
#include "cleave/Check/Passes.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/io/Error.h"
#include "cleave/io/Npy.h"
#include "cleave/io/Weights.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

#include <filesystem>
#include <iostream>
#include <memory>

using namespace cleave;
using namespace cleave::driver;
using mlir::ModuleOp;
using mlir::OwningOpRef;

namespace {

struct CheckCommand : CommonOptions {
  std::string model, inputs, inject, gradients, against = "compiled";
  bool json = false, bisect = false;
  uint64_t seed = 0;
  int64_t injectIndex = -1, steps = 5;

  int run() const;
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

// `tensor` with dimension i of the result the old one's permutation[i].
Tensor permuted(const Tensor &tensor, llvm::ArrayRef<int64_t> permutation) {
  llvm::SmallVector<int64_t> shape;
  for (int64_t dim : permutation)
    shape.push_back(tensor.shape()[dim]);
  Tensor result(tensor.type.clone(shape));
  for (int64_t flat = 0; flat < result.size(); ++flat) {
    std::vector<int64_t> index = check::unflatten(flat, shape);
    std::vector<int64_t> source(index.size());
    for (auto [to, from] : llvm::enumerate(permutation))
      source[from] = index[to];
    int64_t at = 0;
    for (auto [i, size] : llvm::zip(source, tensor.shape()))
      at = at * size + i;
    if (tensor.isFloat())
      result.floats[flat] = tensor.floats[at];
    else
      result.ints[flat] = tensor.ints[at];
  }
  return result;
}

// Reads what `nn.data` points at, seen as `nn.view` says.
class ModelWeights {
public:
  explicit ModelWeights(const std::string &model)
      : files(std::filesystem::path(model).parent_path().string()) {}

  std::optional<Tensor> read(const check::Port &port) {
    auto data = port.attrs.getAs<mlir::DictionaryAttr>(kDataAttr);
    if (!data)
      return std::nullopt;
    ManifestTensor tensor;
    tensor.name = port.name;
    WeightRef ref;
    ref.file = data.getAs<mlir::StringAttr>("file").str();
    ref.offset = data.getAs<mlir::IntegerAttr>("offset").getInt();
    ref.length = data.getAs<mlir::IntegerAttr>("length").getInt();
    ref.dtype = data.getAs<mlir::StringAttr>("dtype").str();
    tensor.weight = ref;
    auto view = port.attrs.getAs<mlir::DictionaryAttr>(kViewAttr);
    auto ints = [&](llvm::StringRef key) {
      auto list = view ? view.getAs<mlir::DenseI64ArrayAttr>(key)
                       : mlir::DenseI64ArrayAttr();
      return list ? list.asArrayRef() : llvm::ArrayRef<int64_t>();
    };
    llvm::ArrayRef<int64_t> shape = view ? ints("shape") : port.type.getShape();
    tensor.shape.assign(shape.begin(), shape.end());
    Tensor value = tensorOf(files.view(tensor), *port.type.getContext(),
                            "weights of '" + port.name + "'");
    if (view)
      value.type = value.type.clone(ints("view"));
    if (!ints("permutation").empty())
      value = permuted(value, ints("permutation"));
    return value;
  }

private:
  WeightFiles files;
};

void widen(ModuleOp module) {
  Diagnostics diagnostics(*module.getContext());
  mlir::PassManager passes(module.getContext());
  passes.addPass(createWidenPass());
  if (failed(passes.run(module)))
    diagnostics.fail(BadUsage);
}

OwningOpRef<ModuleOp> clone(ModuleOp module) {
  return llvm::cast<ModuleOp>(module->clone());
}

// The gradients of the mean loss, under the names of the file.
void writeGradients(const check::Outcome &outcome, const std::string &path) {
  std::vector<std::pair<std::string, Array>> arrays;
  auto add = [&](const std::string &name, const Tensor &tensor, double scale) {
    Array array = makeArray("f64", tensor.shape().vec());
    for (int64_t i = 0; i < tensor.size(); ++i)
      array.as<double>()[i] = tensor.floats[i] * scale;
    arrays.emplace_back(name, std::move(array));
  };
  for (const check::Named &tensor : outcome.tensors) {
    if (tensor.kind == check::TensorKind::Gradient)
      add("grad/" + tensor.name, tensor.value, 1 / outcome.weight);
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

int CheckCommand::run() const {
  LoadedConfig loaded = loadConfigOrFail(*this);
  Config &config = loaded.config;
  Mesh mesh = resolveMeshOrFail(config, *this);
  if (against != "interpreter" && against != "compiled")
    throw Failure(BadUsage, "--against " + against +
                                ": expected compiled or interpreter");
  const std::vector<std::string> &kinds = check::faultKinds();
  if (!inject.empty() && llvm::find(kinds, inject) == kinds.end())
    throw Failure(BadUsage, "--inject " + inject +
                                ": unknown kind of fault; did you mean '" +
                                *nearest(inject, kinds, true) + "'?");
  if (against == "compiled")
    throw Failure(BadUsage, "--against compiled is not yet supported");

  mlir::MLIRContext context;
  registerAll(context);
  OwningOpRef<ModuleOp> global =
      loadModel(model, config, context, /*readWeights=*/true);
  runTrainPhase(*global, config, /*tapGradients=*/true);

  check::ValueOptions valueOptions;
  valueOptions.seed = seed;
  valueOptions.perturb = gradients.empty();
  ModelWeights weights(model);
  valueOptions.weights =
      [&](const check::Port &port) -> mlir::FailureOr<std::optional<Tensor>> {
    return weights.read(port);
  };
  if (!inputs.empty())
    for (const auto &[name, array] : readNpz(inputs))
      valueOptions.inputs.emplace(name, tensorOf(array, context, name));
  check::Values values(*global, valueOptions);
  check::CheckOptions options;
  options.microbatches = config.train.microbatches;
  options.steps = steps;

  check::CheckReport report;
  report.seed = seed;

  OwningOpRef<ModuleOp> local = clone(*global);
  runShardPhase(*local, config, mesh);
  auto breakOnPurpose = [&](ModuleOp module) {
    if (inject.empty())
      return;
    std::string where;
    if (failed(check::injectFault(module, inject, injectIndex, where)))
      throw Failure(BadUsage, "--inject " + inject + ": " + where);
    report.fault = inject + ": " + where;
  };
  breakOnPurpose(*local);

  Diagnostics diagnostics(context);
  if (failed(values.verifyInputs(options.microbatches)))
    diagnostics.fail(BadUsage);
  OwningOpRef<ModuleOp> wideLocal = clone(*local), wideGlobal = clone(*global);
  widen(*wideLocal);
  widen(*wideGlobal);
  auto sharded = check::makeInterpreterEngine(*wideLocal);
  auto reference = check::makeInterpreterEngine(*wideGlobal);
  check::Programs programs;
  programs.sharded = sharded.get();
  programs.reference = reference.get();

  if (!gradients.empty()) {
    if (failed(values.setInitial(*sharded)))
      diagnostics.fail(RunFailed);
    auto outcome =
        check::runStep(*global, *sharded, values, 1, options.microbatches);
    if (failed(outcome))
      diagnostics.fail(RunFailed);
    writeGradients(*outcome, gradients);
  }

  if (failed(check::runCheck(*global, programs, values, options, report)))
    diagnostics.fail(RunFailed);
  report.notes.push_back(
      "the interpreter computes in double: no rounding part");

  if (bisect && !report.pass()) {
    OwningOpRef<ModuleOp> tapped = clone(*global);
    check::tapAllValues(*tapped);
    OwningOpRef<ModuleOp> tappedLocal = clone(*tapped);
    runShardPhase(*tappedLocal, config, mesh);
    breakOnPurpose(*tappedLocal);
    widen(*tapped);
    widen(*tappedLocal);
    auto ours = check::makeInterpreterEngine(*tappedLocal);
    auto theirs = check::makeInterpreterEngine(*tapped);
    programs.sharded = ours.get();
    programs.reference = theirs.get();
    auto found = check::firstDifference(*tapped, programs, values, options);
    if (failed(found))
      diagnostics.fail(RunFailed);
    report.firstDifference =
        found->empty() ? "none among the values of one step" : *found;
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
  app.add_option("--inject", command->inject,
                 "break the sharded program on purpose")
      ->type_name("KIND");
  app.add_option("--inject-index", command->injectIndex,
                 "which place to break; default: the middle one")
      ->type_name("N");
  app.add_flag("--bisect", command->bisect,
               "name the first operation whose value differs");
  app.add_option("--against", command->against,
                 "what the sharded program is compared with: the compiled "
                 "unsharded program, or the interpreter")
      ->type_name("compiled|interpreter")
      ->capture_default_str();
  app.add_option("--seed", command->seed, "of all random values")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--steps", command->steps, "steps to run end to end")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--gradients", command->gradients,
                 "write loss, outputs and gradients at the stored weights")
      ->type_name("FILE.npz");
  addConfigFlags(app, *command);
  addRanksFlag(app, *command);
  addCacheFlag(app, *command);
  return [command] {
    try {
      return command->run();
    } catch (const Error &error) { // of files
      throw Failure(ExitCode(int(error.code)), error.what());
    }
  };
}
