// How much of a message is padding.

#ifndef CLEAVE_DIALECT_DIST_IR_PADDING_H
#define CLEAVE_DIALECT_DIST_IR_PADDING_H

#include "cleave/Dialect/Dist/IR/Layout.h"

namespace cleave::dist {

/// Attribute of collectives and of their commands in the rt dialect: the number
/// of bytes of the payload that are padding, as the mean over all groups.
/// Without the attribute there is no padding. The value is only used for
/// reports.
inline constexpr llvm::StringLiteral kPaddingAttrName = "dist.padding";

/// Sets the padding of a collective with a payload of shape `payload`, which is
/// a tile of a tensor of type `whole` in `layout`.
void notePadding(mlir::Operation *collective, const MeshAxes &mesh,
                 const Layout &layout, mlir::RankedTensorType whole,
                 mlir::RankedTensorType payload);

/// Returns the padding in bytes; 0 if the operation does not have the
/// attribute.
int64_t paddingOf(mlir::Operation *collective);

/// Sets the padding in bytes; leaves the operation unchanged if it is 0.
void setPadding(mlir::Operation *collective, int64_t bytes);

} // namespace cleave::dist

#endif
