// Detects initializers that may stand for several parameters, because the
// exporter merged equal ones.

#include "Classify.h"
#include "Model.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/STLExtras.h"

using llvm::StringRef;

namespace cleave::importer {

/// Returns whether, according to the metadata of the ONNX file, all uses read
/// the same tensor of the original model.
static bool isOneTensor(llvm::ArrayRef<Model::Use> uses) {
  std::vector<std::string> common = readsOf(*uses.front().node->proto);
  if (common.empty())
    return false;
  for (const Model::Use &use : uses.drop_front()) {
    std::vector<std::string> reads = readsOf(*use.node->proto);
    llvm::erase_if(common, [&](const std::string &name) {
      return !llvm::is_contained(reads, name);
    });
  }
  return !common.empty();
}

/// Returns the name of the value from which the indices of a lookup come:
/// operations that only reshape, transpose, cast or repeat the indices are
/// skipped.
static std::string
sourceOfIndices(const std::map<std::string, const ::onnx::NodeProto *> &makers,
                const ::onnx::NodeProto &lookup) {
  std::string value = lookup.input(1);
  for (auto found = makers.find(value);
       found != makers.end() && movesFirstInput(found->second->op_type()) &&
       found->second->op_type() != "Slice";
       found = makers.find(value))
    value = found->second->input(0);
  return value;
}

/// Returns whether all lookups in an embedding table have different indices, as
/// those of an encoder and a decoder that share their embedding. Then the model
/// has only one table. If the exporter had merged several equal tables, the
/// lookups in them would have the same indices.
static bool looksUpOthers(const Model &model,
                          llvm::ArrayRef<Model::Use> lookups) {
  std::map<std::string, const ::onnx::NodeProto *> makers;
  for (const FlatNode &node : model.nodes())
    for (const std::string &output : node.proto->output())
      makers[output] = node.proto;
  std::set<std::string> sources;
  return llvm::all_of(lookups, [&](const Model::Use &use) {
    return use.node->proto->input_size() > 1 &&
           sources.insert(sourceOfIndices(makers, *use.node->proto)).second;
  });
}

std::vector<MergedTensor> mergedTensors(const Model &model) {
  std::vector<MergedTensor> merged;
  std::map<std::string, std::vector<Model::Use>> uses = model.uses();
  for (const TensorRef &tensor : model.initializers()) {
    auto found = uses.find(tensor.name);
    if (!isFloat(tensor.type) || found == uses.end() || tensor.isApart)
      continue;
    std::vector<Model::Use> whole = found->second;
    // Two kinds of uses do not suggest that parameters were merged: those that
    // read only a part of the tensor, and, for an embedding table, matrix
    // products with it (tied weights).
    bool isTable = false;
    llvm::erase_if(whole, [&](const Model::Use &use) {
      isTable |= use.node->proto->op_type() == "Gather" && use.operand == 0;
      return readsPart(*use.node->proto);
    });
    if (isTable)
      llvm::erase_if(whole, [](const Model::Use &use) {
        return use.node->proto->op_type() != "Gather";
      });
    if (isTable && looksUpOthers(model, whole))
      continue;
    if (whole.size() > 1 && !isOneTensor(whole))
      merged.push_back({tensor.name, int(whole.size())});
  }
  return merged;
}

} // namespace cleave::importer
