// Messages about patterns of parameter names in the configuration.

#ifndef CLEAVE_INTERFACES_MATCHNAMES_H
#define CLEAVE_INTERFACES_MATCHNAMES_H

#include "cleave/Dialect/NN/IR/NN.h"

#include <string>

namespace cleave {

/// Returns the text that follows "pattern '...'" in the error message for a
/// pattern that matches none of `parameters` (the attributes of the function's
/// arguments). The text states the number of parameters, the first names,
/// `rule` (what a pattern must match) and the name nearest to the pattern. If
/// the pattern matches the second name of a tied parameter, the text says so
/// instead.
std::string
describeNoMatch(llvm::StringRef pattern,
                llvm::ArrayRef<mlir::DictionaryAttr> parameters,
                llvm::StringRef rule = "patterns match whole names");

} // namespace cleave

#endif
