// Arguments that several tensors of the file make together.

#ifndef CLEAVE_DIALECT_NN_IR_PARTS_H
#define CLEAVE_DIALECT_NN_IR_PARTS_H

#include "cleave/Dialect/NN/IR/Ports.h"

namespace cleave::nn {

/// [{name[, data]}]: the tensors of the file that lie one after the other along
/// dimension 0, each without that dimension. The argument's own name is the
/// first's, and it has no `nn.data`.
inline constexpr llvm::StringLiteral kPartsAttr = "nn.parts";

/// Of @forward: the names of float tensors of the file that were taken for
/// constants, so that no argument is called so.
inline constexpr llvm::StringLiteral kConstantsAttr = "nn.constants";

/// The tensors of the file that an argument with these attributes holds.
inline llvm::SmallVector<llvm::StringRef, 1>
fileNamesOf(mlir::DictionaryAttr attrs) {
  llvm::SmallVector<llvm::StringRef, 1> names;
  if (!attrs)
    return names;
  if (auto parts = attrs.getAs<mlir::ArrayAttr>(kPartsAttr)) {
    for (auto part : parts.getAsRange<mlir::DictionaryAttr>())
      names.push_back(part.getAs<mlir::StringAttr>("name").getValue());
  } else if (llvm::StringRef name = nameOf(attrs); !name.empty()) {
    names.push_back(name);
  }
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
