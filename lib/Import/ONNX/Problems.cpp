// Collects the reasons why a model cannot be imported, merges equal ones, and
// words the message.

#include "Problems.h"

#include "Metadata.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using llvm::ArrayRef;
using llvm::StringRef;

namespace cleave::importer {

static std::string describe(const FlatNode &node) {
  std::string domain =
      node.proto->domain().empty() ? "" : node.proto->domain() + ".";
  return domain + node.proto->op_type() + ", opset " +
         std::to_string(node.opset());
}

void Problems::add(const FlatNode &node, const std::string &why) {
  std::string what = describe(node);
  std::string place = describeSource(sourceOf(*node.proto));
  for (Entry &entry : entries)
    if (!entry.nodes.empty() && entry.what == what && entry.why == why)
      return entry.nodes.push_back({node.name, place});
  entries.push_back({what, why, {{node.name, place}}});
}

void Problems::addInput(const std::string &name, const std::string &why) {
  for (auto &[known, names] : inputs)
    if (known == why)
      return names.push_back("'" + name + "'");
  inputs.push_back({why, {"'" + name + "'"}});
}

size_t Problems::count() const {
  size_t count = 0;
  for (const auto &[why, names] : inputs)
    count += names.size();
  for (const Entry &entry : entries)
    count += std::max<size_t>(1, entry.nodes.size());
  return count;
}

/// a, b, c, ...
static std::string firstOf(ArrayRef<std::string> names) {
  constexpr size_t most = 3;
  return llvm::join(names.take_front(most), ", ") +
         (names.size() > most ? ", ..." : "");
}

/// Lists the nodes with one problem: by module if it is known, with equal
/// layers merged, and otherwise by name.
std::string Problems::placesOf(const Entry &entry) {
  std::vector<std::string> places, folded;
  for (const auto &[node, place] : entry.nodes)
    places.push_back(place.empty() ? "'" + node + "'" : place);
  for (FoldedName &name : foldLayers(places))
    folded.push_back(std::move(name.text));
  return firstOf(folded);
}

std::vector<std::string> Problems::lines() const {
  std::vector<std::string> lines;
  for (const Entry &entry : entries) {
    if (entry.nodes.empty())
      lines.push_back(entry.what);
    else if (entry.nodes.size() == 1)
      lines.push_back(
          (entry.nodes[0].place.empty() ? "" : entry.nodes[0].place + ": ") +
          "node '" + entry.nodes[0].name + "' (" + entry.what +
          "): " + entry.why);
    else
      lines.push_back(std::to_string(entry.nodes.size()) + " nodes (" +
                      entry.what + "): " + entry.why + ": " + placesOf(entry));
  }
  for (const auto &[why, names] : inputs)
    lines.push_back((names.size() == 1
                         ? "input " + names[0] + " "
                         : "each of " + std::to_string(names.size()) +
                               " inputs (" + firstOf(names) + ") ") +
                    why);
  return lines;
}

std::string Problems::text() const {
  std::vector<std::string> all = lines();
  std::string notSeen;
  if (unseen && !onlyInputs())
    notSeen =
        std::to_string(unseen) +
        (unseen == 1 ? " node that depends on " : " nodes that depend on ") +
        (all.size() == 1 ? "it " : "these ") + (unseen == 1 ? "was" : "were") +
        " not looked at";
  if (all.size() == 1)
    return all[0] + (notSeen.empty() ? "" : "; " + notSeen);
  if (!notSeen.empty())
    all.push_back(notSeen);
  return "cannot be imported (" + std::to_string(count()) + " places):\n  " +
         llvm::join(all, "\n  ");
}

std::set<std::string> valuesNeededBy(const Model &model,
                                     const std::vector<std::string> &outputs) {
  std::set<std::string> needed(outputs.begin(), outputs.end());
  for (const FlatNode &node : llvm::reverse(model.nodes()))
    if (makesOneOf(node, needed))
      forEachNode({node}, [&](const FlatNode &each) {
        needed.insert(each.proto->input().begin(), each.proto->input().end());
        for (const auto &[name, graph] : each.subgraphs)
          needed.insert(graph->outputs.begin(), graph->outputs.end());
      });
  return needed;
}

bool makesOneOf(const FlatNode &node, const std::set<std::string> &values) {
  return llvm::any_of(node.proto->output(), [&](const std::string &name) {
    return !name.empty() && values.count(name);
  });
}

/// Returns the name of an operator as `cleave ops` prints it: with its domain,
/// unless that is the default domain.
static std::string spelledName(const FlatNode &node) {
  const std::string &domain = node.proto->domain();
  bool isDefault = domain.empty() || domain == "ai.onnx";
  return (isDefault ? "" : domain + ".") + node.proto->op_type();
}

const OnnxOp *entryOf(const FlatNode &node) {
  return findOnnxOp(spelledName(node), node.opset());
}

/// Suggests a replacement for operators that exporters emit for common code of
/// models; returns "" for other operators.
static StringRef insteadOf(StringRef name) {
  return llvm::StringSwitch<StringRef>(name)
      .Cases({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"},
             "export the model without its loss, and train with train.loss = "
             "\"cross_entropy\" and data.labels, or spell it as "
             "-(log_softmax(y) * one_hot(label)).sum(-1)")
      .Default("");
}

std::string whyUnknown(const FlatNode &node) {
  std::string name = spelledName(node);
  StringRef prefix = StringRef(name).drop_back(node.proto->op_type().size());
  if (llvm::none_of(onnxOps(), [&](const OnnxOp &op) {
        return op.name.starts_with(prefix);
      }))
    return "operators of domain '" + node.proto->domain() +
           "' are not supported";
  if (node.opset() == 0)
    return "the model imports no operator set for it";
  for (const OnnxOp &op : onnxOps())
    if (op.name == name)
      return "supported from opset " + std::to_string(op.first) + " to " +
             std::to_string(op.last);
  StringRef instead = insteadOf(name);
  return ("the operator is not supported; " +
          (instead.empty() ? "`cleave ops` lists those that are" : instead))
      .str();
}

void addUnsupported(const Model &model, const std::set<std::string> &needed,
                    Problems &problems) {
  if (!model.versionProblem().empty())
    problems.add(model.versionProblem());
  // Initializers that cannot be used for the same reason share a line of the
  // message.
  llvm::MapVector<StringRef, std::vector<std::string>> reasons;
  for (const Model::Refused &tensor : model.refusedInitializers())
    reasons[tensor.why].push_back("'" + tensor.name + "'");
  for (const auto &[why, names] : reasons) {
    std::string text =
        names.size() == 1
            ? "tensor " + names[0]
            : std::to_string(names.size()) + " tensors (" +
                  llvm::join(ArrayRef(names).take_front(3), ", ") +
                  (names.size() > 3 ? ", ...)" : ")");
    problems.add(text + ": " + why.str());
  }
  // Nodes of subgraphs are reported when they are lowered: the branch of an If
  // that is not taken may have any operators.
  for (const FlatNode &node : model.nodes()) {
    if (!makesOneOf(node, needed) || entryOf(node))
      continue;
    // If the ONNX file needs an unsupported version of an operator set, this is
    // reported once, and not for each operator. Operators that are supported in
    // no version are still reported.
    bool isKnown = llvm::any_of(onnxOps(), [&](const OnnxOp &op) {
      return op.name == spelledName(node);
    });
    if (model.versionProblem().empty() || !isKnown)
      problems.add(node, whyUnknown(node));
  }
}

} // namespace cleave::importer
