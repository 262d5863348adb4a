// Parameters of one element: the bias of a head with one output, learned
// temperatures. Files hold numbers that a program wrote in the same way.

#include "Classify.h"
#include "Model.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

using llvm::StringRef;

namespace cleave::importer {

namespace {

using Consumers = std::map<std::string, std::vector<const FlatNode *>>;

/// Operands that take weights, whatever their shape.
bool takesWeights(const ::onnx::NodeProto &node, int operand) {
  StringRef op = node.op_type();
  if (op == "Gemm")
    return true;
  if (op == "Conv" || op == "ConvTranspose")
    return operand > 0;
  return operand > 0 &&
         (op == "LayerNormalization" || op == "RMSNormalization");
}

/// Functions of one number that a program computes before it writes the file:
/// where they stand in it, their operand is no number of a program.
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
  bool isParameter(const TensorRef &tensor) const;

private:
  bool readsAsParameter(const FlatNode &node, const std::string &value,
                        bool isArray, const TensorRef &tensor) const;
  bool guardsDivision(const std::string &sum) const;

  Model &model;
  Consumers consumers;
  std::set<std::string> computed; // values that depend on a parameter
  /// Whether the file has its numbers in nodes, so that initializers without
  /// dimensions are none.
  bool hasNumberNodes = false;
};

Finder::Finder(Model &model, const Constants &byUse)
    : model(model), consumers(model.consumers()) {
  for (const ::onnx::NodeProto &node : model.graph().node())
    hasNumberNodes |= node.op_type() == "Constant";
  for (const TensorRef &tensor : model.initializers())
    if (isFloat(tensor.type) && tensor.numElements() > 1 &&
        !byUse.count(tensor.name) &&
        model.metadata().heldAs(tensor.name) != HeldAs::Buffer)
      computed.insert(tensor.name);
  for (const FlatNode &node : model.nodes())
    if (!stopsGradient(*node.proto) &&
        llvm::any_of(node.proto->input(), [&](const std::string &input) {
          return computed.count(input) != 0;
        }))
      computed.insert(node.proto->output().begin(), node.proto->output().end());
}

/// Whether a sum only keeps something away from zero, as the epsilon of a norm
/// does.
bool Finder::guardsDivision(const std::string &sum) const {
  auto found = consumers.find(sum);
  return found != consumers.end() &&
         llvm::all_of(found->second, [&](const FlatNode *node) {
           StringRef op = node->proto->op_type();
           return op == "Sqrt" || op == "Reciprocal" || op == "Log" ||
                  op == "Pow" || (op == "Div" && node->proto->input(1) == sum);
         });
}

bool Finder::readsAsParameter(const FlatNode &node, const std::string &value,
                              bool isArray, const TensorRef &tensor) const {
  const ::onnx::NodeProto &proto = *node.proto;
  StringRef op = proto.op_type();
  for (int i = 0; i < proto.input_size(); ++i)
    if (proto.input(i) == value && takesWeights(proto, i))
      return true;
  if (isArray && (op == "MatMul" || op == "Einsum" || op == "Gather"))
    return proto.input_size() > 1;
  if (!addsOrScales(op) ||
      llvm::none_of(proto.input(), [&](const std::string &input) {
        return input != value && computed.count(input);
      }))
    return false;
  // Numbers of a program have no dimensions, and are nodes or initializers, by
  // the exporter. A tensor called as a part of the module that reads it is
  // none.
  std::string module = moduleOf(proto);
  bool isOfModule =
      !module.empty() && StringRef(tensor.name).rsplit('.').first == module;
  if (!isArray && !isOfModule)
    return false;
  return !((op == "Add" || op == "Sum") && guardsDivision(proto.output(0)));
}

bool Finder::isParameter(const TensorRef &tensor) const {
  const Metadata &notes = model.metadata();
  if (HeldAs held = notes.heldAs(tensor.name); held != HeldAs::Unknown)
    return held == HeldAs::Parameter;
  // Of all that modules hold the file speaks, or says what it was made of.
  if (notes.namesParameters() && notes.foldedFrom(tensor.name).empty())
    return false;
  // The value, and whether it has dimensions or comes of such a function.
  std::vector<std::pair<std::string, bool>> values = {
      {tensor.name, !tensor.shape.empty() || hasNumberNodes}};
  for (size_t i = 0; i < values.size(); ++i) {
    auto [value, isArray] = values[i];
    auto found = consumers.find(value);
    if (found == consumers.end())
      continue;
    for (const FlatNode *node : found->second) {
      StringRef op = node->proto->op_type();
      if (readsAsParameter(*node, value, isArray, tensor))
        return true;
      // Numbers are spread, such as ones for the gain of a norm without one.
      if (op == "Expand" || op == "Tile")
        continue;
      if (movesFirstInput(op) && node->proto->input(0) == value)
        values.push_back({node->proto->output(0), isArray});
      else if (reshapesNumbers(op))
        values.push_back({node->proto->output(0), true});
    }
  }
  return false;
}

} // namespace

std::set<std::string> parametersOfOneElement(Model &model,
                                             const Constants &byUse) {
  Finder finder(model, byUse);
  std::set<std::string> names;
  for (const TensorRef &tensor : model.initializers())
    if (isFloat(tensor.type) && tensor.numElements() == 1 &&
        finder.isParameter(tensor))
      names.insert(tensor.name);
  return names;
}

} // namespace cleave::importer
