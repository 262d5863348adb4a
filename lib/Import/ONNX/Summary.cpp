// Summarizes an ONNX file before the configuration gives sizes to its symbolic
// dimensions.

#include "Dims.h"
#include "MissingBytes.h"
#include "Problems.h"
#include "Ties.h"
#include "cleave/Import/ONNX/CheckTensors.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>

using namespace mlir;
using llvm::StringRef;

namespace cleave {

using namespace importer;

/// Returns the shape as the ONNX file spells it, with "?" for a dimension that
/// has neither a size nor a name.
static std::vector<std::string> shapeOf(const ::onnx::ValueInfoProto &value) {
  std::vector<std::string> shape;
  for (const auto &dim : value.type().tensor_type().shape().dim())
    shape.push_back(dim.has_dim_value()       ? std::to_string(dim.dim_value())
                    : dim.dim_param().empty() ? "?"
                                              : dim.dim_param());
  return shape;
}

static TensorSummary summarise(const ::onnx::ValueInfoProto &value) {
  auto type = static_cast<Element>(value.type().tensor_type().elem_type());
  return {value.name(), nameOf(type), shapeOf(value), ""};
}

/// Adds the symbols in a dimension's expression to `dims`.
static void addSymbols(const std::string &expression,
                       std::map<std::string, int64_t> known,
                       const std::string &where,
                       std::vector<DimSummary> &dims) {
  std::string unbound;
  while (!evaluateDim(expression, known, unbound) && !unbound.empty() &&
         known.try_emplace(unbound, 1).second) {
    if (llvm::none_of(dims, [&](auto &dim) { return dim.name == unbound; }))
      dims.push_back({unbound, where});
    unbound.clear();
  }
}

FailureOr<std::map<std::string, std::vector<int64_t>>>
initializersOf(StringRef path, MLIRContext &context,
               const ImportOptions &options) {
  std::unique_ptr<Model> model = loadSplit(path, options, context);
  if (!model)
    return failure();
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const TensorRef &tensor : model->initializers())
    shapes[tensor.name].assign(tensor.shape.begin(), tensor.shape.end());
  return shapes;
}

void importer::warnOfMissingBytes(Location loc,
                                  llvm::ArrayRef<std::string> tensors) {
  // The first name is always the same, as a warning is printed only once.
  emitWarning(loc) << "lacks bytes of weights: "
                   << *std::min_element(tensors.begin(), tensors.end())
                   << (tensors.size() == 1
                           ? ""
                           : ", and " + std::to_string(tensors.size() - 1) +
                                 " more");
}

/// Returns everything that is not supported in the file, as text.
static std::string unsupportedIn(const Model &model) {
  std::vector<std::string> outputs;
  for (const ::onnx::ValueInfoProto &output : model.graph().output())
    outputs.push_back(output.name());
  Problems problems;
  addUnsupported(model, valuesNeededBy(model, outputs), problems);
  return problems.empty() ? "" : problems.text();
}

LogicalResult checkTensors(StringRef path, MLIRContext &context,
                           const ImportOptions &options) {
  std::unique_ptr<Model> model = loadSplit(path, options, context);
  if (!model)
    return failure();
  if (!model->refusedInitializers().empty())
    return emitError(model->location()) << unsupportedIn(*model);
  auto uses = model->uses();
  std::vector<std::string> missing;
  for (const TensorRef &tensor : model->initializers())
    if (!tensor.missing.empty() && uses.count(tensor.name))
      missing.push_back("tensor '" + tensor.name + "': " + tensor.missing);
  if (!missing.empty())
    warnOfMissingBytes(model->location(), missing);
  return success();
}

FailureOr<FileSummary> summarizeOnnx(StringRef path, MLIRContext &context,
                                     const ImportOptions &options) {
  std::unique_ptr<Model> model = loadSplit(path, options, context);
  if (!model)
    return failure();
  FileSummary summary;
  summary.nodes = model->nodes().size();
  for (const ::onnx::ValueInfoProto &input : model->graph().input()) {
    if (model->findInitializer(input.name()))
      continue;
    summary.inputs.push_back(summarise(input));
    for (auto [index, dim] : llvm::enumerate(summary.inputs.back().shape)) {
      std::string where =
          "dimension " + std::to_string(index) + " of " + input.name();
      if (dim == "?")
        summary.dims.push_back({"", where});
      else if (!llvm::all_of(dim, llvm::isDigit))
        addSymbols(dim, {}, where, summary.dims);
    }
  }
  for (const ::onnx::ValueInfoProto &output : model->graph().output())
    summary.outputs.push_back(summarise(output));
  summary.unsupported = unsupportedIn(*model);
  Constants constants = findConstants(*model, "", options);
  std::map<std::string, std::string> primaryOf;
  for (const Tie &tie : tiesByContent(*model, constants).ties)
    primaryOf[tie.copy] = tie.primary;
  std::map<std::string, int> uses;
  for (const MergedTensor &tensor : mergedTensors(*model))
    uses[tensor.name] = tensor.uses;
  for (const TensorRef &tensor : model->initializers()) {
    if (!isFloat(tensor.type))
      continue;
    TensorSummary row{tensor.name, nameOf(tensor.type), {}, ""};
    for (int64_t size : tensor.shape)
      row.shape.push_back(std::to_string(size));
    if (auto constant = constants.find(tensor.name);
        constant != constants.end()) {
      row.note = spell(constant->second);
      if (tensor.numElements() > 1 || isNamedLikeParameter(tensor.name))
        summary.constants.push_back(row);
      continue;
    }
    if (auto tie = primaryOf.find(tensor.name); tie != primaryOf.end())
      row.note = "tied to " + tie->second;
    else if (int count = uses[tensor.name])
      row.note = "read by " + std::to_string(count) + " nodes";
    if (!primaryOf.count(tensor.name))
      summary.elements += tensor.numElements();
    summary.parameters.push_back(row);
  }
  return summary;
}

} // namespace cleave
