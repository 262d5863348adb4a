// Initializers that an exporter may have made of several parameters: it stores
// equal ones once.

#include "Classify.h"
#include "Model.h"

#include <onnx/onnx_pb.h>

#include "llvm/ADT/STLExtras.h"

using llvm::StringRef;

namespace cleave::importer {

/// Whether the file says that all uses read one tensor of the model.
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

std::vector<MergedTensor> mergedTensors(const Model &model) {
  std::vector<MergedTensor> merged;
  std::map<std::string, std::vector<Model::Use>> uses = model.uses();
  for (const TensorRef &tensor : model.initializers()) {
    auto found = uses.find(tensor.name);
    if (!isFloat(tensor.type) || found == uses.end() || tensor.isApart)
      continue;
    std::vector<Model::Use> whole = found->second;
    // Parts of a tensor are read apart; and one table may also be the matrix of
    // products.
    bool isTable = false;
    llvm::erase_if(whole, [&](const Model::Use &use) {
      StringRef op = use.node->proto->op_type();
      isTable |= op == "Gather" && use.operand == 0;
      return op == "Slice" || op == "Shape";
    });
    if (isTable)
      llvm::erase_if(whole, [](const Model::Use &use) {
        return use.node->proto->op_type() != "Gather";
      });
    if (whole.size() > 1 && !isOneTensor(whole))
      merged.push_back({tensor.name, int(whole.size())});
  }
  return merged;
}

} // namespace cleave::importer
