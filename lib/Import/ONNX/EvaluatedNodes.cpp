// Keys of nodes with known operands.

#include "EvaluatedNodes.h"

#include "FrozenRow.h"

#include <onnx/onnx_pb.h>

namespace cleave::importer {

std::string EvaluatedNodes::keyOf(const FlatNode &node,
                                  llvm::ArrayRef<Operand> operands) {
  bool isKnown = false;
  for (const Operand &operand : operands) {
    bool isAbsent = operand.type == Element::Undefined && !operand.value &&
                    !operand.file && !operand.parts;
    if (!isAbsent && (!operand.isHost() || operand.chosen))
      return "";
    isKnown |= operand.isHost();
  }
  if (!isKnown)
    return "";
  // Each part of the key begins with its length, so that different parts cannot
  // give the same key.
  std::string key;
  auto add = [&](const std::string &part) {
    key += std::to_string(part.size()) + ":" + part;
  };
  add(node.proto->op_type());
  add(node.proto->domain());
  add(std::to_string(node.opset()));
  // The key states for each output whether a node reads it, but not the
  // output's name.
  for (const std::string &output : node.proto->output())
    key += output.empty() ? '0' : '1';
  for (const ::onnx::AttributeProto &attribute : node.proto->attribute())
    add(attribute.SerializeAsString());
  if (std::optional<int64_t> row = frozenRowOf(*node.proto))
    add("frozen row " + std::to_string(*row));
  for (const Operand &operand : operands)
    add(operand.isHost() ? operand.host->identity() : "");
  return key;
}

const llvm::SmallVector<Operand> *
EvaluatedNodes::find(const std::string &key) const {
  auto found = entries.find(key);
  return key.empty() || found == entries.end() ? nullptr
                                               : &found->second.results;
}

void EvaluatedNodes::add(const std::string &key,
                         llvm::ArrayRef<Operand> operands,
                         llvm::ArrayRef<Operand> results) {
  bool isKnown = !key.empty() && llvm::all_of(results, [](const Operand &o) {
    return (o.isHost() || o.value) && !o.chosen && !o.parts;
  });
  if (isKnown)
    entries[key] = {llvm::SmallVector<Operand>(operands),
                    llvm::SmallVector<Operand>(results)};
}

} // namespace cleave::importer
