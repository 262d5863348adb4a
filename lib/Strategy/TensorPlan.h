// The shardings of parameters under tensor parallelism, and the colours of
// dimensions of a function's values that follow from them.

#ifndef CLEAVE_LIB_STRATEGY_TENSORPLAN_H
#define CLEAVE_LIB_STRATEGY_TENSORPLAN_H

#include "DimClasses.h"
#include "TensorScheme.h"

#include "llvm/ADT/StringMap.h"

namespace cleave::strategy {

/// A dimension of a parameter that is split while a product is computed.
struct ProductDim {
  Colour colour;
  Side side;
};

struct ParameterPlan {
  mlir::RankedTensorType type;
  /// For each dimension.
  llvm::SmallVector<std::optional<Colour>> colours;
  llvm::SmallVector<std::optional<ProductDim>> product;
  Axes stored;
  /// Axes over which its gradient is partial at function boundaries.
  TensorScheme::List partial;

  bool isProduct() const {
    return llvm::any_of(product, [](auto &dim) { return dim.has_value(); });
  }
};

/// Plans by parameter name, in program order.
using ParameterPlans = llvm::MapVector<llvm::StringRef, ParameterPlan>;

/// Assigns colours and sides to the parameters of `func`. `chosen` is in order
/// of preference. `isSplittable(size, axes)` returns whether the padding is
/// acceptable.
ParameterPlans planParameters(
    mlir::func::FuncOp func, const DimClasses &classes,
    llvm::ArrayRef<const DimClass *> chosen, const TensorScheme &scheme,
    dist::MeshAttr mesh,
    llvm::function_ref<bool(int64_t, const TensorScheme::List &)> isSplittable);

/// The kinds of dimensions of one function's values.
class Colours {
public:
  Colours(mlir::func::FuncOp func, const DimClasses &classes,
          const ParameterPlans &plans, const TensorScheme &scheme);

  enum class Kind { None, Batch, Sequence, Hidden, Chosen };
  Kind kindOf(mlir::Value value, int64_t dim) const {
    std::optional<unsigned> index = classes.indexOf(value, dim);
    return index ? kinds[*index] : Kind::None;
  }
  bool hasSequence() const { return sequence; }
  /// The home layout of a value with a chosen or a hidden dimension; nullopt
  /// for others.
  std::optional<Axes> home(mlir::Value value) const;

private:
  const DimClasses &classes;
  const TensorScheme &scheme;
  llvm::SmallVector<Kind> kinds;
  bool sequence = false;
};

/// Appends those axes of `more` that `axes` does not have yet.
void addAxes(Axes &axes, int64_t dim, llvm::ArrayRef<dist::AxisRefAttr> more);

/// A product with a parameter, or one that computes its gradient: the axes of
/// each factor during the computation.
struct Product {
  ShardingRule rule;
  llvm::SmallVector<TensorScheme::List> factors;
  bool makesGradient = false;

  Axes layoutOf(const TensorFactors &dims) const;
  /// The axes over which result `index` is then a partial sum.
  TensorScheme::List partialOf(unsigned index) const;
};
/// `parameter`: the factors of the parameter's dimensions.
Product makeProduct(mlir::Operation *op, ShardingRule rule,
                    const TensorFactors &parameter, const ParameterPlan &plan,
                    const TensorScheme &scheme, const Colours &colours);

/// The products of a function, by operation.
using Products = llvm::DenseMap<mlir::Operation *, Product>;
Products findProducts(mlir::func::FuncOp func, const ParameterPlans &plans,
                      const TensorScheme &scheme, const Colours &colours);

/// The operations whose results add up to `gradient`, without the additions.
llvm::SmallVector<mlir::Operation *> leavesOf(mlir::Value gradient);

/// Finds the axes over which the gradients of `func` are partial, and adds them
/// to the plans.
void findPartialGradients(mlir::func::FuncOp func, ParameterPlans &plans,
                          const TensorScheme &scheme, const Colours &colours,
                          const Products &products);

/// Inserts constraints on the operands and results of the products.
void pinProducts(mlir::func::FuncOp func, dist::MeshOp mesh,
                 const TensorScheme &scheme, const Colours &colours,
                 const Products &products);

} // namespace cleave::strategy

#endif
