// Emits the values of one kernel plan, whatever loops surround them.
//
// A value is emitted once, in the outermost scope in which its operands are
// known. Innermost, values are vectors along consecutive columns ("lanes"),
// several of them at once ("copies") where that hides latency. Subclasses
// define the loops and their variables: a CPU counts (Emitter.h), a GPU has
// threads (GPU/GpuEmitter.h).

#ifndef CLEAVE_CODEGEN_NODEEMITTER_H
#define CLEAVE_CODEGEN_NODEEMITTER_H

#include "cleave/Fusion/KernelPlan.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace cleave::codegen {

class NodeEmitter {
public:
  NodeEmitter(const kernels::KernelPlan &plan, mlir::Location loc,
              llvm::StringRef name, unsigned addressSpace)
      : plan(plan), name(name), b(loc, loc.getContext()),
        addressSpace(addressSpace) {}
  virtual ~NodeEmitter() = default;

protected:
  using Value = mlir::Value;
  using Node = kernels::Node;
  using IndexExpr = kernels::IndexExpr;
  using IndexVar = kernels::IndexVar;

  /// A block that is being emitted, nested in the previous scope's block, or a
  /// part of that block whose values later parts must not see.
  struct Scope {
    Scope(uint64_t loops, mlir::Block *block, mlir::Operation *op)
        : loops(loops), block(block), op(op) {}
    uint64_t loops; ///< whose variables are known here
    mlir::Block *block;
    /// The operation in the outer block whose body `block` is; null if the
    /// scope is a part of the outer block.
    mlir::Operation *op;
    llvm::DenseMap<std::pair<const Node *, int>, Value> values;
    llvm::DenseMap<std::pair<const IndexVar *, int>, Value> indices;
    llvm::DenseMap<std::pair<const IndexVar *, int>, Value> laneIndices;
  };

  // Functions that depend on the target.

  /// The value of a loop variable; for the lane variable, the index of the
  /// first element, less `laneOffset`.
  virtual Value loopValue(const IndexVar *var, int copy) = 0;
  /// Elements between the lane variable's value and the first of a copy.
  virtual int64_t laneOffset(int copy) const { return copy * lanes; }
  /// Whether values that depend on `loops` differ between copies.
  virtual bool differsByCopy(uint64_t loops) const {
    return lane && loops & lane->loops;
  }
  /// The address of this rank's indices along the axes of the mesh.
  virtual Value axisIndices() = 0;
  /// Reports to the runtime an index that is `beyond` the rows of its table.
  /// Both values are vectors of lanes, or neither is. Devices do not report.
  virtual void reportIndex(Value index, Value beyond, int64_t rows) {}
  /// Loads a vector of elements, stored as `type`, at the index of `node`.
  virtual Value createLaneLoad(const Node *node, int copy, Value base,
                               mlir::VectorType type) = 0;
  virtual Value loadBuffer(const kernels::RowBuffer &buffer, int copy);
  /// Combines the sums so far with the terms at `index`.
  using SequenceStep = llvm::function_ref<llvm::SmallVector<Value>(
      Value index, llvm::ArrayRef<Value> sums)>;
  using SequenceJoin = llvm::function_ref<llvm::SmallVector<Value>(
      llvm::ArrayRef<Value> sums, llvm::ArrayRef<Value> others)>;
  /// Loops over this thread's part of the elements that are reduced.
  virtual llvm::SmallVector<Value> runSequence(const IndexVar *sequence,
                                               llvm::ArrayRef<Value> start,
                                               SequenceStep step,
                                               SequenceJoin join);
  /// Combines the results of the threads that share a reduction.
  virtual void joinSequence(llvm::ArrayRef<const kernels::Reduction *> group,
                            int copies, llvm::SmallVector<Value> &totals) {}
  /// Whether scalar indices that fit into 32 bits are divided in 32 bits.
  virtual bool dividesNarrow() const { return false; }
  /// Whether a variable is the same in all lanes of a vector.
  virtual bool isUniform(const IndexVar *var) const {
    return !(var->loops & lane->loops);
  }

  // Defined in EmitNodes.cpp.
  bool isLane(const Node *node) const {
    return lane && node->loops & lane->loops;
  }
  bool isLane(const IndexExpr &index) const {
    return lane && index.loops() & lane->loops;
  }
  /// The buffer in which an earlier loop of the row has stored the node, or
  /// null.
  const kernels::RowBuffer *bufferOf(const Node *node) const;
  /// The value of a node; for a lane node, the vector of copy number `copy`.
  Value emit(const Node *node, int copy = 0);
  Value create(const Node *node, int copy);
  Value createCompute(const Node *node, int copy);
  Value createLoad(const Node *node, int copy);
  Value createRankOffset(const Node *node);
  /// The node's value as a vector; a scalar is splat.
  Value emitLanes(const Node *node, int copy);
  Value splat(Value scalar);
  Value emitIndex(const IndexExpr &index, int copy = 0);
  Value emitIndexLanes(const IndexExpr &index, int copy);
  Value emitVar(const IndexVar *var, int copy);
  Value emitVarLanes(const IndexVar *var, int copy);
  virtual bool isContiguous(const IndexExpr &index) const;
  /// The index of the first lane.
  Value emitLaneBase(const IndexExpr &index, int copy);
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
  mlir::Type pointerType() {
    return mlir::LLVM::LLVMPointerType::get(b.getContext(), addressSpace);
  }
  /// Bytes of a type as it is stored.
  unsigned bytesOf(mlir::Type element) {
    return std::max(1u, storageOf(element).getIntOrFloatBitWidth() / 8);
  }
  /// The scope in which a value that depends on `loops` is emitted.
  Scope &scopeOf(uint64_t loops);
  void moveTo(const Scope &scope);
  mlir::scf::ForOp beginFor(Value begin, Value end, Value step, uint64_t loops,
                            mlir::ValueRange carried);
  void endFor(mlir::scf::ForOp loop, mlir::ValueRange carried);

  // Defined in EmitReductions.cpp.
  /// Hides the scopes inside of `scope`, which must not see values that are
  /// emitted into an outer scope. Operations are emitted before theirs.
  class InnermostScope {
  public:
    InnermostScope(NodeEmitter &emitter, Scope &scope);
    ~InnermostScope();

  private:
    NodeEmitter &emitter;
    mlir::OpBuilder::InsertionGuard guard;
    std::vector<std::unique_ptr<Scope>> hidden;
    mlir::Block *block;
    std::unique_ptr<mlir::Block> rest; ///< the operations of hidden scopes
  };

  /// Sequential reductions that share one loop.
  struct SequenceGroup {
    llvm::SmallVector<const kernels::Reduction *> reductions;
    const IndexVar *sequence;
    bool vectors; ///< or scalars
    int copies;

    size_t indexOf(size_t number, int copy) const {
      return number * copies + copy;
    }
  };
  llvm::SmallVector<const kernels::Reduction *>
  missingInputs(const kernels::Reduction *reduction);
  SequenceGroup groupOf(const kernels::Reduction *wanted);
  llvm::SmallVector<Value>
  combineAll(const SequenceGroup &group, llvm::ArrayRef<Value> into,
             llvm::function_ref<Value(size_t number, int copy)> valueOf);
  llvm::SmallVector<Value> emitSequence(const SequenceGroup &group);
  void emitSequential(const kernels::Reduction *reduction);
  void
  collectSequential(const Node *node, llvm::SmallPtrSetImpl<const Node *> &seen,
                    llvm::SetVector<const kernels::Reduction *> &found) const;
  llvm::SmallVector<Value> stepSequence(const IndexVar *sequence, Value begin,
                                        Value end, int64_t stride,
                                        llvm::ArrayRef<Value> start,
                                        SequenceStep step);
  Value horizontal(nn::Combiner combiner, Value vector);
  Value identity(nn::Combiner combiner, mlir::Type type);
  Value combine(nn::Combiner combiner, Value a, Value b);

  const kernels::KernelPlan &plan;
  std::string name;
  mlir::ImplicitLocOpBuilder b;
  unsigned addressSpace;
  mlir::Operation *function = nullptr;
  llvm::SmallVector<Value> addresses;         ///< of arguments, then of results
  std::vector<std::unique_ptr<Scope>> scopes; ///< outermost first
  llvm::DenseMap<unsigned, Value> loopValues; ///< of loops that count
  llvm::DenseMap<mlir::Attribute, mlir::LLVM::GlobalOp> tables;

  int64_t lanes = 1;
  const IndexVar *lane = nullptr; ///< of the loop being written
  size_t loopNumber = 0;          ///< of the plan's loops
  int copyCount = 1;
};

} // namespace cleave::codegen

#endif
