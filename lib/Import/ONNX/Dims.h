// Sizes of symbolic dimensions.

#ifndef CLEAVE_LIB_IMPORT_ONNX_DIMS_H
#define CLEAVE_LIB_IMPORT_ONNX_DIMS_H

#include "llvm/ADT/StringRef.h"

#include <map>
#include <optional>
#include <string>

namespace cleave::importer {

using Bindings = std::map<std::string, int64_t>;

/// Returns the size of a dimension that the ONNX file states as a name or as an
/// expression of names, such as "past + seq" or "2*s0". If a name has no value
/// in `bindings`, returns nullopt and stores the name in `unbound`.
std::optional<int64_t> evaluateDim(llvm::StringRef expression,
                                   const Bindings &bindings,
                                   std::string &unbound);

/// Returns the configuration key of a dimension: "dims.batch", or with quotes
/// where TOML needs them: dims."p2o.Dyn.0".
std::string dimKey(llvm::StringRef name);

} // namespace cleave::importer

#endif
