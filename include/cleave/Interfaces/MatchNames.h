// Messages about patterns of parameter names in the configuration.

#ifndef CLEAVE_INTERFACES_MATCHNAMES_H
#define CLEAVE_INTERFACES_MATCHNAMES_H

#include "cleave/Dialect/NN/IR/NN.h"

#include <string>

namespace cleave {

/// Goes on after "pattern '...'" where it matches none of `parameters`, the
/// attributes of their arguments: how many there are, and either what the
/// tensor that is meant is called, or the nearest name. `rule`: what a pattern
/// matches.
std::string
describeNoMatch(llvm::StringRef pattern,
                llvm::ArrayRef<mlir::DictionaryAttr> parameters,
                llvm::StringRef rule = "patterns match whole names");

} // namespace cleave

#endif
