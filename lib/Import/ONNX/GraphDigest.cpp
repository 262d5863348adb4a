// A digest that identifies a graph by the operations of its nodes and by its
// constants. It does not depend on weights, names of values, comments or
// shapes.

#include "Importer.h"
#include "Problems.h"

#include "cleave/io/Digest.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/bit.h"

using llvm::Expected;
using llvm::StringRef;

namespace cleave::importer {

namespace {

/// Describes the contents of a tensor for the digest. The description does not
/// depend on how the ONNX file stores the tensor.
class Contents {
public:
  explicit Contents(Model &model) : model(model) {}

  std::string of(const TensorRef &tensor) {
    // Large tensors are hashed in the form in which they are stored.
    if (tensor.inFile && tensor.numElements() > (1 << 16)) {
      if (Expected<StringRef> bytes = model.read(tensor.range))
        return digestOfPieces(*bytes);
      else
        llvm::consumeError(bytes.takeError());
    } else if (Expected<HostTensor> read = Node::contents(model, tensor)) {
      std::string text;
      llvm::raw_string_ostream out(text);
      if (read->holdsFloats())
        for (double value : read->floats())
          out << llvm::bit_cast<uint64_t>(value) << ' ';
      else
        for (int64_t value : read->ints())
          out << value << ' ';
      return digestOf(text);
    } else {
      llvm::consumeError(read.takeError());
    }
    areKnown = false;
    return "";
  }

  std::string of(const onnx::TensorProto &proto) {
    Expected<TensorRef> tensor = model.describe(proto);
    if (tensor)
      return typeOf(*tensor) + ' ' + of(*tensor);
    llvm::consumeError(tensor.takeError());
    areKnown = false;
    return "";
  }

  static std::string typeOf(const TensorRef &tensor) {
    std::string text = nameOf(tensor.type);
    for (int64_t size : tensor.shape)
      text += ' ' + std::to_string(size);
    return text;
  }

  bool areKnown = true; ///< whether all could be read

private:
  Model &model;
};

} // namespace

/// Returns the attributes as text, sorted by name, because their order has no
/// meaning.
static std::string attributesText(const onnx::NodeProto &node,
                                  Contents &contents) {
  std::map<std::string, std::string> texts;
  for (onnx::AttributeProto attribute : node.attribute()) {
    attribute.clear_doc_string();
    std::string tensors;
    if (attribute.has_t())
      tensors += contents.of(attribute.t());
    for (const onnx::TensorProto &tensor : attribute.tensors())
      tensors += ' ' + contents.of(tensor);
    attribute.clear_t();
    attribute.clear_tensors();
    texts[attribute.name()] = attribute.SerializeAsString() + tensors;
  }
  std::string all;
  for (const auto &[name, text] : texts)
    all += name + '=' + std::to_string(text.size()) + ':' + text;
  return all;
}

std::string Importer::graphDigest() {
  Contents contents(model);
  // Instead of its name, each value enters the digest as a number, in the order
  // in which nodes define values.
  std::map<std::string, std::string> spelled;
  auto spell = [&](const std::string &name) -> std::string {
    if (name.empty())
      return "-";
    auto [entry, isNew] = spelled.try_emplace(name);
    if (!isNew)
      return entry->second;
    std::string &text = entry->second;
    if (options.bound.count(name)) // compared by the key that binds it
      return text = "bound " + name;
    const TensorRef *tensor = model.findInitializer(name);
    if (!tensor)
      return text = "input " + name;
    text = Contents::typeOf(*tensor);
    auto operand = values.find(name);
    const bool isTrained = operand != values.end() && operand->second.file &&
                           (!constants.count(name) || isBuffer(*tensor) ||
                            isModuleBuffer(*tensor));
    return text +=
           isTrained ? " parameter " + name : " is " + contents.of(*tensor);
  };
  std::string lines;
  size_t made = 0;
  auto define = [&](const std::string &name) {
    return spelled[name] = '%' + std::to_string(made++);
  };
  auto add = [&](auto &&self, const std::vector<FlatNode> &nodes) -> void {
    for (const FlatNode &node : nodes) {
      if (!makesOneOf(node, needed))
        continue;
      lines += node.proto->domain() + '.' + node.proto->op_type() + ' ' +
               std::to_string(node.opset()) + ' ' +
               attributesText(*node.proto, contents);
      for (const std::string &input : node.proto->input())
        lines += " (" + spell(input) + ')';
      lines += '\n';
      for (const auto &[attribute, graph] : node.subgraphs) {
        lines += attribute;
        for (const std::string &input : graph->inputs)
          lines += ' ' + define(input);
        lines += '\n';
        self(self, graph->nodes);
        for (const std::string &output : graph->outputs)
          lines += "yield (" + spell(output) + ")\n";
      }
      for (const std::string &output : node.proto->output())
        define(output);
    }
  };
  add(add, model.nodes());
  for (const std::string &output : outputs)
    lines += "output " + output + " (" + spell(output) + ")\n";
  return contents.areKnown ? kGraphDigestVersion + digestOf(lines) : "";
}

} // namespace cleave::importer
