// Records how many bytes of a collective's payload are padding.

#ifndef CLEAVE_DIALECT_DIST_IR_PADDING_H
#define CLEAVE_DIALECT_DIST_IR_PADDING_H

#include "cleave/Dialect/Dist/IR/Layout.h"

namespace cleave::dist {

/// Attribute of collectives and of their commands in the rt dialect: the number
/// of bytes of the payload that are padding, as the mean over all groups.
/// Without the attribute there is no padding. The value is only used for
/// reports.
inline constexpr llvm::StringLiteral kPaddingAttrName = "dist.padding";

/// Sets the attribute to the padding in a payload of type `payload`, which is a
/// tile of a tensor of type `whole` in `layout`.
void notePadding(mlir::Operation *collective, const MeshAxes &mesh,
                 const Layout &layout, mlir::RankedTensorType whole,
                 mlir::RankedTensorType payload);

/// Returns the padding in bytes that the attribute states; 0 without the
/// attribute.
int64_t paddingOf(mlir::Operation *collective);

/// Sets the attribute to `bytes`; leaves the operation unchanged if `bytes` is
/// 0.
void setPadding(mlir::Operation *collective, int64_t bytes);

} // namespace cleave::dist

#endif
