// Writes the loops of one kernel plan.
//
// A value is written once, in the outermost loop in which all that it depends
// on is known. In the innermost loop values are vectors along consecutive
// columns ("lanes"), several of them at once ("copies") where that hides
// latency; a last incomplete vector is masked.

#ifndef CLEAVE_LIB_CODEGEN_EMITTER_H
#define CLEAVE_LIB_CODEGEN_EMITTER_H

#include "cleave/Kernels/KernelPlan.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace cleave::codegen {

class Emitter {
public:
  /// Writes function `name` at the end of `module`.
  Emitter(const kernels::KernelPlan &plan, mlir::ModuleOp module,
          mlir::Location loc, llvm::StringRef name, unsigned vectorBits);
  mlir::LogicalResult run();

private:
  using Value = mlir::Value;
  using Node = kernels::Node;
  using IndexExpr = kernels::IndexExpr;
  using IndexVar = kernels::IndexVar;

  /// A block that is being written, nested in the one before it.
  struct Scope {
    Scope(uint64_t loops, mlir::Block *block, mlir::Operation *op)
        : loops(loops), block(block), op(op) {}
    uint64_t loops; ///< whose variables are known here
    mlir::Block *block;
    mlir::Operation *op; ///< the loop whose body it is, in the outer block
    llvm::DenseMap<std::pair<const Node *, int>, Value> values;
    llvm::DenseMap<std::pair<const IndexVar *, int>, Value> indices;
  };

  /// Where the columns of one loop begin and end.
  struct Range {
    Value begin, end;
    int64_t staticSize = -1; ///< where it is known
  };

  // EmitLoops.cpp
  void emitRows();
  void emitFlat();
  void emitScatter();
  void emitColumnLoop(const kernels::ColumnLoop &loop, Range range);
  void emitLanes(const kernels::ColumnLoop &loop, Range range,
                 llvm::SmallVector<Value> &accumulators);
  void emitLaneBody(const kernels::ColumnLoop &loop, int copies,
                    llvm::SmallVector<Value> &accumulators);
  void emitSequential(const kernels::Reduction *reduction);
  void
  collectSequential(const Node *node, llvm::SmallPtrSetImpl<const Node *> &seen,
                    llvm::SetVector<const kernels::Reduction *> &found) const;
  Value horizontal(nn::Combiner combiner, Value vector);
  int chooseCopies(const kernels::ColumnLoop &loop);
  mlir::scf::ForOp beginFor(Value begin, Value end, Value step, uint64_t loop,
                            mlir::ValueRange carried);
  void endFor(mlir::scf::ForOp loop, mlir::ValueRange carried);
  Value identity(nn::Combiner combiner, mlir::Type type);
  Value combine(nn::Combiner combiner, Value a, Value b);

  // EmitNodes.cpp
  bool isLane(const Node *node) const {
    return lane && node->loops & lane->loops;
  }
  bool isLane(const IndexExpr &index) const {
    return lane && index.loops() & lane->loops;
  }
  /// Where an earlier loop of the row has kept the node; null where none has.
  const kernels::RowBuffer *bufferOf(const Node *node) const;
  /// The value of a node; of a lane node, its vector number `copy`.
  Value emit(const Node *node, int copy = 0);
  Value create(const Node *node, int copy);
  Value createCompute(const Node *node, int copy);
  Value createLoad(const Node *node, int copy);
  Value createRankOffset(const Node *node);
  /// As a vector, whether the node is one or not.
  Value emitLanes(const Node *node, int copy);
  Value splat(Value scalar);
  Value emitIndex(const IndexExpr &index);
  Value emitIndexLanes(const IndexExpr &index, int copy);
  Value emitVar(const IndexVar *var);
  Value emitVarLanes(const IndexVar *var, int copy);
  /// The part of an index that is the same in all lanes, plus the first lane.
  bool isContiguous(const IndexExpr &index) const;
  Value emitLaneBase(const IndexExpr &index, int copy);
  void store(const kernels::Store &target, int copy);
  Value loadBuffer(const kernels::RowBuffer &buffer, int copy);
  void storeBuffer(const kernels::RowBuffer &buffer, int copy);
  void allocateBuffers();
  Value both(Value a, Value b);

  Value address(Value base, Value index, mlir::Type element);
  Value tableAddress(const Node *node);
  Value castIndex(Value index, mlir::Type element);
  Value constantOf(mlir::Type type, double value);
  Value constantIndex(int64_t value);
  mlir::Type storageOf(mlir::Type element);
  mlir::VectorType vectorOf(mlir::Type element) {
    return mlir::VectorType::get({lanes}, element);
  }
  /// Where something that depends on `loops` is written.
  Scope &scopeOf(uint64_t loops);
  void moveTo(const Scope &scope);

  const kernels::KernelPlan &plan;
  mlir::ModuleOp module;
  std::string name;
  mlir::ImplicitLocOpBuilder b;
  int64_t lanes;
  mlir::func::FuncOp func;
  llvm::SmallVector<Value> addresses;
  std::vector<std::unique_ptr<Scope>> scopes; ///< outermost first
  llvm::DenseMap<unsigned, Value> loopValues;
  llvm::DenseMap<mlir::Attribute, mlir::LLVM::GlobalOp> tables;

  llvm::DenseMap<const Node *, Value> bufferAddresses;

  const IndexVar *lane = nullptr; ///< of the loop being written
  size_t loopNumber = 0;          ///< of the plan's loops
  int copyCount = 1;
  Value mask; ///< of an incomplete vector
};

} // namespace cleave::codegen

#endif
