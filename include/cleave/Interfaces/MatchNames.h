// Messages about patterns of parameter names in the configuration.

#ifndef CLEAVE_INTERFACES_MATCHNAMES_H
#define CLEAVE_INTERFACES_MATCHNAMES_H

#include "cleave/Dialect/NN/IR/NN.h"

#include <string>

namespace cleave {

/// For a pattern that matches none of `parameters` (attributes of arguments),
/// returns the text that follows "pattern
/// '...'" in the error message. It states the number of parameters and the name
/// nearest to the pattern, or the tied parameter that has a matching second
/// name. `rule` says what a pattern matches.
std::string
describeNoMatch(llvm::StringRef pattern,
                llvm::ArrayRef<mlir::DictionaryAttr> parameters,
                llvm::StringRef rule = "patterns match whole names");

} // namespace cleave

#endif
