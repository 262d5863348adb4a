// Runs LLVM's optimizer with settings that suit kernels of all targets.

#ifndef CLEAVE_CODEGEN_OPTIMIZE_H
#define CLEAVE_CODEGEN_OPTIMIZE_H

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace cleave::codegen {

/// Optimises the kernels of `module` at `level`, 0 to 3. Loops are not
/// transformed, because kernels are vectorised already.
void optimizeKernels(llvm::Module &module, llvm::TargetMachine &machine,
                     unsigned level);

} // namespace cleave::codegen

#endif
