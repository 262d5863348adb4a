// The plan of one kernel: its loops, and the values that each loop computes
// from the kernel's operands.
//
// A kernel is a set of operations of the kernel vocabulary (elementwise arith
// and math, views, nn.reduce, nn.gather, nn.scatter_add). A plan is built from
// the results backwards: an element of a result at an index (an expression over
// loop variables) is a function of elements of operands at other indices, and
// so on, until elements are loaded from memory. A plan has one of three shapes:
//
//   Flat       all results have N elements, computed in one loop
//   Rows       a loop over rows, shared by all results; in each row, loops
//              over columns that reduce or store, and scalars between them
//   Scatter    a loop over the rows of a table, to which rows of updates are
//              added (nn.scatter_add)
//
// The loop over rows (in a flat plan, over blocks of elements) runs in
// parallel.

#ifndef CLEAVE_FUSION_KERNELPLAN_H
#define CLEAVE_FUSION_KERNELPLAN_H

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Fusion/IndexExpr.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <deque>
#include <string>

namespace cleave::kernels {

struct Reduction;

/// An expression that computes an element of a tensor.
struct Node {
  enum class Kind {
    Compute,    ///< an elementwise operation on `operands`
    Load,       ///< element `index` of kernel argument `source`
    Constant,   ///< `value`
    Table,      ///< element `index` of the constant tensor `value`
    Index,      ///< the value of `index`
    InRange,    ///< whether low <= index < high
    Select,     ///< operands[0] ? operands[1] : operands[2]
    Reduced,    ///< the outcome of `reduction`
    RankOffset, ///< this rank's tile offset: `op` is a dist operation
  };
  unsigned id = 0;
  Kind kind = Kind::Constant;
  mlir::Type type;    ///< element type
  uint64_t loops = 0; ///< the loops whose variables it depends on
  int stage = 0;      ///< how many row reductions must have finished before
  mlir::Operation *op = nullptr;
  unsigned result = 0; ///< which result of `op`
  llvm::SmallVector<Node *, 3> operands;
  unsigned source = 0;
  IndexExpr index;
  Node *guard = nullptr; ///< loads nothing where this is false
  int64_t low = 0, high = 0;
  mlir::Attribute value;
  Reduction *reduction = nullptr;
};

/// The columns of a row (in a flat plan, all elements): a loop `outer` around a
/// loop `lane`, which is vectorized.
struct Columns {
  int64_t count = 1;
  const IndexVar *outer = nullptr, *lane = nullptr;
  IndexExpr index() const {
    return IndexSpace::indexOf(outer) * lane->size + IndexSpace::indexOf(lane);
  }
};

struct Reduction {
  nn::ReduceOp op;
  Node *input = nullptr;
  Node *outcome = nullptr;
  /// A row reduction reduces over `columns`, once per row. Every other
  /// reduction is a sequential loop over `sequence` at the place where its
  /// outcome is needed.
  Columns *columns = nullptr;
  const IndexVar *sequence = nullptr;
  bool perRow() const { return columns != nullptr; }
};

struct Store {
  unsigned result; ///< index of the kernel's result
  Node *value;
  IndexExpr index;
};

/// A value that an early loop computes and later loops of the same row read
/// again, because that costs less than recomputing it.
struct RowBuffer {
  Node *value;
  Columns *columns;
  size_t first;    ///< the loop that computes it
  int result = -1; ///< the kernel's result that holds it anyway
};

/// A loop over columns.
struct ColumnLoop {
  Columns *columns;
  int stage;
  llvm::SmallVector<Reduction *> reductions;
  llvm::SmallVector<Store> stores;
};

class KernelPlan {
public:
  enum class Shape { Flat, Rows, Scatter };

  /// Plans the computation of `outputs` by the operations for which `inside`
  /// returns true. All other values are arguments: first `firstArguments`, then
  /// the rest in order of discovery. Returns null and sets `error` if no plan
  /// exists.
  static std::unique_ptr<KernelPlan>
  create(llvm::ArrayRef<mlir::Value> outputs,
         llvm::ArrayRef<mlir::Value> firstArguments,
         llvm::function_ref<bool(mlir::Operation *)> inside,
         std::string &error);
  /// Returns the plan of a kernel function.
  static std::unique_ptr<KernelPlan> create(mlir::func::FuncOp kernel,
                                            std::string &error);

  Shape shape = Shape::Flat;
  IndexSpace space;
  /// The values that the kernel loads from. The kernel's parameters are these
  /// arguments, followed by the results.
  llvm::SetVector<mlir::Value> arguments;
  llvm::SmallVector<mlir::Value> outputs;

  /// Rows and Scatter: the loop over rows.
  const IndexVar *row = nullptr;
  std::deque<Columns> columnSpaces;
  std::deque<Reduction> reductions;
  std::deque<Node> nodes;
  std::vector<ColumnLoop> loops; ///< by ascending stage
  llvm::SmallVector<Store> rowStores;
  llvm::DenseMap<const Node *, RowBuffer> buffers;
  /// Returns the buffer from which loop number `loop` reads `node`, or null if
  /// it computes `node`.
  const RowBuffer *bufferOf(const Node *node, size_t loop) const {
    auto found = buffers.find(node);
    return found != buffers.end() && found->second.first < loop ? &found->second
                                                                : nullptr;
  }

  /// The loops of a scatter plan. The loop `update` visits the updates in
  /// order. The loop `before` visits all indices in the dimensions before the
  /// table's rows. For each pair of iterations, the plan adds the elements
  /// `value` of the update to row `target` of the table, along `columns`.
  struct Scatter {
    const IndexVar *update = nullptr, *before = nullptr;
    Columns columns;
    Node *target = nullptr, *value = nullptr;
    int64_t rows = 0;
  } scatter;

  /// The number of parallel iterations, and the number of iterations that a
  /// thread should at least get.
  int64_t extent = 0, grain = 1;
  /// Returns whether several threads share the work.
  bool isParallel() const { return extent > grain; }
  /// The number of elements per iteration of a flat plan.
  int64_t block = 1;
  /// The estimated work in elementary operations, including memory traffic.
  double cost = 0;
  /// The number of vector accesses that are not contiguous, plus the number of
  /// indices that are not linear.
  int irregular = 0;

  /// Returns pairs (result, argument) such that the result may reuse the
  /// argument's memory: to compute an element of the result, only the same
  /// element of the argument is read, and it is not read after the result is
  /// written.
  llvm::SmallVector<std::pair<int64_t, int64_t>> inPlace() const;

  void print(llvm::raw_ostream &os) const;
};

} // namespace cleave::kernels

#endif
