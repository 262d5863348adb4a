// The import of one file.

#include "Importer.h"
#include "Classify.h"
#include "Families.h"
#include "MissingBytes.h"
#include "Ties.h"

#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/Parts.h"
#include "cleave/Interfaces/Interfaces.h"

#include <onnx/onnx_pb.h>

#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringExtras.h"

#include <set>

using namespace mlir;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

/// Float tensors that are never trained become constants of the IR up to this
/// size; larger ones become function arguments.
static constexpr int64_t kMaxInlineBytes = 4096;

OwningOpRef<ModuleOp> Importer::run() {
  context.loadDialect<func::FuncDialect, arith::ArithDialect, math::MathDialect,
                      nn::NNDialect>();
  for (const Model::Refused &tensor : model.refusedInitializers())
    failed.insert(tensor.name);
  if (mlir::failed(findInputs()) || mlir::failed(findOutputs()))
    return nullptr;
  needed = valuesNeededBy(model, outputs);
  // If no output depends on the tokens input that was found automatically, the
  // model has none.
  if (options.tokens.empty() && !needed.count(tokens))
    tokens.clear();
  addUnsupported(model, needed, problems);
  if (mlir::failed(bindDims()) || mlir::failed(bindTies()))
    return nullptr;
  constants = findConstants(model, tokens, options);
  vectors = channelVectors(model);

  module = ModuleOp::create(model.location());
  builder.setInsertionPointToEnd(module->getBody());
  function = func::FuncOp::create(builder, model.location(), nn::kForwardFunc,
                                  builder.getFunctionType({}, {}));
  builder.setInsertionPointToEnd(function.addEntryBlock());
  bindInputs();
  // If an operator set has an unknown version, nodes are not lowered, since its
  // operators could differ in meaning from those of the known versions.
  if (model.versionProblem().empty())
    lowerNodes();
  else
    failed.insert(outputs.begin(), outputs.end());
  if (mlir::failed(finish()))
    return nullptr;
  (*module)->setAttr(kGraphDigestAttr, builder.getStringAttr(graphDigest()));
  if (mlir::failed(model.checkWhole()))
    return nullptr;
  return std::move(module);
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

bool Importer::isModuleBuffer(const TensorRef &tensor) const {
  auto constant = constants.find(tensor.name);
  return constant != constants.end() &&
         constant->second == ConstantKind::Buffer;
}

bool Importer::isBuffer(const TensorRef &tensor) const {
  auto constant = constants.find(tensor.name);
  return options.keepBuffers && constant != constants.end() &&
         constant->second == ConstantKind::NoGradient &&
         llvm::count_if(tensor.shape, [](int64_t size) { return size > 1; }) ==
             1;
}

Expected<Operand> Importer::fromFile(const TensorRef &tensor) {
  auto constant = constants.find(tensor.name);
  if (constant != constants.end()) {
    if (constant->second == ConstantKind::PositionTable) {
      tables.insert(tensor.name);
      emitRemark(model.location())
          << "'" << tensor.name
          << "' is taken for a table of positions, not a parameter: its "
             "elements are sinusoids or lines; name it in train.trainable to "
             "train it";
    }
    bool isFrozen = options.isFrozen && options.isFrozen(tensor.name);
    if (!isFrozen && (constant->second == ConstantKind::OpenNumber ||
                      (constant->second == ConstantKind::OneElement &&
                       (isNamedLikeParameter(tensor.name) ||
                        isFoldedFromTensor(model.metadata(), tensor.name)))))
      scalars.push_back(tensor.name);
  }
  bool small = tensor.numElements() * byteSize(tensor.type) <= kMaxInlineBytes;
  if (!isFloat(tensor.type) || tensor.numElements() == 0 ||
      (constants.count(tensor.name) && small && !isBuffer(tensor) &&
       !isModuleBuffer(tensor))) {
    CLEAVE_TRY(contents, Node::contents(model, tensor));
    return Operand(contents.compressed());
  }
  // If a constant is a mask of positions, its elements are read, so that it
  // becomes a formula and causal masks are recognized.
  if (constants.count(tensor.name) && holdsMask(model, tensor)) {
    emitRemark(model.location())
        << "'" << tensor.name
        << "' is taken for a mask, not a parameter: its elements are two "
           "numbers, one of them 0; name it in train.trainable to train it";
    CLEAVE_TRY(contents, Node::contents(model, tensor));
    if (isBand(contents))
      return Operand(contents.compressed());
  }
  if (!tensor.inFile)
    return reason("tensor '" + tensor.name +
                  "' is not stored as contiguous bytes; save the model with "
                  "raw data");
  Operand operand;
  operand.type = computedType(tensor.type);
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

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

Value Importer::addArgument(RankedTensorType type, std::string name,
                            nn::Role role, const TensorRef *tensor) {
  Location loc = NameLoc::get(StringAttr::get(&context, name));
  Value value = function.front().addArgument(type, loc);
  argumentIndex[name] = arguments.size();
  arguments.push_back({value, std::move(name), role, tensor,
                       /*batchDim=*/std::nullopt});
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
  // Initializers whose bytes have the same place in the same file are one
  // parameter, unless the user splits them (train.untie).
  const TensorRef *first = &tensor;
  for (const TensorRef &other : model.initializers()) {
    if (&other == &tensor || tensor.isApart)
      break;
    if (other.inFile && !other.isApart && other.range == tensor.range &&
        tensor.range.length && other.shape == tensor.shape &&
        other.type == tensor.type) {
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
                     isBuffer(*first)               ? nn::Role::Buffer
                     : isModuleBuffer(*first)       ? nn::Role::Parameter
                     : constants.count(first->name) ? nn::Role::Constant
                                                    : nn::Role::Parameter,
                     first);
}

DictionaryAttr Importer::attributesOf(const Argument &argument) {
  NamedAttrList attributes(
      nn::portAttrs(&context, argument.name, argument.role));
  if (argument.batchDim)
    attributes.set(nn::kBatchDimAttr,
                   builder.getI64IntegerAttr(*argument.batchDim));
  if (argument.role == nn::Role::Parameter && vectors.count(argument.name))
    attributes.set(nn::kVectorAttr, builder.getUnitAttr());
  if (argument.tensor && isModuleBuffer(*argument.tensor))
    attributes.set(nn::kFrozenAttr, builder.getUnitAttr());
  if (argument.tensor) {
    const ByteRange &range = argument.tensor->range;
    attributes.set(nn::kDataAttr,
                   nn::DataAttr::get(
                       &context, builder.getStringAttr(range.file),
                       range.offset, range.length,
                       builder.getStringAttr(nameOf(argument.tensor->type))));
    SmallVector<Attribute> tied;
    auto add = [&](const std::string &name, bool transposed) {
      tied.push_back(
          nn::TiedAttr::get(&context, builder.getStringAttr(name), transposed));
    };
    for (const TensorRef &other : model.initializers())
      if (&other != argument.tensor && other.inFile && other.range.length &&
          !other.isApart && !argument.tensor->isApart && other.range == range &&
          other.shape == argument.tensor->shape)
        add(other.name, false);
    for (const Tie *tie : tiesOf[argument.name])
      add(tie->copy, tie->transposed);
    if (!tied.empty())
      attributes.set(nn::kTiedAttr, builder.getArrayAttr(tied));
  }
  return attributes.getDictionary(&context);
}

Value Importer::resultOf(const std::string &name) {
  std::string why;
  const Operand *operand = lookUp(name, why);
  if (!operand) {
    if (!why.empty())
      problems.add("output '" + name + "': " + why);
    return nullptr;
  }
  if (operand->parts) {
    problems.add("output '" + name +
                 "' is a sequence of tensors, expected a tensor");
    return nullptr;
  }
  if (operand->chosen) {
    problems.add("output '" + name +
                 "': its shape depends on data: it holds the rows that "
                 "a mask chooses");
    return nullptr;
  }
  Build build(builder, NameLoc::get(builder.getStringAttr(name)),
              [this](const TensorRef &tensor) { return argumentOf(tensor); });
  Expected<Value> value = build.value(*operand);
  if (value)
    return *value;
  problems.add("output '" + name + "': " + llvm::toString(value.takeError()));
  return nullptr;
}

LogicalResult Importer::checkBytes() {
  std::vector<std::string> incomplete;
  for (const Argument &argument : arguments)
    if (argument.tensor && !argument.tensor->missing.empty())
      incomplete.push_back("tensor '" + argument.tensor->name +
                           "': " + argument.tensor->missing);
  if (incomplete.empty())
    return success();
  if (options.requireData)
    return error() << "lacks bytes of weights; put its external data, whole, "
                      "beside it:"
                   << shortList(incomplete);
  warnOfMissingBytes(model.location(), incomplete);
  return success();
}

void Importer::noteConstants() {
  SmallVector<Attribute> names;
  for (const auto &[name, kind] : constants)
    if (kind != ConstantKind::Buffer && values.count(name) &&
        (model.findInitializer(name)->numElements() > 1 ||
         isNamedLikeParameter(name)))
      names.push_back(builder.getStringAttr(name));
  if (!names.empty())
    function->setAttr(nn::kConstantsAttr, builder.getArrayAttr(names));
}

SmallVector<DictionaryAttr> Importer::orderArguments() {
  // Arguments are sorted: parameters, then constants, each by first use, then
  // inputs.
  auto key = [&](const Argument &argument) {
    int kind = !argument.tensor ? 2 : argument.role != nn::Role::Parameter;
    return std::pair<int, size_t>(kind, argumentIndex[argument.name]);
  };
  llvm::sort(arguments, [&](const Argument &a, const Argument &b) {
    return key(a) < key(b);
  });
  Block &entry = function.front();
  unsigned count = entry.getNumArguments();
  SmallVector<DictionaryAttr> attributes;
  for (Argument &argument : arguments) {
    Value moved =
        entry.addArgument(argument.value.getType(), argument.value.getLoc());
    argument.value.replaceAllUsesWith(moved);
    attributes.push_back(attributesOf(argument));
  }
  entry.eraseArguments(0, count);
  return attributes;
}

LogicalResult Importer::finish() {
  SmallVector<Value> results;
  SmallVector<DictionaryAttr> resultAttributes;
  for (const std::string &name : outputs) {
    Value value = resultOf(name);
    if (!value)
      continue;
    results.push_back(value);
    NamedAttrList attributes(nn::portAttrs(&context, name, nn::Role::Output));
    for (const auto &output : model.graph().output())
      if (std::optional<int64_t> dim = batchDimOf(output);
          dim && output.name() == name && hasBatchAt(value, *dim))
        attributes.set(nn::kBatchDimAttr, builder.getI64IntegerAttr(*dim));
    resultAttributes.push_back(attributes.getDictionary(&context));
  }
  if (!problems.empty())
    return error() << problems.text();
  if (mlir::failed(checkBytes()))
    return failure();
  warnOfMerged();
  warnOfWholes();
  warnOfFolded();
  warnOfBuffers();
  warnOfScalars();
  warnOfRules();
  noteConstants();
  auto end = func::ReturnOp::create(builder, model.location(), results);
  SmallVector<DictionaryAttr> argumentAttributes = orderArguments();
  // The result types are read from the return operation. `results` may have an
  // argument that has been replaced since.
  function.setFunctionType(builder.getFunctionType(
      function.front().getArgumentTypes(), end.getOperandTypes()));
  function.setAllArgAttrs(argumentAttributes);
  function.setAllResultAttrs(resultAttributes);
  return verify(*module);
}

} // namespace cleave::importer

namespace cleave {

OwningOpRef<ModuleOp> importOnnx(StringRef path, const ImportOptions &options,
                                 MLIRContext &context) {
  std::unique_ptr<importer::Model> model =
      importer::loadSplit(path, options, context);
  if (!model)
    return nullptr;
  return importer::Importer(*model, options, context).run();
}

} // namespace cleave
