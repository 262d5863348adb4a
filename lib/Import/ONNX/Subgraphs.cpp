// Graphs that are attributes of nodes: the branches of If, the bodies of Loop
// and Scan. Their values get names that are unique in the file, and the outer
// values that they read become inputs of the node, so that the order of nodes
// and the uses of tensors are known without looking into them.

#include "Functions.h"

#include <onnx/onnx_pb.h>

#include <set>

namespace cleave::importer {

void forEachNode(const std::vector<FlatNode> &nodes,
                 llvm::function_ref<void(const FlatNode &)> visit) {
  for (const FlatNode &node : nodes) {
    visit(node);
    for (const auto &[name, graph] : node.subgraphs)
      forEachNode(graph->nodes, visit);
  }
}

namespace {

constexpr unsigned kMaxGraphDepth = 32;

/// A Constant node that holds an initializer of a subgraph.
std::unique_ptr<::onnx::NodeProto> constantOf(const ::onnx::TensorProto &tensor,
                                              const std::string &output) {
  auto node = std::make_unique<::onnx::NodeProto>();
  node->set_op_type("Constant");
  node->set_name(tensor.name());
  node->add_output(output);
  ::onnx::AttributeProto &value = *node->add_attribute();
  value.set_name("value");
  value.set_type(::onnx::AttributeProto::TENSOR);
  *value.mutable_t() = tensor;
  return node;
}

/// Renames the values of an enclosing graph that a graph reads. `names` has
/// their new names.
void renameFree(::onnx::GraphProto &graph,
                std::map<std::string, std::string> names) {
  for (const auto &input : graph.input())
    names.erase(input.name());
  for (const auto &tensor : graph.initializer())
    names.erase(tensor.name());
  auto rename = [&](const std::string &name) {
    auto it = names.find(name);
    return it == names.end() ? name : it->second;
  };
  for (::onnx::NodeProto &node : *graph.mutable_node()) {
    for (std::string &input : *node.mutable_input())
      input = rename(input);
    for (::onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g())
        renameFree(*attribute.mutable_g(), names);
    for (const std::string &output : node.output())
      names.erase(output);
  }
  for (auto &output : *graph.mutable_output())
    output.set_name(rename(output.name()));
}

} // namespace

/// Returns the graph with its nodes flattened and its values renamed.
/// Initializers become Constant nodes.
llvm::Expected<std::shared_ptr<const Subgraph>>
FunctionInliner::flatten(const ::onnx::GraphProto &graph, const FlatNode &owner,
                         unsigned depth) {
  auto flat = std::make_shared<Subgraph>();
  std::string prefix = owner.name.empty() ? owner.proto->op_type() : owner.name;
  prefix += "@" + std::to_string(graphs++) + "/";
  std::map<std::string, std::string> own;
  auto define = [&](const std::string &name) -> const std::string & {
    return own[name] = prefix + name;
  };
  auto rename = [&](const std::string &name) {
    auto it = own.find(name);
    return it == own.end() ? name : it->second;
  };
  for (const auto &input : graph.input())
    flat->inputs.push_back(define(input.name()));
  auto opsets = std::make_shared<const Opsets>(Opsets{{"", 13}});
  for (const ::onnx::TensorProto &tensor : graph.initializer()) {
    int64_t count = 1;
    for (int64_t size : tensor.dims())
      count *= size;
    if (count > 1 && isFloat(static_cast<Element>(tensor.data_type())))
      return reason("node '" + owner.name + "' (" + owner.proto->op_type() +
                    "): its graph '" + graph.name() + "' holds tensor '" +
                    tensor.name() + "' of " + llvm::Twine(count) +
                    " floats, which could not be trained; expected such "
                    "tensors among the initializers of the main graph");
    auto node = constantOf(tensor, define(tensor.name()));
    const ::onnx::NodeProto &reference = *node;
    if (llvm::Error error = add(std::move(node), reference, tensor.name(),
                                opsets, flat->nodes, depth + 1))
      return std::move(error);
  }
  for (const ::onnx::NodeProto &node : graph.node()) {
    auto copy = std::make_unique<::onnx::NodeProto>(node);
    for (std::string &input : *copy->mutable_input())
      input = rename(input);
    for (std::string &output : *copy->mutable_output())
      if (!output.empty())
        output = define(output);
    // The subgraphs of this node read names of this graph.
    for (::onnx::AttributeProto &attribute : *copy->mutable_attribute())
      if (attribute.has_g())
        renameFree(*attribute.mutable_g(), own);
    const ::onnx::NodeProto &reference = *copy;
    std::string name = prefix + node.name();
    if (llvm::Error error = add(std::move(copy), reference, name, owner.opsets,
                                flat->nodes, depth + 1))
      return std::move(error);
  }
  for (const auto &output : graph.output())
    flat->outputs.push_back(rename(output.name()));
  return flat;
}

llvm::Error FunctionInliner::addSubgraphs(::onnx::NodeProto &node,
                                          FlatNode &flat, unsigned depth) {
  if (depth > kMaxGraphDepth)
    return reason("node '" + flat.name + "' is in more than " +
                  llvm::Twine(kMaxGraphDepth) + " graphs");
  google::protobuf::RepeatedPtrField<::onnx::AttributeProto> kept;
  for (::onnx::AttributeProto &attribute : *node.mutable_attribute()) {
    if (!attribute.has_g()) {
      *kept.Add() = attribute;
      continue;
    }
    auto graph = flatten(attribute.g(), flat, depth);
    if (!graph)
      return graph.takeError();
    flat.subgraphs[attribute.name()] = *graph;
  }
  node.mutable_attribute()->Swap(&kept);
  flat.formalInputs = node.input_size();
  std::set<std::string> known(node.input().begin(), node.input().end());
  for (const auto &[name, graph] : flat.subgraphs) {
    std::set<std::string> own(graph->inputs.begin(), graph->inputs.end());
    auto read = [&](const std::string &value) {
      if (!value.empty() && !own.count(value) && known.insert(value).second)
        node.add_input(value);
    };
    for (const FlatNode &inner : graph->nodes) {
      for (const std::string &input : inner.proto->input())
        read(input);
      own.insert(inner.proto->output().begin(), inner.proto->output().end());
    }
    for (const std::string &output : graph->outputs)
      read(output);
  }
  return llvm::Error::success();
}

} // namespace cleave::importer
