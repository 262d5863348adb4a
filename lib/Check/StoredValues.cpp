// Reads stored values for a check: weights of the model's files or of another
// file. The file readers throw exceptions, which are converted to diagnostics
// here.

#include "cleave/Check/StoredValues.h"

#include "cleave/Check/Views.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Import/ONNX/Import.h"
#include "cleave/Support/Errors.h"
#include "cleave/io/Npy.h"
#include "cleave/io/WeightNames.h"
#include "cleave/io/Weights.h"
#include "cleave/trainer/Checkpoint.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <set>

using namespace cleave;
using namespace cleave::check;

namespace {

// Converts an array that was read from a file to a tensor of the check.
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

// Reads parameters from the model's files: the bytes that an argument's
// attribute `nn.data` names, in the view (reshape and permutation) that
// `nn.view` gives.
class ModelWeights {
public:
  explicit ModelWeights(const std::string &model)
      : files(std::filesystem::path(model).parent_path().string()) {}

  std::optional<Tensor> read(const Port &port) {
    nn::DataAttr data = nn::dataOf(port.attrs);
    llvm::SmallVector<nn::PartAttr> parts = nn::partsOf(port.attrs);
    if (!data && parts.empty())
      return std::nullopt;
    ManifestTensor tensor;
    tensor.name = port.name;
    nn::ViewAttr view = nn::viewOf(port.attrs);
    llvm::ArrayRef<int64_t> shape =
        nn::fileShapeOf(port.attrs, port.type.getShape());
    tensor.shape.assign(shape.begin(), shape.end());
    mlir::MLIRContext &context = *port.type.getContext();
    std::string label = "weights of '" + port.name + "'";
    if (data) {
      tensor.weight = weightOf(data);
      return seenThrough(view, tensorOf(files.view(tensor), context, label));
    }
    tensor.dtype = "f64";
    for (nn::PartAttr part : parts) {
      if (!part.getData())
        return std::nullopt;
      tensor.parts.push_back({part.getName().str(), weightOf(part.getData())});
    }
    return seenThrough(
        view, tensorOf(initialValue(tensor, files, 0), context, label));
  }

private:
  static WeightRef weightOf(nn::DataAttr data) {
    return {data.getFile().str(), uint64_t(data.getOffset()),
            uint64_t(data.getLength()), data.getDtype().str()};
  }

  WeightFiles files;
};

// Reads parameters from a separate file of weights, by their names in the
// model.
class GivenWeights {
public:
  GivenWeights(const std::string &path, const std::string &model,
               mlir::ModuleOp module)
      : path(weightsFileOf(path)), file(this->path) {
    std::vector<WantedTensor> wanted;
    std::set<std::string> seen;
    for (auto func : module.getOps<mlir::func::FuncOp>())
      for (const Port &port : argumentsOf(func)) {
        if (!isGiven(port) || !seen.insert(port.name).second)
          continue;
        std::vector<int64_t> shape = shapeOf(port);
        auto names = nn::fileNamesOf(port.attrs);
        bool isStacked = bool(port.attrs.get(nn::kPartsAttr));
        if (isStacked)
          shape.erase(shape.begin());
        for (llvm::StringRef name : names)
          wanted.push_back(
              {name.str(),
               isStacked ? std::vector<std::string>() : aliasesOf(port), shape,
               mlir::isa<mlir::FloatType>(port.type.getElementType())});
      }
    requireTensors(this->path, file, wanted, "model '" + model + "'");
  }

  // Returns nullopt for constants that are not frozen parameters, because only
  // the model's own file has their values.
  std::optional<Tensor> read(const Port &port) const {
    if (!isGiven(port))
      return std::nullopt;
    std::vector<int64_t> shape = shapeOf(port);
    bool isFloating = mlir::isa<mlir::FloatType>(port.type.getElementType());
    Array whole = makeArray(isFloating ? "f64" : "i64", shape);
    auto names = nn::fileNamesOf(port.attrs);
    int64_t each = whole.elements() / int64_t(names.size());
    for (auto [index, name] : llvm::enumerate(names)) {
      const ArrayView *view = file.find(name.str());
      for (const std::string &alias : aliasesOf(port))
        if (!view)
          view = file.find(alias);
      convertElements(view->dtype, view->data, whole.dtype,
                      whole.bytes.data() + index * each * 8, each, name.str());
    }
    return seenThrough(nn::viewOf(port.attrs),
                       tensorOf(whole, *port.type.getContext(), port.name));
  }

private:
  static bool isGiven(const Port &port) {
    return port.attrs &&
           (nn::isOneOf(port.role, {nn::Role::Parameter, nn::Role::Buffer}) ||
            port.attrs.get(nn::kFrozenAttr));
  }
  static std::vector<int64_t> shapeOf(const Port &port) {
    return nn::fileShapeOf(port.attrs, port.type.getShape()).vec();
  }
  static std::vector<std::string> aliasesOf(const Port &port) {
    std::vector<std::string> names;
    for (llvm::StringRef other : nn::tiedNamesOf(port.attrs))
      names.push_back(other.str());
    return names;
  }

  std::string path;
  SafetensorsReader file;
};

void refuseNaN(const std::string &model, const std::string &name,
               const Tensor &tensor) {
  if (!tensor.isFloat())
    return;
  auto found = llvm::find_if(tensor.floats,
                             [](double value) { return std::isnan(value); });
  if (found == tensor.floats.end())
    return;
  auto at = static_cast<int64_t>(found - tensor.floats.begin());
  throw InputError(model + ": '" + name + "' holds NaN at element " +
                   std::to_string(at) + " of " + std::to_string(tensor.size()) +
                   ", so there is nothing to compare; check a model whose "
                   "weights are numbers");
}

} // namespace

static ValueOptions readValues(const std::string &model,
                               const std::string &inputs,
                               const std::string &weightsPath,
                               mlir::ModuleOp module) {
  mlir::MLIRContext &context = *module.getContext();
  ValueOptions options;
  std::shared_ptr<GivenWeights> given;
  if (!weightsPath.empty())
    given = std::make_shared<GivenWeights>(
        weightsPath, std::filesystem::path(model).stem().string(), module);
  options.weights =
      [model, given, &context, weights = std::make_shared<ModelWeights>(model)](
          const Port &port) -> mlir::FailureOr<std::optional<Tensor>> {
    try {
      std::optional<Tensor> tensor;
      if (given)
        tensor = given->read(port);
      if (!tensor)
        tensor = weights->read(port);
      if (tensor)
        refuseNaN(model, port.name, *tensor);
      return tensor;
    } catch (const Error &error) {
      return report(&context, error);
    }
  };
  options.inputsFile = inputs;
  if (!inputs.empty())
    for (const auto &[name, array] : readNpz(inputs)) {
      options.inputs.emplace(name, tensorOf(array, context, name));
      options.inputsHeld[name] = array.dtype + shapeToString(array.shape);
    }
  if (auto unread = module->getAttrOfType<mlir::ArrayAttr>(kUnreadAttr))
    for (llvm::StringRef name : unread.getAsValueRange<mlir::StringAttr>())
      options.unread.insert(name.str());
  return options;
}

mlir::FailureOr<ValueOptions> check::storedValues(const std::string &model,
                                                  const std::string &inputs,
                                                  const std::string &weights,
                                                  mlir::ModuleOp module) {
  try {
    return readValues(model, inputs, weights, module);
  } catch (const Error &error) {
    return report(module.getContext(), error);
  }
}

mlir::LogicalResult check::writeGradients(mlir::ModuleOp module,
                                          const Outcome &outcome,
                                          const std::string &path) {
  std::vector<std::pair<std::string, Array>> arrays;
  auto add = [&](const std::string &name, llvm::ArrayRef<int64_t> shape,
                 llvm::ArrayRef<double> values, double scale) {
    Array array = makeArray("f64", shape.vec());
    for (auto [index, value] : llvm::enumerate(values))
      array.as<double>()[index] = value * scale;
    arrays.emplace_back(name, std::move(array));
  };
  auto addGradient = [&](const std::string &name, const Tensor &value) {
    mlir::DictionaryAttr attrs = parameterOf(module, name);
    Tensor stored = asStored(nn::viewOf(attrs), value);
    llvm::ArrayRef<int64_t> shape = stored.shape();
    llvm::ArrayRef<double> rest = stored.floats;
    auto names = nn::fileNamesOf(attrs);
    if (names.empty())
      names.push_back(name);
    // If a parameter stacks several tensors of the file, their elements follow
    // one another.
    bool isStacked = names.size() > 1;
    size_t part = rest.size() / (isStacked ? names.size() : 1);
    for (llvm::StringRef own : names) {
      add("grad/" + own.str(), isStacked ? shape.drop_front() : shape,
          rest.take_front(part), 1 / outcome.weight);
      rest = rest.drop_front(part);
    }
  };
  for (const Named &tensor : outcome.tensors) {
    if (tensor.kind == TensorKind::Gradient)
      addGradient(tensor.name, tensor.value);
    if (tensor.kind == TensorKind::Output)
      add(tensor.name, tensor.value.shape(), tensor.value.floats, 1);
  }
  Array loss = makeArray("f64", {}), weight = makeArray("f64", {});
  *loss.as<double>() = outcome.loss / outcome.weight;
  *weight.as<double>() = outcome.weight;
  arrays.emplace_back("loss", std::move(loss));
  arrays.emplace_back("weight", std::move(weight));
  NamedViews views;
  for (const auto &[name, array] : arrays)
    views.emplace_back(name, array);
  try {
    writeNpz(path, views);
  } catch (const Error &error) {
    return report(module.getContext(), error);
  }
  return mlir::success();
}
