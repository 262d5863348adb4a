// Lowers the nodes of an ONNX file to operations, in order. A node that is
// refused does not stop the lowering of other nodes, so that all problems are
// reported.

#include "ChosenRows.h"
#include "Families.h"
#include "Importer.h"

#include <onnx/onnx_pb.h>

#include "mlir/IR/Verifier.h"

using namespace mlir;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using llvm::Twine;

namespace cleave::importer {

void Importer::lowerNodes() {
  const int64_t before = HostTensor::stored();
  for (const FlatNode &node : model.nodes()) {
    if (!makesOneOf(node, needed))
      continue;
    lowerNode(node);
    if (HostTensor::stored() - before <= options.limits.evaluatedElements)
      continue;
    problems.add(node, "constants up to here have more than " +
                           std::to_string(options.limits.evaluatedElements) +
                           " elements; import.evaluated_elements raises this "
                           "limit");
    // If the limit on work is reached, no further nodes are lowered, and all
    // outputs count as failed.
    failed.insert(outputs.begin(), outputs.end());
    return;
  }
}

/// Adds a placeholder for the result `name` of a refused node if the ONNX file
/// states its type, so that the nodes that read the result are checked, too.
/// Returns whether it did. Integers get no placeholder: they could be sizes,
/// which must be known.
bool Importer::standIn(const std::string &name) {
  for (const ::onnx::ValueInfoProto &info : model.graph().value_info()) {
    if (info.name() != name || !isFloat(elementOf(info)))
      continue;
    Expected<Shape> shape = shapeOf(info);
    if (!shape || llvm::is_contained(*shape, 0)) {
      llvm::consumeError(shape.takeError());
      return false;
    }
    auto type =
        RankedTensorType::get(*shape, toType(elementOf(info), &context));
    values[name] =
        Operand(function.front().addArgument(type, model.location()));
    return true;
  }
  return false;
}

/// Verifies the operations from `op` on, which were emitted for one node, so
/// that an error can name the node. Returns the first error, or "".
std::string Importer::verifyFrom(Operation *op) {
  std::string why;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (why.empty())
      why = diagnostic.str();
    return success();
  });
  for (; op; op = op->getNextNode())
    if (mlir::failed(verify(op)))
      return why;
  return "";
}

/// Returns whether a table of positions is shorter than the token sequence.
/// Other size mismatches, such as those of a KV cache, have other reasons.
bool Importer::isLongSequence(const FlatNode &flat,
                              ArrayRef<Operand> operands) const {
  auto at = argumentIndex.find(tokens);
  if (at == argumentIndex.end() || tokens.empty())
    return false;
  auto type = cast<RankedTensorType>(arguments[at->second].value.getType());
  if (type.getRank() < 2)
    return false;
  for (auto [name, table] : llvm::zip(flat.proto->input(), operands))
    for (const Operand &other : operands)
      for (auto [had, wanted] :
           llvm::zip(llvm::reverse(table.shape), llvm::reverse(other.shape)))
        if (tables.count(name) && had < wanted && wanted == type.getDimSize(1))
          return true;
  return false;
}

void Importer::storeResults(const FlatNode &flat, const Node &node) {
  for (auto [name, result] : llvm::zip(flat.proto->output(), node.results)) {
    if (name.empty())
      continue;
    if (result.value || result.host || result.file || result.parts) {
      values[name] = result;
      continue;
    }
    failed.insert(name);
    if (needed.count(name))
      problems.add(flat, "its output '" + name + "' is not supported");
  }
}

Expected<SmallVector<Operand>>
Importer::lowerGraph(const Subgraph &graph, ArrayRef<Operand> arguments) {
  for (auto [name, argument] : llvm::zip_equal(graph.inputs, arguments))
    values[name] = argument;
  ++graphDepth;
  for (const FlatNode &node : graph.nodes)
    if (makesOneOf(node, needed))
      lowerNode(node);
  --graphDepth;
  SmallVector<Operand> results;
  for (const std::string &name : graph.outputs) {
    std::string why;
    const Operand *operand = lookUp(name, why);
    if (!operand)
      return reason(why);
    results.push_back(*operand);
  }
  return results;
}

/// Returns the message for a node whose operations the verifier refuses with
/// the error `why`.
static std::string refusedTypes(ArrayRef<Operand> operands, StringRef why) {
  std::string types;
  for (const Operand &operand : operands)
    if (operand.type != Element::Undefined)
      types += (types.empty() ? "" : ", ") + nameOf(operand.type) +
               spell(operand.shape);
  StringRef rule = why.split(", but got").first;
  if (rule.starts_with("'")) // 'math.absf' op operand #0 must be ...
    rule = rule.split(" op ").second;
  return "is not supported for " + types + ": " + rule.str();
}

void Importer::lowerNode(const FlatNode &flat) {
  // Records a failed node. The reason `why` is empty if the node failed only
  // because the node of an operand did, which is recorded already.
  auto fail = [&](const std::string &why) {
    if (!why.empty())
      problems.add(flat, why);
    for (const std::string &name : flat.proto->output())
      if (!standIn(name))
        failed.insert(name);
  };
  const OnnxOp *entry = entryOf(flat);
  if (!entry) // of the main graph: already in the list
    return fail(graphDepth ? whyUnknown(flat) : "");
  SmallVector<Operand> operands;
  for (const std::string &name : flat.proto->input()) {
    std::string why;
    const Operand *operand = lookUp(name, why);
    if (!operand) {
      if (why.empty() && entryOf(flat))
        problems.addUnseen();
      return fail(why);
    }
    if (operand->parts && !entry->readsSequence)
      return fail("its input '" + name +
                  "' is a sequence of tensors, expected a tensor");
    operands.push_back(*operand);
  }
  widenBesideValues(operands);
  // True if an operand is a table of positions, or a moved or cast form of one.
  bool readsTable =
      llvm::any_of(flat.proto->input(), [&](const std::string &name) {
        return tables.count(name) != 0;
      });
  // The key does not cover subgraphs.
  const std::string key = readsTable || !flat.subgraphs.empty()
                              ? ""
                              : EvaluatedNodes::keyOf(flat, operands);
  if (const SmallVector<Operand> *known = evaluated.find(key)) {
    for (auto [name, result] : llvm::zip(flat.proto->output(), *known))
      if (!name.empty())
        values[name] = result;
    return;
  }
  Block &body = *builder.getInsertionBlock();
  Operation *before = body.empty() ? nullptr : &body.back();
  Node node(model, flat, operands, builder,
            [this](const TensorRef &tensor) { return argumentOf(tensor); });
  node.lowerGraph = [this](const Subgraph &graph, ArrayRef<Operand> arguments) {
    return lowerGraph(graph, arguments);
  };
  bool chooses = meetsChosenRows(node);
  if (Error error =
          chooses ? lowerChosenRows(*entry, node) : entry->lower(node)) {
    std::string why = llvm::toString(std::move(error));
    bool isShape = StringRef(why).contains("do not broadcast");
    return fail(isShape && isLongSequence(flat, operands)
                    ? why + kLongSequence.str()
                    : why);
  }
  Operation *first = before         ? before->getNextNode()
                     : body.empty() ? nullptr
                                    : &body.front();
  if (std::string why = verifyFrom(first); !why.empty())
    return fail(refusedTypes(operands, why));
  for (const Operand &result : node.results)
    if (product(result.shape) > kMaxSize)
      return fail("its result of shape " + spell(result.shape) +
                  " has more than " + std::to_string(kMaxSize) + " elements");
  if (node.isCutShort || (readsTable && movesFirstInput(flat.proto->op_type())))
    tables.insert(flat.proto->output(0));
  else if (graphDepth == 0)
    evaluated.add(key, operands, node.results);
  storeResults(flat, node);
}

} // namespace cleave::importer
