// A digest by which a graph is known again: of what its nodes compute and of
// its constants, not of the weights, which training changes, nor of what
// exporters write beside: names of values, comments, shapes.

#include "Importer.h"
#include "Problems.h"

#include "cleave/io/Digest.h"

#include <onnx/onnx_pb.h>

using llvm::Expected;
using llvm::StringRef;

namespace cleave::importer {

/// The bytes of a tensor that is never trained.
static std::string contentsOf(Model &model, const TensorRef &tensor) {
  if (tensor.inFile) {
    Expected<StringRef> bytes = model.read(tensor.range);
    if (bytes)
      return digestOfPieces(*bytes);
    llvm::consumeError(bytes.takeError());
    return "missing";
  }
  onnx::TensorProto proto = *tensor.proto;
  proto.clear_name();
  proto.clear_doc_string();
  return digestOf(proto.SerializeAsString());
}

/// Attributes by name, as their order says nothing.
static std::string attributesText(const onnx::NodeProto &node) {
  std::map<std::string, std::string> texts;
  for (onnx::AttributeProto attribute : node.attribute()) {
    attribute.clear_doc_string();
    if (attribute.has_t()) {
      attribute.mutable_t()->clear_name();
      attribute.mutable_t()->clear_doc_string();
    }
    texts[attribute.name()] = attribute.SerializeAsString();
  }
  std::string all;
  for (const auto &[name, text] : texts)
    all += name + '=' + std::to_string(text.size()) + ':' + text;
  return all;
}

std::string Importer::graphDigest() {
  // Values are numbered in the order in which nodes make them.
  std::map<std::string, std::string> spelled;
  auto spell = [&](const std::string &name) -> std::string {
    if (name.empty())
      return "-";
    auto [entry, isNew] = spelled.try_emplace(name);
    if (!isNew)
      return entry->second;
    std::string &text = entry->second;
    if (auto bound = options.bound.find(name); bound != options.bound.end())
      return text = "bound " + bound->second.dtype + ' ' +
                    (bound->second.isNumber ? bound->second.text
                                            : digestOf(bound->second.bytes));
    const TensorRef *tensor = model.findInitializer(name);
    if (!tensor)
      return text = "input " + name;
    text = nameOf(tensor->type);
    for (int64_t size : tensor->shape)
      text += ' ' + std::to_string(size);
    auto operand = values.find(name);
    const bool isTrained = operand != values.end() && operand->second.file &&
                           (!constants.count(name) || isBuffer(*tensor) ||
                            isModuleBuffer(*tensor));
    return text += isTrained ? " parameter " + name
                             : " is " + contentsOf(model, *tensor);
  };
  std::string lines;
  size_t made = 0;
  for (const FlatNode &node : model.nodes()) {
    if (!makesOneOf(node, needed))
      continue;
    lines += node.proto->domain() + '.' + node.proto->op_type() + ' ' +
             std::to_string(node.opset()) + ' ' + attributesText(*node.proto);
    for (const std::string &input : node.proto->input())
      lines += " (" + spell(input) + ')';
    lines += '\n';
    for (const std::string &output : node.proto->output())
      spelled[output] = '%' + std::to_string(made++);
  }
  for (const std::string &output : outputs)
    lines += "output " + output + " (" + spell(output) + ")\n";
  return digestOf(lines);
}

} // namespace cleave::importer
