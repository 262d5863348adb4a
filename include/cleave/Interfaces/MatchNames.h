// Messages about patterns of parameter names in the configuration.

#ifndef CLEAVE_INTERFACES_MATCHNAMES_H
#define CLEAVE_INTERFACES_MATCHNAMES_H

#include "cleave/Dialect/NN/IR/NN.h"

#include <string>

namespace cleave {

/// Returns the continuation of a message "pattern '...'" for a pattern that
/// matches none of `parameters`, which are attributes of arguments. The text
/// has the number of parameters, and either the name of the tensor that is
/// probably meant or the nearest name. `rule` says what a pattern matches.
std::string
describeNoMatch(llvm::StringRef pattern,
                llvm::ArrayRef<mlir::DictionaryAttr> parameters,
                llvm::StringRef rule = "patterns match whole names");

} // namespace cleave

#endif
