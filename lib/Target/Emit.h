// Parts of the emission of a program.

#ifndef CLEAVE_LIB_TARGET_EMIT_H
#define CLEAVE_LIB_TARGET_EMIT_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Memory/BoundaryTable.h"
#include "cleave/program.h"

#include "llvm/ADT/StringMap.h"

namespace cleave::target {

/// On an integer argument: the number of rows of the smallest table that its
/// elements index, an i64.
inline constexpr llvm::StringLiteral kVocabularyAttr = "nn.vocabulary";
/// Emits the table's entries, with shardings over `mesh` (null: one rank).
mlir::LogicalResult emitBoundary(const BoundaryTable &table,
                                 dist::MeshAttr mesh, mlir::Operation *where,
                                 program::Program &program);

/// Copies the addresses that rt-plan-memory gave to the buffers of an action
/// into the table.
void readOffsets(mlir::func::FuncOp func, BoundaryTable &table);

/// The index of the parameter that state or a gradient belongs to; -1 if there
/// is none.
int64_t parameterOf(const BoundaryTable &table, const BoundaryBuffer &buffer);

/// Emits how kernels are launched on CUDA devices, and verifies that the
/// addresses of all launches are as aligned as the kernels assume.
mlir::LogicalResult describeLaunches(mlir::ModuleOp module,
                                     program::Program &program);

/// Turns the operations of one action into commands.
class CommandEmitter {
public:
  CommandEmitter(mlir::ModuleOp module, program::Program &program)
      : module(module), program(program) {}

  mlir::LogicalResult emit(mlir::func::FuncOp func);

private:
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

  /// The address of a value plus `offset` of its elements.
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
  /// Addresses of condition flags, by the number of the condition.
  llvm::DenseMap<mlir::Attribute, program::BufferRef> flags;
  llvm::StringMap<uint32_t> kernels;
  llvm::StringMap<int64_t> kernelFlops;
  llvm::StringMap<program::StringId> strings;
};

} // namespace cleave::target

#endif
