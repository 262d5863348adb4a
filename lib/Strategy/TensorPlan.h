// The shardings of parameters under tensor parallelism, and the colours of
// dimensions of a function's values that follow from them.

#ifndef CLEAVE_LIB_STRATEGY_TENSORPLAN_H
#define CLEAVE_LIB_STRATEGY_TENSORPLAN_H

#include "DimClasses.h"
#include "TensorScheme.h"

#include "llvm/ADT/StringMap.h"

namespace cleave::strategy {

/// A dimension of a parameter that is split during the products with the
/// parameter.
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
  /// The axes over which the parameter's gradient is a partial sum when it is
  /// returned.
  TensorScheme::List partial;

  bool isProduct() const {
    return llvm::any_of(product, [](auto &dim) { return dim.has_value(); });
  }
};

/// Plans by parameter name, in program order.
using ParameterPlans = llvm::MapVector<llvm::StringRef, ParameterPlan>;

/// Assigns colours and sides to the dimensions of the parameters of `func`.
/// `chosen` has the classes to split, the preferred first. `isSplittable(size,
/// axes)` returns whether a dimension of this size can be split without too
/// much padding.
ParameterPlans planParameters(
    mlir::func::FuncOp func, const DimClasses &classes,
    llvm::ArrayRef<const DimClass *> chosen, const TensorScheme &scheme,
    dist::MeshAttr mesh,
    llvm::function_ref<bool(int64_t, const TensorScheme::List &)> isSplittable);

/// Which colour (chosen or hidden, see TensorScheme.h) the dimensions of a
/// function's values have.
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
  /// Returns the home layout of a value that has a chosen or a hidden
  /// dimension, in which it is kept between products; nullopt for other values.
  std::optional<Axes> home(mlir::Value value) const;

private:
  const DimClasses &classes;
  const TensorScheme &scheme;
  llvm::SmallVector<Kind> kinds;
  bool sequence = false;
};

/// Appends those axes of `more` that `axes` does not have yet.
void addAxes(Axes &axes, int64_t dim, llvm::ArrayRef<dist::AxisRefAttr> more);

/// A product with a parameter, or a product that computes a parameter's
/// gradient, and the axes that split each of its factors while it is computed.
struct Product {
  ShardingRule rule;
  llvm::SmallVector<TensorScheme::List> factors;
  bool makesGradient = false;

  Axes layoutOf(const TensorFactors &dims) const;
  /// Returns the axes over which result `index` is a partial sum if the factors
  /// are split like this.
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

/// Returns the operations whose results are added up to `gradient`, looking
/// through the additions.
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
