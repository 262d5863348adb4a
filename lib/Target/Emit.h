// Functions that convert a module of the rt dialect to a program for the
// runtime (cleave/program.h): its commands, the table of its named buffers, and
// the launch configurations of its kernels.

#ifndef CLEAVE_LIB_TARGET_EMIT_H
#define CLEAVE_LIB_TARGET_EMIT_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Memory/BoundaryTable.h"
#include "cleave/program.h"

#include "llvm/ADT/StringMap.h"

namespace cleave::target {

/// Emits the entries of the boundary table, which lists the program's named
/// buffers. Their shardings are over `mesh`; a null `mesh` means one rank.
mlir::LogicalResult emitBoundary(const BoundaryTable &table,
                                 dist::MeshAttr mesh, mlir::Operation *where,
                                 program::Program &program);

/// Copies the addresses that rt-plan-memory assigned to the buffers of `func`
/// into the boundary table.
void readOffsets(mlir::func::FuncOp func, BoundaryTable &table);

/// Returns the index in `table` of the parameter to which `buffer` (an
/// optimizer state or a gradient) belongs; -1 for other buffers.
int64_t parameterOf(const BoundaryTable &table, const BoundaryBuffer &buffer);

/// Adds the grid and block sizes of kernels on CUDA devices to the program, and
/// verifies that the addresses of all launches have the alignment that the
/// kernels assume.
mlir::LogicalResult describeLaunches(mlir::ModuleOp module,
                                     program::Program &program);

/// Converts functions of the rt dialect to actions of the program, that is, to
/// lists of commands.
class CommandEmitter {
public:
  CommandEmitter(mlir::ModuleOp module, program::Program &program)
      : module(module), program(program) {}

  /// Emits a function as an action of the program. The bodies of its loops
  /// become actions as well and are emitted before it, so the function's own
  /// action is the last one of the program.
  mlir::LogicalResult emit(mlir::func::FuncOp func);

private:
  mlir::LogicalResult emitBodies(mlir::func::FuncOp func);
  mlir::LogicalResult emit(mlir::Operation *op);
  program::Launch launch(rt::LaunchOp op, int64_t &flops);
  program::Gemm gemm(rt::GemmOp op);
  program::GroupedGemm grouped(rt::GroupedGemmOp op);
  program::Attention attention(rt::AttentionOp op);
  program::Attention attention(rt::AttentionGradOp op);
  program::Convolution convolution(rt::ConvOp op);
  program::Collective collective(rt::CollectiveOp op);
  program::PlanRows planRows(rt::PlanRowsOp op);
  program::SortRows sortRows(rt::SortRowsOp op);
  program::PositionInExpert positionInExpert(rt::PositionInExpertOp op);
  program::Copy copy(rt::CopyOp op);
  program::Fill fill(rt::FillOp op);
  program::Repeat repeat(rt::RepeatOp op, int64_t &flops);

  /// Returns the address of element `offset` of a value.
  program::BufferRef ref(mlir::Value value, int64_t offset = 0);
  program::AttentionRef strided(program::AttentionRef described,
                                mlir::Value value,
                                llvm::ArrayRef<int64_t> view);
  template <class Op> void fillShared(program::Attention &x, Op op);
  uint32_t kernelIndex(rt::LaunchOp op);
  program::StringId intern(llvm::StringRef text);

  mlir::ModuleOp module;
  program::Program &program;
  program::Action *action = nullptr;
  llvm::DenseMap<mlir::Value, int32_t> tokens;
  /// The addresses of the booleans to which the rt.condition operations of the
  /// function refer. The key is the number that an rt.condition gives.
  llvm::DenseMap<mlir::Attribute, program::BufferRef> flags;
  /// The indices of the actions that were emitted for loop bodies, by the name
  /// of the body.
  llvm::StringMap<uint32_t> bodies;
  llvm::StringMap<uint32_t> kernels;
  llvm::StringMap<int64_t> kernelFlops;
  llvm::StringMap<program::StringId> strings;
};

} // namespace cleave::target

#endif
