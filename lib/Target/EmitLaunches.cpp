// Computes the grid and block sizes of a program's kernels on CUDA devices.

#include "Emit.h"

#include "cleave/Codegen/GPU/GPU.h"
#include "cleave/Fusion/Fusion.h"

#include <map>
#include <numeric>

using namespace mlir;
using namespace cleave;
using namespace cleave::target;

/// Returns, for each action and arena, a common divisor of the offsets that
/// callers add to addresses; 0 if no caller adds an offset.
static std::map<std::pair<uint32_t, int32_t>, int64_t>
movesOf(const program::Program &program) {
  std::map<std::pair<uint32_t, int32_t>, int64_t> moves;
  for (const program::Action &action : program.actions)
    for (const program::Command &command : action.commands)
      if (auto *call = std::get_if<program::Call>(&command.op))
        for (const program::Rebase &rebase : call->rebase) {
          int64_t &divisor = moves[{call->action, rebase.arena}];
          divisor = std::gcd(divisor, rebase.offset);
        }
  return moves;
}

/// Verifies that the addresses of all launches have the alignments that
/// rt-align-kernels set.
static LogicalResult verifyAlignment(ModuleOp module,
                                     const program::Program &program) {
  auto moves = movesOf(program);
  std::vector<ArrayRef<int64_t>> given;
  for (const program::Kernel &kernel : program.kernels) {
    auto func = module.lookupSymbol<func::FuncOp>(kernel.symbol);
    auto align = func->getAttrOfType<DenseI64ArrayAttr>(kernels::kAlignAttr);
    given.push_back(align ? align.asArrayRef() : ArrayRef<int64_t>());
  }
  for (auto [number, action] : llvm::enumerate(program.actions))
    for (const program::Command &command : action.commands) {
      auto *launch = std::get_if<program::Launch>(&command.op);
      if (!launch)
        continue;
      const program::Kernel &kernel = program.kernels[launch->kernel];
      for (auto [index, arg] : llvm::enumerate(launch->args)) {
        int64_t divisor = std::gcd(kernels::kKernelAlignment, arg.offset);
        for (const program::AxisTerm &term : arg.terms)
          divisor = std::gcd(divisor, term.coef);
        if (auto move = moves.find({uint32_t(number), arg.arena});
            move != moves.end())
          divisor = std::gcd(divisor, move->second);
        ArrayRef<int64_t> align = given[launch->kernel];
        int64_t assumed =
            align.empty() ? kernels::kKernelAlignment : align[index];
        if (divisor < assumed)
          return module.emitError("internal error: kernel @")
                 << kernel.symbol << " takes argument " << index
                 << " for a multiple of " << assumed << ", but in '"
                 << action.name << "' it is one of " << divisor
                 << "; please report this";
      }
    }
  return success();
}

LogicalResult target::describeLaunches(ModuleOp module,
                                       program::Program &program) {
  if (program.kernels.empty())
    return success();
  FailureOr<OwningOpRef<ModuleOp>> emitted = codegen::emitGpuKernels(module);
  if (failed(emitted))
    return failure();
  llvm::StringMap<codegen::GpuKernel> launches;
  for (const codegen::GpuKernel &kernel : codegen::gpuKernels(**emitted))
    launches[kernel.symbol] = kernel;
  for (program::Kernel &kernel : program.kernels) {
    auto launch = launches.find(kernel.symbol);
    if (launch == launches.end())
      return module.emitError("the module has no kernel @") << kernel.symbol;
    // After its arguments a kernel takes one more: the address of an array with
    // the rank's index on each mesh axis.
    if (launch->second.arguments != kernel.numArgs + 1)
      return module.emitError("internal error: kernel @")
             << kernel.symbol << " takes " << launch->second.arguments - 1
             << " addresses, but is launched with " << kernel.numArgs
             << "; please report this";
    kernel.grid = launch->second.grid;
    kernel.block = launch->second.block;
  }
  return verifyAlignment(module, program);
}
