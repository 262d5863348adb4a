// LLVM's optimiser with the settings for kernels of all targets.

#ifndef CLEAVE_CODEGEN_OPTIMIZE_H
#define CLEAVE_CODEGEN_OPTIMIZE_H

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace cleave::codegen {

/// Optimises the kernels of `module` at `level`, 0 to 3. Loops stay as they
/// are: kernels are vectorised already.
void optimizeKernels(llvm::Module &module, llvm::TargetMachine &machine,
                     unsigned level);

} // namespace cleave::codegen

#endif
