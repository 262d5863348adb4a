#include "CheckValues.h"

#include "Command.h"

#include "cleave/Check/Views.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Import/ONNX/Import.h"
#include "cleave/io/Npy.h"
#include "cleave/io/Weights.h"
#include "cleave/trainer/Train.h"

#include <cmath>
#include <filesystem>
#include <memory>

using namespace cleave;
using namespace cleave::driver;

namespace {

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

void refuseNaN(const std::string &model, const std::string &name,
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

} // namespace

check::ValueOptions driver::storedValues(const std::string &model,
                                         const std::string &inputs,
                                         mlir::MLIRContext &context) {
  check::ValueOptions options;
  options.weights =
      [model, weights = std::make_shared<ModelWeights>(model)](
          const check::Port &port) -> mlir::FailureOr<std::optional<Tensor>> {
    std::optional<Tensor> tensor = weights->read(port);
    if (tensor)
      refuseNaN(model, port.name, *tensor);
    return tensor;
  };
  options.inputsFile = inputs;
  if (!inputs.empty())
    for (const auto &[name, array] : readNpz(inputs)) {
      options.inputs.emplace(name, tensorOf(array, context, name));
      options.inputsHeld[name] = array.dtype + shapeToString(array.shape);
    }
  return options;
}

void driver::writeGradients(mlir::ModuleOp module,
                            const check::Outcome &outcome,
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
    mlir::DictionaryAttr attrs = check::parameterOf(module, name);
    mlir::DictionaryAttr view;
    if (attrs)
      view = attrs.getAs<mlir::DictionaryAttr>(kViewAttr);
    Tensor stored = check::asStored(view, value);
    llvm::ArrayRef<int64_t> shape = stored.shape();
    llvm::ArrayRef<double> rest = stored.floats;
    auto names = nn::fileNamesOf(attrs);
    if (names.empty())
      names.push_back(name);
    // Tensors of the file that are stacked lie one after the other.
    bool isStacked = names.size() > 1;
    size_t part = rest.size() / (isStacked ? names.size() : 1);
    for (llvm::StringRef own : names) {
      add("grad/" + own.str(), isStacked ? shape.drop_front() : shape,
          rest.take_front(part), 1 / outcome.weight);
      rest = rest.drop_front(part);
    }
  };
  for (const check::Named &tensor : outcome.tensors) {
    if (tensor.kind == check::TensorKind::Gradient)
      addGradient(tensor.name, tensor.value);
    if (tensor.kind == check::TensorKind::Output)
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
  writeNpz(path, views);
}
