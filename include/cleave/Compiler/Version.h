// The version of cleave, for tools whose --version LLVM prints.

#ifndef CLEAVE_COMPILER_VERSION_H
#define CLEAVE_COMPILER_VERSION_H

namespace cleave::compiler {

/// Makes `--version` print a line such as "cleave 0.1.0" after LLVM's lines.
/// Called before LLVM parses the command line.
void addVersionPrinter();

} // namespace cleave::compiler

#endif
