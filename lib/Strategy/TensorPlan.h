// Plans the shardings of parameters under tensor parallelism. From these
// follows which dimensions of a function's values are "chosen" or "hidden", the
// two colours of feature dimensions that TensorScheme.h defines.

#ifndef CLEAVE_LIB_STRATEGY_TENSORPLAN_H
#define CLEAVE_LIB_STRATEGY_TENSORPLAN_H

#include "DimClasses.h"
#include "TensorScheme.h"

#include "llvm/ADT/StringMap.h"

namespace cleave::strategy {

/// A dimension of a parameter that is split during the matrix products with the
/// parameter.
struct ProductDim {
  Colour colour;
  Side side;
};

struct ParameterPlan {
  mlir::RankedTensorType type;
  /// The following three fields have an entry for each dimension: its colour,
  /// if it has one; how products use it, if they read it split; and the axes
  /// that split it while the parameter is stored.
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

/// Plans the sharding of each parameter of `func`: decides which dimensions of
/// the parameter tensor parallelism splits ("chosen"), which are the hidden
/// size ("hidden"), and whether products contract them. `chosen` lists the
/// dimensions that may be split (each DimClass has corresponding dimensions of
/// several parameters), the preferred ones first. `isSplittable(size, axes)`
/// returns whether a dimension of this size can be split without too much
/// padding.
ParameterPlans planParameters(
    mlir::func::FuncOp func, const DimClasses &classes,
    llvm::ArrayRef<const DimClass *> chosen, const TensorScheme &scheme,
    dist::MeshAttr mesh,
    llvm::function_ref<bool(int64_t, const TensorScheme::List &)> isSplittable);

/// Tells what each dimension of a function's values is: the batch, positions, a
/// dimension that tensor parallelism splits as in Megatron's layout ("chosen":
/// heads, MLP width, vocabulary), or the hidden size ("hidden").
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
  /// Returns the home layout of a value: the layout in which it is kept between
  /// matrix products. Returns nullopt for a value that has neither a chosen nor
  /// a hidden dimension.
  std::optional<Axes> home(mlir::Value value) const;

private:
  const DimClasses &classes;
  const TensorScheme &scheme;
  llvm::SmallVector<Kind> kinds;
  bool sequence = false;
};

/// Appends to `axes[dim]` those axes of `more` that split no dimension in
/// `axes` yet.
void addAxes(Axes &axes, int64_t dim, llvm::ArrayRef<dist::AxisRefAttr> more);

/// A product with a parameter, or a product that computes a parameter's
/// gradient, and the axes that split each of its factors while it is computed.
struct Product {
  ShardingRule rule;
  llvm::SmallVector<TensorScheme::List> factors;
  bool makesGradient = false;

  Axes layoutOf(const TensorFactors &dims) const;
  /// Returns the axes over which result `index` of the product is a partial sum
  /// if `factors` split the product's factors.
  TensorScheme::List partialOf(unsigned index) const;
};
/// Describes the product `op`. `parameter` lists the factors of each dimension
/// of the parameter or, if the product computes a gradient, of the gradient.
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

/// Inserts sharding constraints on the operands and results of the products.
void pinProducts(mlir::func::FuncOp func, dist::MeshOp mesh,
                 const TensorScheme &scheme, const Colours &colours,
                 const Products &products);

} // namespace cleave::strategy

#endif
