// Arguments of the program that hold tensors of the model file: an argument may
// be one of these tensors, or several that are stacked along a new dimension.

#ifndef CLEAVE_DIALECT_NN_IR_PARTS_H
#define CLEAVE_DIALECT_NN_IR_PARTS_H

#include "cleave/Dialect/NN/IR/Ports.h"

namespace cleave::nn {

/// Attribute of @forward: the names of float tensors of the model file that the
/// importer treats as constants, so that they are not trained.
inline constexpr llvm::StringLiteral kConstantsAttr = "nn.constants";

/// Returns the names of the tensors of the model file that an argument with
/// these attributes holds; empty if the argument has no name.
inline llvm::SmallVector<llvm::StringRef, 1>
fileNamesOf(mlir::DictionaryAttr attrs) {
  llvm::SmallVector<llvm::StringRef, 1> names;
  for (PartAttr part : partsOf(attrs))
    names.push_back(part.getName());
  if (llvm::StringRef name = nameOf(attrs); names.empty() && !name.empty())
    names.push_back(name);
  return names;
}

/// Unit attribute of a parameter [C, 1, ...] with one number per channel that
/// is used only in elementwise additions or products. It says that the
/// parameter was a vector [C] in the exported module.
inline constexpr llvm::StringLiteral kVectorAttr = "nn.vector";

/// Returns the number of dimensions of the tensor in the model file that an
/// argument with `rank` dimensions holds. If the argument stacks several
/// tensors of the file along a new dimension, returns the number of dimensions
/// of each of them. A parameter with `nn.vector` counts as a vector.
inline int64_t fileRankOf(mlir::DictionaryAttr attrs, int64_t rank) {
  if (attrs && attrs.get(kVectorAttr))
    return 1;
  return rank - (attrs && attrs.get(kPartsAttr) ? 1 : 0);
}

} // namespace cleave::nn

#endif
