// Arguments that several tensors of the file make together.

#ifndef CLEAVE_DIALECT_NN_IR_PARTS_H
#define CLEAVE_DIALECT_NN_IR_PARTS_H

#include "cleave/Dialect/NN/IR/Ports.h"

namespace cleave::nn {

/// Of @forward: the names of float tensors of the file that were taken for
/// constants, so that no argument is called so.
inline constexpr llvm::StringLiteral kConstantsAttr = "nn.constants";

/// The tensors of the file that an argument with these attributes holds.
inline llvm::SmallVector<llvm::StringRef, 1>
fileNamesOf(mlir::DictionaryAttr attrs) {
  llvm::SmallVector<llvm::StringRef, 1> names;
  for (PartAttr part : partsOf(attrs))
    names.push_back(part.getName());
  if (llvm::StringRef name = nameOf(attrs); names.empty() && !name.empty())
    names.push_back(name);
  return names;
}

/// Of a parameter [C, 1, ...] that is only added or multiplied: one number for
/// each channel, which is a vector in the module that the file was made of.
inline constexpr llvm::StringLiteral kVectorAttr = "nn.vector";

/// The rank of each of them, where the argument has `rank` in the file's shape.
inline int64_t fileRankOf(mlir::DictionaryAttr attrs, int64_t rank) {
  if (attrs && attrs.get(kVectorAttr))
    return 1;
  return rank - (attrs && attrs.get(kPartsAttr) ? 1 : 0);
}

} // namespace cleave::nn

#endif
