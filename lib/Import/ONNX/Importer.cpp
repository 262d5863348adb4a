// The import of one file.

#include "Importer.h"
#include "Classify.h"
#include "Families.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Interfaces/Interfaces.h"

#include <onnx/onnx_pb.h>

#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

/// Float tensors up to this size that are never trained become constants.
static constexpr int64_t kMaxInlineBytes = 4096;

OwningOpRef<ModuleOp> Importer::run() {
  context.loadDialect<func::FuncDialect, arith::ArithDialect, math::MathDialect,
                      nn::NNDialect>();
  if (mlir::failed(findInputs()) || mlir::failed(findOutputs()))
    return nullptr;
  markNeeded();
  if (mlir::failed(bindDims()) || mlir::failed(checkSupport()) ||
      mlir::failed(bindTies()))
    return nullptr;
  constants = findConstants(model, tokens);

  module = ModuleOp::create(model.location());
  builder.setInsertionPointToEnd(module->getBody());
  function = func::FuncOp::create(builder, model.location(), nn::kForwardFunc,
                                  builder.getFunctionType({}, {}));
  builder.setInsertionPointToEnd(function.addEntryBlock());
  if (mlir::failed(bindInputs()))
    return nullptr;
  lowerNodes();
  if (mlir::failed(finish()))
    return nullptr;
  return std::move(module);
}

//===----------------------------------------------------------------------===//
// Inputs, outputs, dimensions
//===----------------------------------------------------------------------===//

static Element elementOf(const ::onnx::ValueInfoProto &value) {
  return static_cast<Element>(value.type().tensor_type().elem_type());
}

std::string Importer::spellInputs() const {
  std::string names;
  for (const ::onnx::ValueInfoProto *input : inputs)
    names += (names.empty() ? "'" : ", '") + input->name() + "'";
  return names;
}

LogicalResult Importer::findInputs() {
  for (const ::onnx::ValueInfoProto &input : model.graph().input())
    if (!model.findInitializer(input.name()))
      inputs.push_back(&input);
  std::vector<std::string> candidates;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    Element type = elementOf(*input);
    if (!options.tokens.empty()
            ? input->name() == options.tokens
            : (type == Element::I64 || type == Element::I32) &&
                  input->type().tensor_type().shape().dim_size() == 2 &&
                  !options.inputs.count(input->name()) &&
                  input->name() != options.labels)
      candidates.push_back(input->name());
  }
  for (const auto &[name, binding] : options.inputs) {
    // These two are bound by default, whether the model has them or not.
    bool isDefault = name == "attention_mask" || name == "position_ids";
    if (!isDefault && llvm::none_of(inputs, [&](auto *input) {
          return input->name() == name;
        }))
      return error() << "has no input '" << name << "' (data.inputs." << name
                     << "); its inputs are " << spellInputs();
  }
  if (candidates.size() == 1)
    tokens = candidates[0];
  else if (!options.tokens.empty()) {
    return error() << "has no input '" << options.tokens
                   << "' (data.tokens); its inputs are " << spellInputs();
  }
  return success();
}

LogicalResult Importer::findOutputs() {
  std::vector<std::string> all;
  for (const auto &output : model.graph().output())
    all.push_back(output.name());
  outputs = options.outputs.empty() ? all : options.outputs;
  for (const std::string &name : outputs)
    if (!llvm::is_contained(all, name))
      return error() << "has no output '" << name << "'; its outputs are '"
                     << llvm::join(all, "', '") << "'";
  if (outputs.empty())
    return error() << "has no outputs";
  return success();
}

void Importer::markNeeded() {
  needed.insert(outputs.begin(), outputs.end());
  for (const FlatNode &node : llvm::reverse(model.nodes())) {
    bool used =
        llvm::any_of(node.proto->output(), [&](const std::string &name) {
          return !name.empty() && needed.count(name);
        });
    if (used)
      needed.insert(node.proto->input().begin(), node.proto->input().end());
  }
}

LogicalResult Importer::bindDims() {
  dims = options.dims;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    if (input->name() != tokens)
      continue;
    // The tokens input's dimensions have a second name each.
    const auto &shape = input->type().tensor_type().shape();
    for (int index : {0, 1}) {
      const char *key = index == 0 ? "batch" : "sequence";
      auto it = options.dims.find(key);
      if (index >= shape.dim_size() || it == options.dims.end())
        continue;
      const auto &dim = shape.dim(index);
      if (dim.has_dim_value() && dim.dim_value() != it->second)
        return error()
               << "fixes dimension " << index << " of input '" << tokens
               << "' to " << dim.dim_value() << ", but dims." << key << " is "
               << it->second
               << " in one microbatch; export the model with a symbolic "
                  "dimension or change dims."
               << key;
      if (dim.has_dim_param() && !dim.dim_param().empty())
        dims.try_emplace(dim.dim_param(), it->second);
    }
  }
  // The symbols that the inputs' shapes read.
  Bindings symbols;
  for (const ::onnx::ValueInfoProto *input : inputs)
    for (const auto &dim : input->type().tensor_type().shape().dim()) {
      std::string symbol;
      while (dim.has_dim_param() &&
             !evaluateDim(dim.dim_param(), symbols, symbol) &&
             !symbol.empty() && symbols.try_emplace(symbol, 1).second)
        symbol.clear();
    }
  for (const auto &[name, size] : options.dims)
    if (name != "batch" && name != "sequence" && !symbols.count(name)) {
      std::string known;
      for (const auto &[symbol, one] : symbols)
        known += (known.empty() ? "'" : ", '") + symbol + "'";
      return error() << "has no dimension '" << name << "' (dims." << name
                     << "); its dimensions are "
                     << (known.empty() ? "all fixed" : known);
    }
  for (const auto &[name, size] : dims)
    if (size < 1)
      return error() << "dims." << name << " is " << size
                     << ", expected at least 1";
  return success();
}

Expected<Shape> Importer::shapeOf(const ::onnx::ValueInfoProto &input) {
  if (!input.type().tensor_type().has_shape())
    return reason("has no shape in the file");
  Shape shape;
  std::vector<std::string> unboundDims, unboundKeys;
  for (const auto &dim : input.type().tensor_type().shape().dim()) {
    if (dim.has_dim_value()) {
      if (dim.dim_value() < 0)
        return reason("has the size " + Twine(dim.dim_value()));
      shape.push_back(dim.dim_value());
      continue;
    }
    size_t index = shape.size();
    // A nameless dimension of the tokens goes by its contract name.
    if (!dim.has_dim_param() || dim.dim_param().empty()) {
      auto it = input.name() == tokens && index < 2
                    ? dims.find(index == 0 ? "batch" : "sequence")
                    : dims.end();
      if (it == dims.end())
        return reason("has a dimension " + Twine(index) +
                      " without name or size; export the model with a named "
                      "dimension");
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
      unboundKeys.push_back("dims." + unbound);
    }
    shape.push_back(size.value_or(0));
  }
  if (!unboundDims.empty())
    return reason("has the unbound dimension" +
                  Twine(unboundDims.size() == 1 ? " " : "s ") +
                  llvm::join(unboundDims, ", ") + "; set " +
                  llvm::join(unboundKeys, ", "));
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

/// Whether the declared dimension has the size that the symbol is bound to:
/// outputs are declared loosely.
bool Importer::hasBatchAt(Value value, int64_t dim) const {
  auto type = cast<RankedTensorType>(value.getType());
  for (const Argument &argument : arguments)
    if (argument.batchDim)
      return dim < type.getRank() &&
             type.getDimSize(dim) ==
                 cast<RankedTensorType>(argument.value.getType())
                     .getDimSize(*argument.batchDim);
  return false;
}

std::optional<int64_t>
Importer::batchDimOf(const ::onnx::ValueInfoProto &value) const {
  std::optional<int64_t> found;
  std::string symbol = batchSymbol();
  const auto &shape = value.type().tensor_type().shape();
  for (int index = 0; index < shape.dim_size(); ++index) {
    const auto &dim = shape.dim(index);
    if (!isSymbol(dim) || dim.dim_param() != symbol)
      continue;
    if (found)
      return std::nullopt;
    found = index;
  }
  return found;
}

LogicalResult Importer::bindInputs() {
  std::string complaints;
  for (const ::onnx::ValueInfoProto *input : inputs) {
    const std::string &name = input->name();
    Element type = elementOf(*input);
    Type element = toType(type, &context);
    auto complain = [&](const Twine &why) {
      complaints += ("\n  input '" + Twine(name) + "' " + why).str();
    };
    if (!input->type().has_tensor_type()) {
      complain("is no tensor");
      continue;
    }
    if (type == Element::F16) {
      complain("has type f16, which is not supported; export the model in "
               "float32 or bfloat16");
      continue;
    }
    auto bound = options.inputs.find(name);
    bool isData =
        bound == options.inputs.end() || bound->second == InputBinding::Data;
    if (!element && (isData || !isInteger(type))) {
      complain("has type " + Twine(nameOf(type)) + ", which is not supported");
      continue;
    }
    Expected<Shape> shape = shapeOf(*input);
    if (!shape) {
      complain(llvm::toString(shape.takeError()));
      continue;
    }
    if (!isData) {
      if (bound->second == InputBinding::Arange) {
        HostTensor range(type, {shape->empty() ? 1 : shape->back()});
        for (int64_t i = 0; i < range.size(); ++i)
          range.setInt(i, i);
        if (shape->empty())
          range = range.reshaped({});
        values[name] = Operand(range.broadcastTo(*shape));
      } else {
        values[name] = Operand(HostTensor::splat(
            type, *shape, bound->second == InputBinding::Ones));
      }
      continue;
    }
    std::string role = name == tokens           ? "tokens"
                       : name == options.labels ? "labels"
                                                : "input";
    if (role == "input" && !needed.count(name))
      continue;
    values[name] = Operand(addArgument(RankedTensorType::get(*shape, element),
                                       name, role, nullptr));
    arguments.back().batchDim = batchDimOf(*input);
  }
  if (!complaints.empty())
    return error() << "has inputs that cannot be used:" << complaints;
  return success();
}

LogicalResult Importer::bindTies() {
  for (const Tie &tie : options.ties) {
    const TensorRef *primary = model.findInitializer(tie.primary);
    const TensorRef *copy = model.findInitializer(tie.copy);
    if (!primary || !copy)
      return error() << "has no initializer '"
                     << (primary ? tie.copy : tie.primary) << "' to tie";
    Shape want = copy->shape;
    if (tie.transposed)
      std::reverse(want.begin(), want.end());
    if (primary->shape != want || primary->type != copy->type ||
        primary == copy)
      return error() << "cannot tie '" << tie.copy << "' of shape "
                     << spell(copy->shape) << " to '" << tie.primary
                     << "' of shape " << spell(primary->shape);
    tieOfCopy[tie.copy] = &tie;
    tiesOf[tie.primary].push_back(&tie);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

void Importer::addProblem(const FlatNode &node, const Twine &why) {
  std::string domain =
      node.proto->domain().empty() ? "" : node.proto->domain() + ".";
  problems.push_back(("node '" + Twine(node.name) + "' (" + domain +
                      node.proto->op_type() + ", opset " + Twine(node.opset()) +
                      "): " + why)
                         .str());
}

static const OnnxOp *entryOf(const FlatNode &node) {
  const std::string &domain = node.proto->domain();
  if (!domain.empty() && domain != "ai.onnx")
    return nullptr;
  return findOnnxOp(node.proto->op_type(), node.opset());
}

static std::string whyUnknown(const FlatNode &node) {
  const std::string &domain = node.proto->domain();
  if (!domain.empty() && domain != "ai.onnx")
    return "operators of domain '" + domain + "' are not supported";
  if (node.opset() == 0)
    return "the model imports no operator set for it";
  for (const OnnxOp &op : onnxOps())
    if (op.name == node.proto->op_type())
      return "supported from opset " + std::to_string(op.first) + " to " +
             std::to_string(op.last);
  return "the operator is not supported; `cleave ops` lists those that are";
}

LogicalResult Importer::checkSupport() {
  for (const FlatNode &node : model.nodes()) {
    bool used =
        llvm::any_of(node.proto->output(), [&](const std::string &name) {
          return needed.count(name) && !name.empty();
        });
    if (used && !entryOf(node))
      addProblem(node, whyUnknown(node));
  }
  // Lowering goes on all the same, for a list that is whole.
  return success();
}

Expected<Operand> Importer::fromFile(const TensorRef &tensor) {
  if (tensor.type == Element::F16)
    return reason("tensor '" + tensor.name +
                  "' has type f16, which is not supported; export the model in "
                  "float32 or bfloat16");
  bool small = tensor.numElements() * byteSize(tensor.type) <= kMaxInlineBytes;
  if (!isFloat(tensor.type) || (constants.count(tensor.name) && small)) {
    CLEAVE_TRY(contents, Node::contents(model, tensor));
    return Operand(contents.compressed());
  }
  if (!tensor.inFile)
    return reason("tensor '" + tensor.name +
                  "' is not stored as contiguous bytes; save the model with "
                  "raw data");
  Operand operand;
  operand.type = tensor.type;
  operand.shape.assign(tensor.shape.begin(), tensor.shape.end());
  operand.file = &tensor;
  return operand;
}

const Operand *Importer::lookUp(const std::string &name, std::string &why) {
  static const Operand absent;
  if (name.empty())
    return &absent;
  auto it = values.find(name);
  if (it != values.end())
    return &it->second;
  if (failed.count(name))
    return nullptr;
  const TensorRef *tensor = model.findInitializer(name);
  if (!tensor) {
    why = "its input '" + name + "' is made by no node";
    return nullptr;
  }
  Expected<Operand> operand = fromFile(*tensor);
  if (!operand) {
    why = llvm::toString(operand.takeError());
    return nullptr;
  }
  return &(values[name] = *operand);
}

void Importer::lowerNodes() {
  for (const FlatNode &node : model.nodes()) {
    bool used =
        llvm::any_of(node.proto->output(), [&](const std::string &name) {
          return needed.count(name) && !name.empty();
        });
    if (used)
      lowerNode(node);
  }
}

void Importer::lowerNode(const FlatNode &flat) {
  // Without a reason: what it depends on has failed, and is in the list.
  auto fail = [&](const std::string &why) {
    if (!why.empty())
      addProblem(flat, why);
    failed.insert(flat.proto->output().begin(), flat.proto->output().end());
  };
  const OnnxOp *entry = entryOf(flat);
  if (!entry)
    return fail(""); // already in the list
  SmallVector<Operand> operands;
  for (const std::string &name : flat.proto->input()) {
    std::string why;
    const Operand *operand = lookUp(name, why);
    if (!operand)
      return fail(why);
    operands.push_back(*operand);
  }
  Node node(model, flat, operands, builder,
            [this](const TensorRef &tensor) { return argumentOf(tensor); });
  if (Error error = entry->lower(node))
    return fail(llvm::toString(std::move(error)));
  for (auto [name, result] : llvm::zip(flat.proto->output(), node.results)) {
    if (name.empty())
      continue;
    if (!result.value && !result.host && !result.file) {
      failed.insert(name);
      if (needed.count(name))
        addProblem(flat, "its output '" + name + "' is not supported");
      continue;
    }
    values[name] = result;
  }
}

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

Value Importer::addArgument(RankedTensorType type, std::string name,
                            std::string role, const TensorRef *tensor) {
  Location loc = NameLoc::get(StringAttr::get(&context, name));
  Value value = function.front().addArgument(type, loc);
  argumentIndex[name] = arguments.size();
  arguments.push_back({value, std::move(name), std::move(role), tensor});
  return value;
}

Expected<Value> Importer::argumentOf(const TensorRef &tensor) {
  auto tie = tieOfCopy.find(tensor.name);
  if (tie != tieOfCopy.end()) {
    Expected<Value> primary =
        argumentOf(*model.findInitializer(tie->second->primary));
    if (!primary || !tie->second->transposed)
      return primary;
    Shape permutation;
    for (int64_t dim = tensor.shape.size() - 1; dim >= 0; --dim)
      permutation.push_back(dim);
    Location loc = NameLoc::get(StringAttr::get(&context, tensor.name));
    return Value(nn::TransposeOp::create(builder, loc, *primary, permutation));
  }
  // Two initializers at one place of a file are one parameter.
  const TensorRef *first = &tensor;
  for (const TensorRef &other : model.initializers()) {
    if (&other == &tensor)
      break;
    if (other.inFile && other.range == tensor.range && tensor.range.length &&
        other.shape == tensor.shape && other.type == tensor.type) {
      first = &other;
      break;
    }
  }
  auto it = argumentIndex.find(first->name);
  if (it != argumentIndex.end())
    return arguments[it->second].value;
  Type element = toType(tensor.type, &context);
  if (!element)
    return reason("tensor '" + tensor.name + "' has type " +
                  nameOf(tensor.type) + ", which is not supported");
  return addArgument(RankedTensorType::get(tensor.shape, element), first->name,
                     constants.count(first->name) ? "constant" : "parameter",
                     first);
}

DictionaryAttr Importer::attributesOf(const Argument &argument) {
  NamedAttrList attributes;
  attributes.set(nn::kNameAttr, builder.getStringAttr(argument.name));
  attributes.set(nn::kRoleAttr, builder.getStringAttr(argument.role));
  if (argument.batchDim)
    attributes.set(nn::kBatchDimAttr,
                   builder.getI64IntegerAttr(*argument.batchDim));
  if (argument.tensor) {
    const ByteRange &range = argument.tensor->range;
    attributes.set(
        kDataAttr,
        builder.getDictionaryAttr(
            {builder.getNamedAttr("file", builder.getStringAttr(range.file)),
             builder.getNamedAttr("offset",
                                  builder.getI64IntegerAttr(range.offset)),
             builder.getNamedAttr("length",
                                  builder.getI64IntegerAttr(range.length)),
             builder.getNamedAttr("dtype", builder.getStringAttr(nameOf(
                                               argument.tensor->type)))}));
    SmallVector<Attribute> tied;
    auto add = [&](const std::string &name, bool transposed) {
      tied.push_back(builder.getDictionaryAttr(
          {builder.getNamedAttr("name", builder.getStringAttr(name)),
           builder.getNamedAttr("transposed",
                                builder.getBoolAttr(transposed))}));
    };
    for (const TensorRef &other : model.initializers())
      if (&other != argument.tensor && other.inFile && other.range.length &&
          other.range == range && other.shape == argument.tensor->shape)
        add(other.name, false);
    for (const Tie *tie : tiesOf[argument.name])
      add(tie->copy, tie->transposed);
    if (!tied.empty())
      attributes.set(kTiedAttr, builder.getArrayAttr(tied));
  }
  return attributes.getDictionary(&context);
}

LogicalResult Importer::finish() {
  // Results.
  SmallVector<Value> results;
  SmallVector<DictionaryAttr> resultAttributes;
  for (const std::string &name : outputs) {
    std::string why;
    const Operand *operand = lookUp(name, why);
    if (!operand) {
      if (!why.empty())
        problems.push_back("output '" + name + "': " + why);
      continue;
    }
    Build build(builder, NameLoc::get(builder.getStringAttr(name)),
                [this](const TensorRef &tensor) { return argumentOf(tensor); });
    Expected<Value> value = build.value(*operand);
    if (!value) {
      problems.push_back("output '" + name +
                         "': " + llvm::toString(value.takeError()));
      continue;
    }
    results.push_back(*value);
    NamedAttrList attributes;
    attributes.set(nn::kNameAttr, builder.getStringAttr(name));
    attributes.set(nn::kRoleAttr, builder.getStringAttr("output"));
    for (const auto &output : model.graph().output())
      if (std::optional<int64_t> dim = batchDimOf(output);
          dim && output.name() == name && hasBatchAt(*value, *dim))
        attributes.set(nn::kBatchDimAttr, builder.getI64IntegerAttr(*dim));
    resultAttributes.push_back(attributes.getDictionary(&context));
  }
  // Bytes that are not there.
  std::vector<std::string> incomplete;
  for (const Argument &argument : arguments)
    if (argument.tensor && !argument.tensor->missing.empty())
      incomplete.push_back("tensor '" + argument.tensor->name +
                           "': " + argument.tensor->missing);
  std::string missing = shortList(incomplete);
  if (!problems.empty()) {
    InFlightDiagnostic diagnostic = error();
    diagnostic << "uses what is not supported (" << problems.size()
               << (problems.size() == 1 ? " place):" : " places):");
    for (const std::string &problem : problems)
      diagnostic << "\n  " << problem;
    return diagnostic;
  }
  if (!missing.empty() && options.requireData)
    return error() << "lacks bytes of weights; put its external data, whole, "
                      "beside it:"
                   << missing;
  if (!missing.empty())
    emitRemark(model.location()) << "lacks bytes of weights:" << missing;

  auto end = func::ReturnOp::create(builder, model.location(), results);
  // Parameters, then constants, each by first use, then inputs.
  auto key = [&](const Argument &argument) {
    int kind = !argument.tensor ? 2 : argument.role == "constant";
    return std::pair<int, size_t>(kind, argumentIndex[argument.name]);
  };
  llvm::sort(arguments, [&](const Argument &a, const Argument &b) {
    return key(a) < key(b);
  });
  Block &entry = function.front();
  unsigned count = entry.getNumArguments();
  SmallVector<Type> argumentTypes, resultTypes;
  SmallVector<DictionaryAttr> argumentAttributes;
  for (Argument &argument : arguments) {
    Value moved =
        entry.addArgument(argument.value.getType(), argument.value.getLoc());
    argument.value.replaceAllUsesWith(moved);
    argumentTypes.push_back(moved.getType());
    argumentAttributes.push_back(attributesOf(argument));
  }
  entry.eraseArguments(0, count);
  // Not `results`: an argument among them has been replaced.
  llvm::append_range(resultTypes, end.getOperandTypes());
  function.setFunctionType(builder.getFunctionType(argumentTypes, resultTypes));
  function.setAllArgAttrs(argumentAttributes);
  function.setAllResultAttrs(resultAttributes);
  return verify(*module);
}

} // namespace cleave::importer

namespace cleave {

OwningOpRef<ModuleOp> importOnnx(StringRef path, const ImportOptions &options,
                                 MLIRContext &context) {
  std::unique_ptr<importer::Model> model = importer::Model::load(path, context);
  if (!model)
    return nullptr;
  return importer::Importer(*model, options, context).run();
}

} // namespace cleave
