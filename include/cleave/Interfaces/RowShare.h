// What a local product of rows with chosen matrices tells its cost.

#ifndef CLEAVE_INTERFACES_ROWSHARE_H
#define CLEAVE_INTERFACES_ROWSHARE_H

#include "llvm/ADT/StringRef.h"

namespace cleave {

/// On nn.grouped_dot and nn.grouped_outer that have a tile of the matrices:
/// one of so many rows chooses one of the tile's, if all are chosen equally.
inline constexpr llvm::StringLiteral kRowShareAttrName = "nn.row_share";

} // namespace cleave

#endif
