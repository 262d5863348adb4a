// Parameters and constants among float initializers. Names carry no meaning, so
// uses decide.

#include "Classify.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"

using llvm::StringRef;

namespace cleave::importer {

/// The result holds the same elements, or some of them, under another shape.
static bool movesFirstInput(StringRef op) {
  return llvm::StringSwitch<bool>(op)
      .Cases({"Unsqueeze", "Squeeze", "Reshape", "Expand", "Transpose", "Cast"},
             true)
      .Cases({"CastLike", "Identity", "Flatten", "Tile", "Slice"}, true)
      .Default(false);
}

static bool isArithmetic(StringRef op) {
  return llvm::StringSwitch<bool>(op)
      .Cases({"Add", "Sub", "Mul", "Div", "Pow"}, true)
      .Default(false);
}

static bool isContraction(StringRef op) {
  return op == "MatMul" || op == "Einsum" || op == "Gemm";
}

std::set<std::string> findConstants(const Model &model, StringRef tokens) {
  // What is known from shapes alone, and what follows from shapes and from
  // integer inputs other than tokens.
  std::set<std::string> known, positional;
  known.insert("");
  positional.insert("");
  for (const TensorRef &tensor : model.initializers())
    if (!isFloat(tensor.type) || tensor.numElements() == 1) {
      known.insert(tensor.name);
      positional.insert(tensor.name);
    }
  for (const auto &input : model.graph().input())
    if (!model.findInitializer(input.name()) && input.name() != tokens &&
        isInteger(static_cast<Element>(input.type().tensor_type().elem_type())))
      positional.insert(input.name());
  std::map<std::string, std::vector<const FlatNode *>> consumers;
  for (const FlatNode &node : model.nodes()) {
    bool isKnown = true, isPositional = true;
    for (const std::string &input : node.proto->input()) {
      isKnown &= known.count(input) != 0;
      isPositional &= positional.count(input) != 0;
      consumers[input].push_back(&node);
    }
    bool isShape =
        node.proto->op_type() == "Shape" || node.proto->op_type() == "Size";
    for (const std::string &output : node.proto->output()) {
      if (isShape || isKnown)
        known.insert(output);
      if (isShape || isPositional)
        positional.insert(output);
    }
  }

  llvm::StringSet<> outputs;
  for (const auto &output : model.graph().output())
    outputs.insert(output.name());
  auto isConstant = [&](const TensorRef &tensor) {
    std::vector<std::string> values = {tensor.name};
    for (size_t i = 0; i < values.size(); ++i) {
      if (outputs.contains(values[i]))
        return false;
      for (const FlatNode *node : consumers[values[i]]) {
        StringRef op = node->proto->op_type();
        if (movesFirstInput(op) && node->proto->input(0) == values[i]) {
          values.push_back(node->proto->output(0));
          continue;
        }
        if (!isArithmetic(op) && !isContraction(op))
          return false;
        const auto &harmless = isArithmetic(op) ? positional : known;
        for (const std::string &input : node->proto->input())
          if (input != values[i] && !harmless.count(input))
            return false;
      }
    }
    return values.size() > 1 || !consumers[tensor.name].empty();
  };
  std::set<std::string> constants;
  for (const TensorRef &tensor : model.initializers())
    if (isFloat(tensor.type) &&
        (tensor.numElements() <= 1 || isConstant(tensor)))
      constants.insert(tensor.name);
  return constants;
}

} // namespace cleave::importer
