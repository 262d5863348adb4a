// The plan of one kernel: its loops, and the values that each loop computes
// from the kernel's operands.
//
// A kernel is a set of operations for which code can be generated (elementwise
// arith and math, views, nn.reduce, nn.gather, nn.scatter_add). A plan is built
// from the results backwards: an element of a result at an index (an expression
// over loop variables) is a function of elements of operands at other indices,
// and so on, until elements are loaded from memory. A plan has one of three
// shapes:
//
//   Flat       one loop over the elements of the results, which all have the
//              same number of elements
//   Rows       a loop over rows, shared by all results; in each row, loops
//              over columns that reduce or store, and scalar computations
//              between these loops
//   Scatter    a loop over the rows of a table, to which rows of updates are
//              added (nn.scatter_add)
//
// The iterations of the loop over rows (in a flat plan, over blocks of
// consecutive elements) run in parallel.

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
    InRange,    ///< whether low <= x < high, where x is operands[0] or,
                ///< without operands, `index`
    Select,     ///< operands[0] ? operands[1] : operands[2]
    Reduced,    ///< the outcome of `reduction`
    RankOffset, ///< an offset that depends on the rank: the value of `op`
  };
  unsigned id = 0;
  Kind kind = Kind::Constant;
  mlir::Type type;    ///< element type
  uint64_t loops = 0; ///< bit mask of the loops that the value depends on
  /// The number of row reductions that must run before, one after the other,
  /// because each needs the result of the previous one.
  int stage = 0;
  mlir::Operation *op = nullptr;
  unsigned result = 0; ///< which result of `op`
  llvm::SmallVector<Node *, 3> operands;
  unsigned source = 0;
  IndexExpr index;
  Node *guard = nullptr; ///< loads only where this is true; null: everywhere
  int64_t low = 0, high = 0;
  mlir::Attribute value;
  Reduction *reduction = nullptr;
};

/// A loop nest over the columns of a row (in a flat plan, over all elements):
/// `outer`, and inside it `lane`, which is vectorized.
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
  /// If not null, the reduction is a row reduction: it reduces over these
  /// columns, once per row. Every other reduction is a sequential loop over
  /// `sequence`, which runs wherever an outcome is needed.
  Columns *columns = nullptr;
  const IndexVar *sequence = nullptr;
  bool perRow() const { return columns != nullptr; }
};

struct Store {
  unsigned result; ///< index of the kernel's result
  Node *value;
  IndexExpr index;
};

/// Memory for the values of a node in one row. The first loop over the columns
/// of the row that computes the values stores them, and later loops read them,
/// because that costs less than recomputing them.
struct RowBuffer {
  Node *value;
  Columns *columns;
  size_t first;    ///< the index in KernelPlan::loops of the first loop
  int result = -1; ///< the kernel's result that stores the values anyway and
                   ///< serves as the buffer; -1 if there is none
};

/// A loop over the columns of a row. It computes reductions and stores results
/// that depend on as many row reductions, one after the other, as `stage` says
/// (see Node::stage).
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
  /// returns true. The values that these operations read from elsewhere become
  /// the kernel's arguments: first `firstArguments`, then the other values in
  /// the order in which the planner finds them. Returns null and sets `error`
  /// if no plan exists.
  static std::unique_ptr<KernelPlan>
  create(llvm::ArrayRef<mlir::Value> outputs,
         llvm::ArrayRef<mlir::Value> firstArguments,
         llvm::function_ref<bool(mlir::Operation *)> inside,
         std::string &error);
  /// Plans a kernel function. Returns null and sets `error` if no plan exists.
  static std::unique_ptr<KernelPlan> create(mlir::func::FuncOp kernel,
                                            std::string &error);

  Shape shape = Shape::Flat;
  IndexSpace space;
  /// The values that the kernel loads from. The kernel's parameters are these
  /// arguments, followed by the results.
  llvm::SetVector<mlir::Value> arguments;
  llvm::SmallVector<mlir::Value> outputs;

  /// The variable of the loop over rows of a Rows plan; null in other plans.
  const IndexVar *row = nullptr;
  std::deque<Columns> columnSpaces;
  std::deque<Reduction> reductions;
  std::deque<Node> nodes;
  std::vector<ColumnLoop> loops; ///< by ascending stage
  llvm::SmallVector<Store> rowStores;
  llvm::DenseMap<const Node *, RowBuffer> buffers;
  /// Returns the buffer from which loops[loop] reads the values of `node`, or
  /// null if this loop computes them.
  const RowBuffer *bufferOf(const Node *node, size_t loop) const {
    auto found = buffers.find(node);
    return found != buffers.end() && found->second.first < loop ? &found->second
                                                                : nullptr;
  }

  /// The loops of a Scatter plan. The loop `update` visits the updates in
  /// order. The loop `before` visits all indices in the dimensions of the table
  /// that precede the dimension of its rows. For each pair of iterations, the
  /// plan adds the elements `value` of the update to row `target` of the table,
  /// in a loop over `columns`. The table has `rows` rows.
  struct Scatter {
    const IndexVar *update = nullptr, *before = nullptr;
    Columns columns;
    Node *target = nullptr, *value = nullptr;
    int64_t rows = 0;
  } scatter;

  /// The number of parallel iterations, and the smallest number of iterations
  /// that is worth a thread.
  int64_t extent = 0, grain = 1;
  /// Returns whether there is work for several threads.
  bool isParallel() const { return extent > grain; }
  /// The number of elements that a parallel iteration of a Flat plan computes.
  int64_t block = 1;
  /// The estimated cost in cycles of one core, including memory traffic and the
  /// launch of the kernel. It serves to compare plans.
  double cost = 0;
  /// The number of loads in vectorized loops whose elements are not contiguous,
  /// plus the number of divisions and remainders in the indices of such loops.
  int irregular = 0;

  /// Returns the pairs (result, argument) of indices for which the result may
  /// reuse the argument's memory. This is allowed if the loop that stores the
  /// result and earlier loops over the same row read the argument only at the
  /// index at which the result is stored, and later loops do not read it.
  llvm::SmallVector<std::pair<int64_t, int64_t>> inPlace() const;

  void print(llvm::raw_ostream &os) const;
};

} // namespace cleave::kernels

#endif
