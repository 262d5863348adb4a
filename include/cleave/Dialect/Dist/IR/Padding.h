// How much of a message is padding.

#ifndef CLEAVE_DIALECT_DIST_IR_PADDING_H
#define CLEAVE_DIALECT_DIST_IR_PADDING_H

#include "cleave/Dialect/Dist/IR/Layout.h"

namespace cleave::dist {

/// On collectives, also of the command list: bytes of the payload that are
/// padding, the mean over all groups. Absent: none. For reports only.
inline constexpr llvm::StringLiteral kPaddingAttrName = "padding";

/// Notes the padding of a collective whose payload is the tile that `layout`
/// gives of a tensor of type `whole`, with `payload` as its own shape.
void notePadding(mlir::Operation *collective, const MeshAxes &mesh,
                 const Layout &layout, mlir::RankedTensorType whole,
                 mlir::RankedTensorType payload);

int64_t paddingOf(mlir::Operation *collective);
void setPadding(mlir::Operation *collective, int64_t bytes);

} // namespace cleave::dist

#endif
