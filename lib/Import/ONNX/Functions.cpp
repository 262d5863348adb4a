// Inlining of model-local functions. Fields that libonnx 1.12 does not know
// (overloads, attribute defaults) are read from the unknown fields.

#include "Functions.h"

#include <google/protobuf/unknown_field_set.h>
#include <onnx/onnx_pb.h>

using llvm::Twine;

namespace cleave::importer {

namespace {
/// The maximum depth of nested calls. It is exceeded only by recursive
/// functions, which are invalid.
constexpr unsigned kMaxDepth = 64;
/// The longest name of a node or value. Inlining nested calls prefixes names
/// again and again, so longer names are cut.
constexpr size_t kMaxName = 1000;
constexpr int kNodeOverload = 8, kFunctionDefaults = 11, kFunctionOverload = 13;

std::string unknownString(const google::protobuf::Message &message,
                          int number) {
  const auto &fields = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < fields.field_count(); ++i)
    if (fields.field(i).number() == number &&
        fields.field(i).type() ==
            google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      return fields.field(i).length_delimited();
  return "";
}

std::string key(const std::string &domain, const std::string &name,
                const std::string &overload) {
  return (domain == "ai.onnx" ? "" : domain) + "::" + name + "::" + overload;
}
} // namespace

struct FunctionInliner::Function {
  const ::onnx::FunctionProto *proto = nullptr;
  std::shared_ptr<const Opsets> opsets;
  std::map<std::string, ::onnx::AttributeProto> defaults;
};

/// The names during the inlining of one call: maps names in the function's body
/// to names in the graph, and attribute references to attributes of the call.
struct FunctionInliner::Scope {
  std::map<std::string, std::string> values;
  std::map<std::string, const ::onnx::AttributeProto *> attributes;
  std::string prefix;

  std::string rename(const std::string &name) {
    if (name.empty())
      return name;
    auto [it, isNew] = values.try_emplace(name);
    if (isNew)
      it->second = prefix + name;
    return it->second;
  }
  void rewriteAttributes(::onnx::NodeProto &node);
  void rewriteGraph(::onnx::GraphProto &graph);
};

FunctionInliner::~FunctionInliner() = default;

FunctionInliner::FunctionInliner(
    const ::onnx::ModelProto &model,
    std::vector<std::unique_ptr<::onnx::NodeProto>> &storage, int64_t most)
    : model(model), storage(storage), most(most) {
  for (const ::onnx::FunctionProto &proto : model.functions()) {
    Function function;
    function.proto = &proto;
    auto opsets = std::make_shared<Opsets>();
    for (const auto &import : proto.opset_import())
      (*opsets)[import.domain() == "ai.onnx" ? "" : import.domain()] =
          import.version();
    function.opsets = opsets;
    const auto &fields = proto.GetReflection()->GetUnknownFields(proto);
    for (int i = 0; i < fields.field_count(); ++i) {
      ::onnx::AttributeProto attribute;
      if (fields.field(i).number() == kFunctionDefaults &&
          fields.field(i).type() ==
              google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED &&
          attribute.ParseFromString(fields.field(i).length_delimited()))
        function.defaults[attribute.name()] = attribute;
    }
    functions[key(proto.domain(), proto.name(),
                  unknownString(proto, kFunctionOverload))] = function;
  }
}

const FunctionInliner::Function *
FunctionInliner::find(const ::onnx::NodeProto &node) const {
  auto it = functions.find(
      key(node.domain(), node.op_type(), unknownString(node, kNodeOverload)));
  return it == functions.end() ? nullptr : &it->second;
}

llvm::Error FunctionInliner::run(std::vector<FlatNode> &nodes) {
  auto opsets = std::make_shared<Opsets>();
  for (const auto &import : model.opset_import())
    (*opsets)[import.domain() == "ai.onnx" ? "" : import.domain()] =
        import.version();
  for (const ::onnx::NodeProto &node : model.graph().node())
    if (llvm::Error error = add(nullptr, node, node.name(), opsets, nodes, 0))
      return error;
  return llvm::Error::success();
}

llvm::Error FunctionInliner::add(std::unique_ptr<::onnx::NodeProto> owned,
                                 const ::onnx::NodeProto &node,
                                 std::string name,
                                 const std::shared_ptr<const Opsets> &opsets,
                                 std::vector<FlatNode> &nodes, unsigned depth) {
  // Limits the total size of inlined nodes: a large node counts as several, and
  // calls of empty functions count as well.
  spent += depth > 0 ? 1 + int64_t(node.ByteSizeLong() / 1024) : 0;
  if (spent > most)
    return reason("node '" + (name.empty() ? node.op_type() : name) +
                  "' is one of more than " + Twine(most) +
                  " that calls of functions expand to; import.inlined_nodes "
                  "raises this limit");
  if (const Function *function = find(node))
    return inlineCall(node, name, *function, nodes, depth);
  FlatNode flat{&node, opsets, std::move(name)};
  bool hasGraphs = llvm::any_of(node.attribute(),
                                [](const ::onnx::AttributeProto &attribute) {
                                  return attribute.has_g();
                                });
  if (hasGraphs) {
    if (!owned)
      owned = std::make_unique<::onnx::NodeProto>(node);
    flat.proto = owned.get();
    if (llvm::Error error = addSubgraphs(*owned, flat, depth))
      return error;
  }
  nodes.push_back(std::move(flat));
  if (owned)
    storage.push_back(std::move(owned));
  return llvm::Error::success();
}

void FunctionInliner::Scope::rewriteAttributes(::onnx::NodeProto &node) {
  google::protobuf::RepeatedPtrField<::onnx::AttributeProto> kept;
  for (::onnx::AttributeProto &attribute : *node.mutable_attribute()) {
    if (!attribute.ref_attr_name().empty()) {
      auto it = attributes.find(attribute.ref_attr_name());
      if (it == attributes.end())
        continue; // no value is given: the operator's own default holds
      std::string name = attribute.name();
      attribute = *it->second;
      attribute.set_name(name);
    }
    if (attribute.has_g())
      rewriteGraph(*attribute.mutable_g());
    for (::onnx::GraphProto &graph : *attribute.mutable_graphs())
      rewriteGraph(graph);
    *kept.Add() = attribute;
  }
  node.mutable_attribute()->Swap(&kept);
}

/// Renames values in a subgraph of a function's body. Values that the subgraph
/// defines and those that it reads from the body are renamed alike, since names
/// are unique within a body.
void FunctionInliner::Scope::rewriteGraph(::onnx::GraphProto &graph) {
  for (auto &value : *graph.mutable_input())
    value.set_name(rename(value.name()));
  for (auto &value : *graph.mutable_output())
    value.set_name(rename(value.name()));
  for (auto &tensor : *graph.mutable_initializer())
    tensor.set_name(rename(tensor.name()));
  for (::onnx::NodeProto &node : *graph.mutable_node()) {
    for (std::string &input : *node.mutable_input())
      input = rename(input);
    for (std::string &output : *node.mutable_output())
      output = rename(output);
    rewriteAttributes(node);
  }
}

llvm::Error FunctionInliner::inlineCall(const ::onnx::NodeProto &call,
                                        const std::string &name,
                                        const Function &function,
                                        std::vector<FlatNode> &nodes,
                                        unsigned depth) {
  const ::onnx::FunctionProto &proto = *function.proto;
  if (depth == kMaxDepth)
    return reason("function '" + proto.name() + "' calls itself");
  if (call.input_size() > proto.input_size() ||
      call.output_size() > proto.output_size())
    return reason("node '" + name + "' passes " + Twine(call.input_size()) +
                  " inputs and takes " + Twine(call.output_size()) +
                  " outputs of function '" + proto.name() + "', which has " +
                  Twine(proto.input_size()) + " and " +
                  Twine(proto.output_size()));
  Scope scope;
  scope.prefix = (name.empty() ? proto.name() : name) + "#" +
                 std::to_string(calls++) + "/";
  for (int i = 0; i < proto.input_size(); ++i)
    scope.values[proto.input(i)] = i < call.input_size() ? call.input(i) : "";
  // A function may return one of its own inputs. Such an output gets an
  // Identity node after the body.
  std::vector<std::pair<std::string, std::string>> copies;
  for (int i = 0; i < call.output_size(); ++i) {
    if (call.output(i).empty())
      continue;
    auto [it, isNew] =
        scope.values.try_emplace(proto.output(i), call.output(i));
    if (!isNew)
      copies.push_back({it->second, call.output(i)});
  }
  for (const auto &[attribute, value] : function.defaults)
    scope.attributes[attribute] = &value;
  for (const ::onnx::AttributeProto &attribute : call.attribute())
    scope.attributes[attribute.name()] = &attribute;

  for (const ::onnx::NodeProto &node : proto.node()) {
    auto copy = std::make_unique<::onnx::NodeProto>(node);
    for (std::string &input : *copy->mutable_input())
      input = scope.rename(input);
    for (std::string &output : *copy->mutable_output())
      output = scope.rename(output);
    scope.rewriteAttributes(*copy);
    const ::onnx::NodeProto &reference = *copy;
    std::string inner = name.empty() ? node.name() : name + "/" + node.name();
    if (inner.size() > kMaxName)
      inner = "..." + inner.substr(inner.size() - kMaxName);
    if (llvm::Error error = add(std::move(copy), reference, inner,
                                function.opsets, nodes, depth + 1))
      return error;
  }
  for (auto &[from, to] : copies) {
    auto copy = std::make_unique<::onnx::NodeProto>();
    copy->set_op_type("Identity");
    copy->add_input(from);
    copy->add_output(to);
    const ::onnx::NodeProto &reference = *copy;
    // Identity is an operator of the default domain. The function need not
    // import an operator set of this domain, so the node gets its own.
    auto opsets = std::make_shared<const Opsets>(Opsets{{"", 13}});
    if (llvm::Error error =
            add(std::move(copy), reference, name, opsets, nodes, depth + 1))
      return error;
  }
  return llvm::Error::success();
}

} // namespace cleave::importer
