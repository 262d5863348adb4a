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
  /// Behind its domain, if that is not the default one.
  llvm::StringRef name;
  /// Versions of its operator set whose meaning the lowering follows.
  int64_t first, last;
  /// 1: language models of today need it; 2: common elsewhere.
  int tier;
  /// Operations that it becomes, separated by blanks; empty where it is always
  /// evaluated while importing or only moves shapes.
  llvm::StringRef becomes;
  llvm::Error (*lower)(importer::Node &);
  /// The operands from this one on are weights, whatever their shape; -1: none
  /// are by their place.
  int weightsFrom = -1;
  /// Takes a sequence of tensors; the others are refused one.
  bool readsSequence = false;
};

/// Sorted by name.
const std::vector<OnnxOp> &onnxOps();
/// The entry for an operator at a version of its domain, or null.
const OnnxOp *findOnnxOp(llvm::StringRef name, int64_t opset);

} // namespace cleave

#endif
