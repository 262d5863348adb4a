// Detects parameters with one element, such as the bias of a head with one
// output, or a learned temperature. Files store literal numbers of the model's
// source code, such as epsilons, in the same way. In this file, a "number" is
// such a literal number.

#include "Classify.h"
#include "Model.h"

#include "cleave/Import/ONNX/OpTable.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using llvm::StringRef;

namespace cleave::importer {

bool isNamedLikeNumber(StringRef name) {
  if (name.contains("ReadVariableOp"))
    return false;
  StringRef digits = name;
  if (!digits.empty() && llvm::isAlpha(digits.front()))
    digits = digits.drop_front();
  return name.contains("::") || name.contains('/') || name.starts_with("_") ||
         name.starts_with("val_") || name.starts_with("scalar_tensor") ||
         name.starts_with_insensitive("const") ||
         llvm::all_of(digits, llvm::isDigit);
}

bool isFoldedFromTensor(const Metadata &notes, StringRef name) {
  return llvm::any_of(notes.foldedFrom(name), [](const std::string &source) {
    return !isNamedLikeNumber(source);
  });
}

namespace {

using Consumers = std::map<std::string, std::vector<const FlatNode *>>;

/// Returns whether this operand of the node is a weight, whatever its shape.
bool takesWeights(const FlatNode &node, int operand) {
  const OnnxOp *entry = findOnnxOp(node.proto->op_type(), node.opset());
  return entry && entry->weightsFrom >= 0 && operand >= entry->weightsFrom;
}

/// Returns whether the node is a Constant that holds one float. It is then a
/// literal number of the model's source code, and no parameter.
bool isNumberNode(const ::onnx::NodeProto &node) {
  if (node.op_type() != "Constant")
    return false;
  for (const auto &attribute : node.attribute()) {
    if (attribute.name() == "value_float")
      return true;
    if (attribute.name() != "value" ||
        !isFloat(static_cast<Element>(attribute.t().data_type())))
      continue;
    return llvm::all_of(attribute.t().dims(),
                        [](int64_t size) { return size == 1; });
  }
  return false;
}

/// Returns whether the operator is a function such as Exp. The model's source
/// code would rather contain the result than apply such a function to a literal
/// number. So if a node with such an operator reads a tensor with one element,
/// the tensor is probably a parameter.
bool reshapesNumbers(StringRef op) {
  return llvm::StringSwitch<bool>(op)
      .Cases({"Exp", "Log", "Softplus", "Sigmoid", "Tanh"}, true)
      .Default(false);
}

bool addsOrScales(StringRef op) {
  return llvm::StringSwitch<bool>(op)
      .Cases({"Add", "Sub", "Mul", "Div", "Sum"}, true)
      .Default(false);
}

class Finder {
public:
  Finder(Model &model, const Constants &byUse);
  Reading read(const TensorRef &tensor) const;

private:
  Reading readBy(const FlatNode &node, const std::string &value, bool isArray,
                 const TensorRef &tensor) const;
  bool meetsArithmetic(const std::string &number) const;
  bool isSurelyNumber(const TensorRef &tensor) const;
  bool guardsDivision(const std::string &sum) const;

  Model &model;
  Consumers consumers;
  std::set<std::string> computed; // values that depend on a parameter
  /// True if the ONNX file stores the literal numbers of the model's source
  /// code as Constant nodes. Initializers without dimensions are then
  /// parameters.
  bool hasNumberNodes = false;
};

Finder::Finder(Model &model, const Constants &byUse)
    : model(model), consumers(model.consumers()) {
  // Finds out whether Constant nodes hold the literal numbers of the model's
  // source code that arithmetic operations read. Constant nodes that hold
  // shapes, bounds and the like occur in any file and do not count.
  hasNumberNodes =
      llvm::any_of(model.graph().node(),
                   [&](const ::onnx::NodeProto &node) {
                     return isNumberNode(node) &&
                            meetsArithmetic(node.output(0));
                   }) &&
      llvm::none_of(model.initializers(), [&](const TensorRef &tensor) {
        return isSurelyNumber(tensor);
      });
  for (const TensorRef &tensor : model.initializers())
    if (isFloat(tensor.type) && tensor.numElements() > 1 &&
        !byUse.count(tensor.name) &&
        !llvm::is_contained({HeldAs::Buffer, HeldAs::Number},
                            model.metadata().heldAs(tensor.name)))
      computed.insert(tensor.name);
  for (const FlatNode &node : model.nodes())
    if (!stopsGradient(*node.proto) &&
        llvm::any_of(node.proto->input(), [&](const std::string &input) {
          return computed.count(input) != 0;
        }))
      computed.insert(node.proto->output().begin(), node.proto->output().end());
}

bool Finder::meetsArithmetic(const std::string &number) const {
  auto found = consumers.find(number);
  return found != consumers.end() &&
         llvm::any_of(found->second, [&](const FlatNode *node) {
           StringRef op = node->proto->op_type();
           if (op == "Cast" || op == "CastLike" || op == "Identity")
             return meetsArithmetic(node->proto->output(0));
           return addsOrScales(op) || op == "Pow";
         });
}

/// Returns whether the tensor is an exponent or the epsilon of a norm. These
/// are taken for literal numbers in any case.
bool Finder::isSurelyNumber(const TensorRef &tensor) const {
  auto found = consumers.find(tensor.name);
  return isFloat(tensor.type) && tensor.shape.empty() &&
         found != consumers.end() &&
         llvm::any_of(found->second, [&](const FlatNode *node) {
           const ::onnx::NodeProto &proto = *node->proto;
           return proto.op_type() == "Pow"
                      ? proto.input(1) == tensor.name
                      : proto.op_type() == "Add" &&
                            guardsDivision(proto.output(0));
         });
}

/// Returns whether a sum only keeps a value away from zero, like the epsilon of
/// a norm.
bool Finder::guardsDivision(const std::string &sum) const {
  auto found = consumers.find(sum);
  return found != consumers.end() &&
         llvm::all_of(found->second, [&](const FlatNode *node) {
           StringRef op = node->proto->op_type();
           return op == "Sqrt" || op == "Reciprocal" || op == "Log" ||
                  op == "Pow" || (op == "Div" && node->proto->input(1) == sum);
         });
}

Reading Finder::readBy(const FlatNode &node, const std::string &value,
                       bool isArray, const TensorRef &tensor) const {
  const ::onnx::NodeProto &proto = *node.proto;
  StringRef op = proto.op_type();
  for (int i = 0; i < proto.input_size(); ++i)
    if (proto.input(i) == value && takesWeights(node, i))
      return Reading::Weight;
  if (isArray && (op == "MatMul" || op == "Einsum" || op == "Gather"))
    return proto.input_size() > 1 ? Reading::Weight : Reading::Number;
  if (!addsOrScales(op) ||
      llvm::none_of(proto.input(), [&](const std::string &input) {
        return input != value && computed.count(input);
      }))
    return Reading::Number;
  if ((op == "Add" || op == "Sum") && guardsDivision(proto.output(0)))
    return Reading::Number;
  // A literal number of the model's source code has no dimensions. Some
  // exporters store it in a Constant node, others as an initializer. If the
  // name of the tensor begins with the path of the module that reads it, the
  // tensor belongs to the module and is no literal number.
  std::string module = moduleOf(proto);
  bool isOfModule =
      !module.empty() && StringRef(tensor.name).rsplit('.').first == module;
  if (isArray || isOfModule ||
      StringRef(tensor.name).contains("ReadVariableOp"))
    return Reading::Scale;
  return isNamedLikeNumber(tensor.name) ? Reading::Number : Reading::Open;
}

Reading Finder::read(const TensorRef &tensor) const {
  const Metadata &notes = model.metadata();
  if (HeldAs held = notes.heldAs(tensor.name); held != HeldAs::Unknown)
    return held == HeldAs::Parameter ? Reading::Weight : Reading::Number;
  // If the ONNX file declares the parameters of modules, a tensor that it does
  // not declare is a literal number of the source code. The exception is a
  // tensor that an exporter computed from tensors that may belong to a module.
  if (notes.namesParameters() && !isFoldedFromTensor(notes, tensor.name))
    return Reading::Number;
  Reading reading = Reading::Number;
  // The tensor, and the values that are computed from it by moving its element,
  // or by a function such as Exp (see reshapesNumbers). The flag is true if the
  // value certainly is no literal number of the source code, for example
  // because it has dimensions or is the result of such a function.
  std::vector<std::pair<std::string, bool>> values = {
      {tensor.name, !tensor.shape.empty() ||
                        (hasNumberNodes && !isNamedLikeNumber(tensor.name))}};
  for (size_t i = 0; i < values.size(); ++i) {
    auto [value, isArray] = values[i];
    auto found = consumers.find(value);
    if (found == consumers.end())
      continue;
    for (const FlatNode *node : found->second) {
      StringRef op = node->proto->op_type();
      reading = std::max(reading, readBy(*node, value, isArray, tensor));
      // Values that Expand or Tile compute are not followed. They have
      // dimensions, but may still come from a literal number, such as the ones
      // with which exporters replace the gain of a norm.
      if (op == "Expand" || op == "Tile")
        continue;
      if (movesFirstInput(op) && node->proto->input(0) == value)
        values.push_back({node->proto->output(0), isArray});
      else if (reshapesNumbers(op))
        values.push_back({node->proto->output(0), true});
    }
  }
  return reading;
}

} // namespace

std::map<std::string, Reading> readingsOfOneElement(Model &model,
                                                    const Constants &byUse) {
  Finder finder(model, byUse);
  std::map<std::string, Reading> readings;
  for (const TensorRef &tensor : model.initializers())
    if (isFloat(tensor.type) && tensor.numElements() == 1)
      if (Reading reading = finder.read(tensor); reading != Reading::Number)
        readings[tensor.name] = reading;
  return readings;
}

} // namespace cleave::importer
