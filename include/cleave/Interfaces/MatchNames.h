// Messages about patterns of parameter names in the configuration.

#ifndef CLEAVE_INTERFACES_MATCHNAMES_H
#define CLEAVE_INTERFACES_MATCHNAMES_H

#include "cleave/Dialect/NN/IR/NN.h"

#include <string>

namespace cleave {

/// Returns the rest of an error message that begins with "pattern '...'", for a
/// pattern that matches none of `parameters` (attributes of arguments). The
/// rest states the number of parameters and the name that was probably meant,
/// or the nearest name. `rule` says what a pattern matches.
std::string
describeNoMatch(llvm::StringRef pattern,
                llvm::ArrayRef<mlir::DictionaryAttr> parameters,
                llvm::StringRef rule = "patterns match whole names");

} // namespace cleave

#endif
