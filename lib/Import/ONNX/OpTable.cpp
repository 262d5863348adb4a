// The table of all supported operators, assembled from the families.

#include "Families.h"

#include "llvm/ADT/STLExtras.h"

namespace cleave {

const std::vector<OnnxOp> &onnxOps() {
  static const std::vector<OnnxOp> table = [] {
    std::vector<OnnxOp> rows;
    importer::addConstantOps(rows);
    importer::addElementwiseOps(rows);
    importer::addPowerOps(rows);
    importer::addShapeOps(rows);
    importer::addGatherOps(rows);
    importer::addIndexingOps(rows);
    importer::addSequenceOps(rows);
    importer::addSelectionOps(rows);
    importer::addReductionOps(rows);
    importer::addContractionOps(rows);
    importer::addConvolutionOps(rows);
    importer::addNormalizationOps(rows);
    importer::addControlOps(rows);
    importer::addRecurrentOps(rows);
    importer::addAttentionOps(rows);
    importer::addExpertOps(rows);
    llvm::sort(rows, [](const OnnxOp &a, const OnnxOp &b) {
      return std::pair(a.name, a.first) < std::pair(b.name, b.first);
    });
    return rows;
  }();
  return table;
}

const OnnxOp *findOnnxOp(llvm::StringRef name, int64_t opset) {
  for (const OnnxOp &op : onnxOps())
    if (op.name == name && op.first <= opset && opset <= op.last)
      return &op;
  return nullptr;
}

} // namespace cleave
