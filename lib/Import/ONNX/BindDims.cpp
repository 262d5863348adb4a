// Sizes of the inputs' symbolic dimensions.

#include "Build.h"
#include "Dims.h"
#include "Importer.h"

#include "cleave/io/Suggest.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

/// Binds `symbol`, the name of dimension `index` of the input `input` in the
/// ONNX file, to the configured size dims.`key`, where `key` is "batch" or
/// "sequence". It is an error if the user has given the symbol a different
/// size.
LogicalResult Importer::bindSymbol(const std::string &symbol, StringRef key,
                                   const std::string &input, int index) {
  int64_t size = options.dims.at(key.str());
  // The user may also have set the size of the batch dimension by `symbol`, its
  // name in the ONNX file. That size may be the size of one microbatch or of
  // the whole batch.
  int64_t whole = key == "batch" ? size * options.microbatches : size;
  auto given = options.dims.find(symbol);
  if (given != options.dims.end() && symbol != key && given->second != size &&
      given->second != whole)
    return error() << "has two sizes for dimension " << index << " of input '"
                   << input << "', dims." << key << " = " << whole << " and "
                   << dimKey(symbol) << " = " << given->second
                   << "; leave one of them out";
  dims[symbol] = size;
  return success();
}

LogicalResult Importer::bindBatch(const std::set<std::string> &symbols) {
  if (!options.dims.count("batch") || symbols.count("batch"))
    return success();
  // The name of an input's first dimension is taken for the name of the batch
  // dimension only if no input has a later dimension of this name. Otherwise
  // the name stands for a different size, such as the number of positions.
  std::set<std::string> others;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    const auto &shape = input->type().tensor_type().shape();
    for (int index = 1; index < shape.dim_size(); ++index)
      others.insert(shape.dim(index).dim_param());
  }
  std::string samples = batchSymbol();
  for (const ::onnx::ValueInfoProto *input : inputs) {
    const auto &shape = input->type().tensor_type().shape();
    if (shape.dim_size() == 0)
      continue;
    const std::string &symbol = shape.dim(0).dim_param();
    if (!isDimensionName(symbol) || others.count(symbol) ||
        (symbol != samples && dims.count(symbol)))
      continue;
    if (mlir::failed(bindSymbol(symbol, "batch", input->name(), 0)))
      return failure();
  }
  return success();
}

LogicalResult Importer::bindDims() {
  dims = options.dims;
  // The symbols that occur in the shapes of the inputs.
  std::set<std::string> symbols;
  for (const ::onnx::ValueInfoProto *input : inputs)
    for (const auto &dim : input->type().tensor_type().shape().dim()) {
      Bindings known;
      std::string symbol;
      while (dim.has_dim_param() &&
             !evaluateDim(dim.dim_param(), known, symbol) && !symbol.empty() &&
             known.try_emplace(symbol, 1).second) {
        symbols.insert(symbol);
        symbol.clear();
      }
    }
  bool isSequenceBound = false;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    const auto &shape = input->type().tensor_type().shape();
    // The dimensions of an input that is bound to an array get the array's
    // sizes.
    if (auto bound = options.bound.find(input->name());
        bound != options.bound.end() && !bound->second.isNumber)
      for (auto [dim, size] : llvm::zip(shape.dim(), bound->second.shape))
        if (isDimensionName(dim.dim_param()))
          dims.try_emplace(dim.dim_param(), size);
    if (input->name() != tokens)
      continue;
    // The configuration also calls dimensions 0 and 1 of the tokens input
    // "batch" and "sequence".
    for (int index : {0, 1}) {
      const char *key = index == 0 ? "batch" : "sequence";
      auto it = options.dims.find(key);
      if (index >= shape.dim_size() || it == options.dims.end())
        continue;
      isSequenceBound |= index == 1;
      const auto &dim = shape.dim(index);
      if (dim.has_dim_value() && dim.dim_value() != it->second)
        return error()
               << "fixes dimension " << index << " of input '" << tokens
               << "' to " << dim.dim_value() << ", but dims." << key << " is "
               << it->second
               << " in one microbatch; export the model with a symbolic "
                  "dimension or change dims."
               << key;
      if (dim.has_dim_param() && !dim.dim_param().empty() &&
          mlir::failed(bindSymbol(dim.dim_param(), key, tokens, index)))
        return failure();
    }
  }
  if (mlir::failed(bindBatch(symbols)))
    return failure();
  if (options.dims.count("sequence") && !symbols.count("sequence") &&
      !isSequenceBound)
    emitWarning(model.location())
        << "dims.sequence is not used: no input has a dimension of this name, "
           "and "
        << (tokens.empty() ? "no input holds tokens"
                           : "'" + tokens + "' has no dimension 1");
  for (const auto &[name, size] : options.dims)
    if (name != "batch" && name != "sequence" && !symbols.count(name)) {
      std::string known;
      std::vector<std::string> names(symbols.begin(), symbols.end());
      for (const std::string &symbol : names)
        known += (known.empty() ? "'" : ", '") + symbol + "'";
      names.insert(names.end(), {"batch", "sequence"});
      auto near = nearest(name, names);
      return error() << "has no dimension '" << name << "' (" << dimKey(name)
                     << "); its dimensions are "
                     << (known.empty() ? "all fixed" : known)
                     << (near ? "; did you mean " + dimKey(*near) + "?" : "");
    }
  for (const auto &[name, size] : dims)
    if (size < 1)
      return error() << dimKey(name) << " is " << size
                     << ", expected at least 1";
  return success();
}

Expected<Shape> Importer::shapeOf(const ::onnx::ValueInfoProto &input) {
  if (!input.type().tensor_type().has_shape())
    return reason("has no shape in the file");
  Shape shape;
  std::vector<std::string> unboundDims, unboundKeys;
  bool isOdd = false;
  for (const auto &dim : input.type().tensor_type().shape().dim()) {
    if (dim.has_dim_value()) {
      shape.push_back(dim.dim_value());
      continue;
    }
    size_t index = shape.size();
    // A dimension of the tokens input without a name in the file has the size
    // of "batch" or "sequence" in the configuration.
    if (!dim.has_dim_param() || dim.dim_param().empty()) {
      auto it = input.name() == tokens && index < 2
                    ? dims.find(index == 0 ? "batch" : "sequence")
                    : dims.end();
      if (it == dims.end())
        return reason("has a dimension " + Twine(index) +
                      " without name or size; export the model with a named "
                      "dimension, or give it one with "
                      "onnx.tools.update_model_dims");
      shape.push_back(it->second);
      continue;
    }
    std::string unbound;
    std::optional<int64_t> size = evaluateDim(dim.dim_param(), dims, unbound);
    if (size && *size < 0)
      return reason("has the dimension '" + dim.dim_param() + "' of size " +
                    Twine(*size));
    if (!size) {
      unboundDims.push_back("'" + dim.dim_param() + "'");
      // Reports a dimension without a size by the name that is easiest to set:
      // "batch" or "sequence" if it is one of these, otherwise its name in the
      // file.
      bool isTokens = input.name() == tokens && index < 2;
      std::string key = isTokens && index == 1                   ? "sequence"
                        : isTokens                               ? "batch"
                        : index == 0 && unbound == batchSymbol() ? "batch"
                                                                 : unbound;
      unboundKeys.push_back(dimKey(key));
      isOdd |= StringRef(unboundKeys.back()).contains('"');
    }
    shape.push_back(size.value_or(0));
  }
  if (!unboundDims.empty())
    return reason(
        "has the unbound dimension" +
        Twine(unboundDims.size() == 1 ? " " : "s ") +
        llvm::join(unboundDims, ", ") + "; set " +
        (isOdd ? "--set '" + llvm::join(unboundKeys, "=...' --set '") + "=...'"
               : llvm::join(unboundKeys, ", ")));
  return shape;
}

static bool isSymbol(const ::onnx::TensorShapeProto::Dimension &dim) {
  return dim.has_dim_param() && !dim.dim_param().empty();
}

std::string Importer::batchSymbol() const {
  std::string first;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    bool isTokens = input->name() == tokens;
    const auto &shape = input->type().tensor_type().shape();
    for (int index = 0; index < shape.dim_size(); ++index) {
      const auto &dim = shape.dim(index);
      if (!isSymbol(dim))
        continue;
      if (isTokens && index == 0)
        return dim.dim_param();
      if (tokens.empty() && dim.dim_param() == "batch")
        return "batch";
      if (tokens.empty() && index == 0 && first.empty())
        first = dim.dim_param();
    }
  }
  return first;
}

} // namespace cleave::importer
