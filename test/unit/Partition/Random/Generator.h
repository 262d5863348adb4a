// Generates random programs: a directed acyclic graph of operations of all
// kinds, which begins with a few arguments, with loops and branches, and with
// random shardings on arguments, results and constraints. Some cases have a
// second function that shares tensors with the first one by name. A case
// depends only on its seed.
//
// The values are drawn such that results can be compared exactly or nearly so:
// arguments are small integers, so sums and products of them are exact in f64.
// Values that are not exact (after an exponential, a norm, ...) are used only
// by operations that are continuous in them, and their magnitude is bounded.

#ifndef CLEAVE_TEST_UNIT_PARTITION_RANDOM_GENERATOR_H
#define CLEAVE_TEST_UNIT_PARTITION_RANDOM_GENERATOR_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace cleave::random {

/// SplitMix64 (Steele, Lea and Flood, 2014): any seed is a good one.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next() { return mix(state += 0x9E3779B97F4A7C15u); }
  /// In [0, bound).
  int64_t below(int64_t bound) { return next() % uint64_t(bound); }
  int64_t between(int64_t low, int64_t high) {
    return low + below(high - low + 1);
  }
  bool chance(int64_t times, int64_t of) { return below(of) < times; }
  template <typename Range> const auto &pick(const Range &range) {
    return *(std::begin(range) + below(std::size(range)));
  }
  template <typename Range> void shuffle(Range &range) {
    for (size_t i = range.size(); i > 1; --i)
      std::swap(range[i - 1], range[below(i)]);
  }
  static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
  }

private:
  uint64_t state;
};

/// A mesh, and the sub-axes into which the shardings of this case split its
/// axes.
struct Mesh {
  dist::MeshAttr attr;
  mlir::FlatSymbolRefAttr name;
  /// The sub-axes of each axis, major first; the whole axis if it is not split.
  llvm::SmallVector<llvm::SmallVector<dist::AxisRefAttr>> parts;
};

Mesh randomMesh(Random &random, mlir::MLIRContext *context);

/// Returns a random sharding of a tensor. If `mayBePartial` is true, the value
/// may consist of partial sums, or of candidates for a maximum or minimum.
dist::ShardingAttr randomSharding(Random &random, const Mesh &mesh,
                                  mlir::RankedTensorType type,
                                  bool mayBePartial);

/// A value of the generated program, and what is known about its elements.
struct Entry {
  mlir::Value value;
  double bound = 0;  // no element is larger in magnitude
  bool exact = true; // an integer, free of rounding

  mlir::RankedTensorType type() const {
    return mlir::cast<mlir::RankedTensorType>(value.getType());
  }
  llvm::ArrayRef<int64_t> shape() const { return type().getShape(); }
  int64_t rank() const { return type().getRank(); }
  bool isFloat() const {
    return mlir::isa<mlir::FloatType>(type().getElementType());
  }
};

/// The purpose for which a program is generated, which restricts what it
/// contains.
struct Style {
  /// The program is to be compiled: it has one function without scf loops and
  /// branches, and every tensor has a unique name. Floating-point arguments of
  /// the roles `parameter` and `input` may be any numbers, not only integers.
  bool compiled = false;
  /// The program is in f32, to be narrowed by nn-mixed-precision.
  bool bf16 = false;
};

class Generator {
public:
  Generator(mlir::MLIRContext *context, uint64_t seed, Style style = {});

  /// Generates the program of the seed.
  mlir::OwningOpRef<mlir::ModuleOp> run();

  const Style style;
  Random random;
  mlir::OpBuilder b;
  mlir::Location loc;

  //===--------------------------------------------------------------------===//
  // Values for the families of operations
  //===--------------------------------------------------------------------===//

  mlir::RankedTensorType floats(llvm::ArrayRef<int64_t> shape) {
    return mlir::RankedTensorType::get(shape, element);
  }
  mlir::RankedTensorType ints(llvm::ArrayRef<int64_t> shape) {
    return mlir::RankedTensorType::get(shape, b.getI64Type());
  }
  mlir::RankedTensorType bools(llvm::ArrayRef<int64_t> shape) {
    return mlir::RankedTensorType::get(shape, b.getI1Type());
  }

  /// Returns one of the few sizes of this case, so that tensors with equal
  /// sizes are frequent.
  int64_t size();
  llvm::SmallVector<int64_t> shape(int64_t lowRank, int64_t highRank);

  /// Adds an argument to the function. If `exact` is true, its elements are
  /// integers, so that sums and products of them are free of rounding errors.
  /// Otherwise its elements may be any numbers.
  Entry argument(mlir::RankedTensorType type, bool exact = true);
  /// Returns a floating-point value, from the program if it has one.
  Entry any(int64_t lowRank = 0, int64_t highRank = 5);
  /// Returns a value of any element type (floats, integers or booleans), for
  /// operations that only move elements.
  Entry anyKind(int64_t lowRank = 0, int64_t highRank = 5);
  /// Returns a floating-point value whose elements are integers without
  /// rounding errors.
  Entry anyExact(int64_t lowRank, int64_t highRank);
  /// Returns a value of the given type whose elements are not larger in
  /// magnitude than `bound`. If `exact` is true, its elements are integers
  /// without rounding errors.
  Entry like(mlir::RankedTensorType type, double bound = 1e6,
             bool exact = false);
  /// Reshapes the value to a random shape of `rank` dimensions.
  Entry reshaped(const Entry &entry, int64_t rank);
  /// Returns a value whose magnitude is below `bound`: the entry itself, or its
  /// hyperbolic tangent.
  Entry tamed(const Entry &entry, double bound);

  /// Adds the result of an operation to the values from which later operands
  /// are drawn.
  void give(mlir::Value value, double bound, bool exact);

  static constexpr int64_t kMaxElements = 160;
  /// An upper bound of all values of the program. The bound is lower in loops,
  /// where errors grow.
  double maxBound = 1e9;

  //===--------------------------------------------------------------------===//
  // Values for loops and branches
  //===--------------------------------------------------------------------===//

  /// Runs `body`, which generates operations at the end of `region`. Their
  /// results can be read only inside of the region.
  void inside(mlir::Block *region, double bound,
              llvm::function_ref<void()> body);
  /// Generates `count` operations of any kind.
  void steps(int64_t count);
  /// Returns a value of `type` for the region to yield, with a magnitude of at
  /// most `bound`. If values of this type were made in the region, it is the
  /// last one of them.
  Entry given(mlir::RankedTensorType type, double bound);
  /// Returns the entry of the last value made in the region, or null.
  const Entry *last() const {
    return pool.size() > outer ? &pool.back() : nullptr;
  }
  /// The number of regions (of loops and branches) into which operations are
  /// being generated, and the induction variables of the loops among them.
  int64_t depth = 0;
  llvm::SmallVector<mlir::Value> counters;
  /// The number of nn.scan regions into which operations are being generated.
  /// Such regions have neither scf loops and branches nor sharding constraints.
  int64_t isolated = 0;

private:
  Entry draw(llvm::function_ref<bool(const Entry &)> fits,
             llvm::function_ref<mlir::RankedTensorType()> other,
             bool exact = true);
  void constrainSome();
  void addFunction(llvm::StringRef name);
  void finishFunction();
  void namePorts();
  void nameTensors();
  void shardPorts();

  Mesh mesh;
  mlir::Type
      element;       // of the floats; the interpreter computes in double anyway
  double exactBelow; // integers up to here are not rounded
  llvm::SmallVector<unsigned> inexact; // arguments
  llvm::SmallVector<int64_t> sizes;
  mlir::Block *block = nullptr;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp func;
  std::vector<Entry> pool;
  size_t outer = 0; // entries of `pool` that are of no open region
};

/// Generates one operation, or a few that belong together. Returns false if no
/// value fits as an operand.
struct Family {
  const char *name;
  int weight;
  bool (*make)(Generator &);
};
llvm::ArrayRef<Family> elementwiseFamilies();
llvm::ArrayRef<Family> shapeFamilies();
llvm::ArrayRef<Family> contractionFamilies();
llvm::ArrayRef<Family> rowFamilies();
llvm::ArrayRef<Family> attentionFamilies();
llvm::ArrayRef<Family> expertFamilies();
llvm::ArrayRef<Family> trainingFamilies();
llvm::ArrayRef<Family> arithmeticFamilies();
llvm::ArrayRef<Family> convolutionFamilies();
llvm::ArrayRef<Family> regionFamilies();
llvm::ArrayRef<Family> scanFamilies();

} // namespace cleave::random

#endif
