// The operators that the importer knows: one table for the import, for
// `cleave ops` and for the documentation.

#ifndef CLEAVE_IMPORT_ONNX_OPTABLE_H
#define CLEAVE_IMPORT_ONNX_OPTABLE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <vector>

namespace cleave {

namespace importer {
class Node;
}

struct OnnxOp {
  /// With its domain in front, if that is not the default one.
  llvm::StringRef name;
  /// The range of opset versions whose semantics the lowering implements.
  int64_t first, last;
  /// 1: language models of today need it; 2: common elsewhere.
  int tier;
  /// Operations that it is lowered to, separated by blanks; empty if there are
  /// none: it is evaluated during import, or only passes on its operand or a
  /// shape.
  llvm::StringRef becomes;
  llvm::Error (*lower)(importer::Node &);
  /// Operands from this index on are weights, whatever their shape; -1: no
  /// position implies a weight.
  int weightsFrom = -1;
  /// Whether it takes a sequence of tensors; other operators refuse one.
  bool readsSequence = false;
};

/// Sorted by name.
const std::vector<OnnxOp> &onnxOps();
/// The entry for an operator at a version of its domain, or null.
const OnnxOp *findOnnxOp(llvm::StringRef name, int64_t opset);

} // namespace cleave

#endif
