//===- VariancePaddingRules.cpp - padding through operations --------------===//
//
// Determines the extents of dimensions (their unsharded sizes and padding)
// after operations with a sharding rule. The factors of the rule tell which
// dimensions are sharded alike, which are reduced, and which are moved.
//
//===----------------------------------------------------------------------===//

#include "cleave/Partition/Verify/VariancePadding.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/LocalPlan.h"
#include "cleave/Partition/Propagation/FactorGraph.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

/// Whether some result lacks the factor.
static bool isCombined(const ShardingRule &rule, int64_t factor) {
  return llvm::any_of(rule.results, [&](const TensorFactors &dims) {
    return llvm::none_of(dims, [&](const DimFactors &made) {
      return llvm::is_contained(made, factor);
    });
  });
}

/// Returns the dimension of an operand that consists of this factor alone; -1
/// if there is none.
static int64_t dimOf(const TensorFactors &dims, int64_t factor) {
  for (auto [dim, made] : llvm::enumerate(dims))
    if (made.size() == 1 && made[0] == factor)
      return dim;
  return -1;
}

/// Returns whether an nn.pad inserts the value that the padding already has,
/// `filler`.
static bool fills(nn::PadOp pad, Attribute filler) {
  if (pad.getValue().isZero())
    return isZero(filler);
  auto number = dyn_cast_or_null<FloatAttr>(filler);
  return number &&
         number.getValueAsDouble() == pad.getValue().convertToDouble();
}

LogicalResult Padding::mustBe(Operation *op, unsigned operand, int64_t dim,
                              FactorCombiner combiner) const {
  const Extent &extent = at(op->getOperand(operand), dim);
  if (extent.kind != Extent::Padded)
    return success();
  auto type = typeOf(op->getOperand(operand));
  Attribute identity =
      cast<DenseElementsAttr>(cast<Attribute>(identityOf(
                                  combiner, type.clone(ArrayRef<int64_t>()))))
          .getSplatValue<Attribute>();
  if (extent.filler == identity || (isZero(extent.filler) && isZero(identity)))
    return success();
  InFlightDiagnostic error =
      op->emitOpError("combines (")
      << stringifyReduceKind(reduceKindOf(combiner)) << ") along dimension "
      << dim << " of operand " << operand << " of type " << type << ", of "
      << describe(extent) << ", whose last tiles end in padding ";
  if (extent.filler)
    error << "of " << extent.filler;
  else
    error << "of any content";
  error << "; expected the padding masked by " << identity
        << " (an arith.select with dist.pad_mask before it)";
  return error;
}

/// Returns whether the windows of a convolution or pooling have one element
/// along the spatial dimension, so that it is elementwise there.
static bool isElementwise(Operation *op, int64_t dim) {
  auto is = [&](StringRef name, int64_t number) {
    auto list = op->getAttrOfType<DenseI64ArrayAttr>(name);
    return list && dim >= 2 && list[dim - 2] == number;
  };
  return is("strides", 1) && is("low", 0) && is("high", 0) &&
         typeOf(op->getOperand(0)).getDimSize(dim) ==
             typeOf(op->getResult(0)).getDimSize(dim);
}

LogicalResult Padding::checkFactors(Operation *op, const ShardingRule &rule,
                                    ArrayRef<Extent> factors) const {
  std::optional<Lookup> lookup = Lookup::of(op);
  for (auto [factor, info] : llvm::enumerate(rule.factors)) {
    if (factors[factor].kind != Extent::Padded)
      continue;
    bool reads =
        isCombined(rule, factor) || info.kind == FactorKind::Permutation;
    bool combines = info.combiner != FactorCombiner::None && reads;
    bool slides = info.kind == FactorKind::Permutation && !rule.movement;
    bool whole =
        info.kind == FactorKind::NeedReplication || isJoint(info) || slides;
    if (!combines && !whole)
      continue;
    // Operations that read elements at given indices are checked separately.
    if (lookup && dimOf(rule.operands[lookup->table], factor) == lookup->dim)
      continue;
    for (auto [index, dims] : llvm::enumerate(rule.operands)) {
      int64_t dim = dimOf(dims, factor);
      if (dim < 0 || llvm::is_contained(rule.waited, unsigned(index)) ||
          (slides && isElementwise(op, dim)))
        continue;
      if (combines) {
        // The padding of the operands in which the operation is linear
        // (`rule.linear`) must be zero. Zero times any integer is zero, so the
        // padding of any other operand may have any content if its elements are
        // integers. Other types may have NaNs in their padding.
        bool linear = llvm::any_of(rule.linear, [&](auto &group) {
          return llvm::is_contained(group, unsigned(index));
        });
        if (!linear && !rule.linear.empty() &&
            info.combiner == FactorCombiner::Sum &&
            isa<IntegerType>(typeOf(op->getOperand(index)).getElementType()))
          continue;
        if (failed(mustBe(op, index, dim, info.combiner)))
          return failure();
      } else if (const Extent &extent = at(op->getOperand(index), dim);
                 extent.kind == Extent::Padded) {
        return op->emitOpError("reads all of dimension ")
               << dim << " of operand " << index << " of type "
               << op->getOperand(index).getType() << ", of " << describe(extent)
               << ", which ends in padding; expected a dimension without: "
                  "gathered and cut to "
               << extent.size << " elements (nn.slice), or a window of it";
      }
    }
  }
  return success();
}

LogicalResult Padding::visit(Operation *op, const ShardingRule &rule) {
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    if (std::optional<Mask> mask = maskOf(select))
      return visitMask(select, *mask);
    if (op->hasAttr(kPadMaskAttrName))
      return op->emitOpError(
          "has dist.pad_mask and is no mask; expected the condition iota < "
          "(size - dist.tile_offset), a number repeated by nn.broadcast, and "
          "a constant as the last operand");
  }
  if (isa<nn::ReshapeOp>(op))
    return visitReshape(op);
  // Determines the extents of the rule's factors from the operands. Factors
  // that no operand has get no extent.
  SmallVector<Extent> factors(rule.factors.size());
  llvm::SmallBitVector seen(rule.factors.size());
  bool plain = true;
  for (unsigned index = 0; index < rule.operands.size(); ++index)
    plain &= llvm::is_contained(rule.waited, index) ||
             !extents.contains(op->getOperand(index));
  for (auto [index, dims] : llvm::enumerate(rule.operands)) {
    if (llvm::is_contained(rule.waited, unsigned(index)))
      continue;
    for (auto [dim, made] : llvm::enumerate(dims)) {
      Extent extent = plain ? Extent() : sized(op->getOperand(index), dim);
      if (made.size() > 1)
        extent = Extent::of(extent.kind == Extent::Real ? Extent::Real
                                                        : Extent::Unknown);
      for (int64_t factor : made) {
        Extent before = factors[factor];
        if (!seen.test(factor))
          factors[factor] = extent;
        else if (!join(factors[factor], extent))
          return op->emitOpError("combines dimension ")
                 << dim << " of operand " << index << ", of "
                 << describe(extent) << ", with one of " << describe(before);
        seen.set(factor);
      }
    }
  }
  if (!plain && failed(checkFactors(op, rule, factors)))
    return failure();
  auto pad = dyn_cast<nn::PadOp>(op);
  for (auto [index, dims] : llvm::enumerate(rule.results)) {
    Extents result;
    for (auto [dim, made] : llvm::enumerate(dims)) {
      Extent &extent = result.emplace_back();
      // A single element sliced from a dimension.
      if (made.empty() && isa<nn::SliceOp>(op) &&
          failed(movedExtent(op, dim, extent)))
        return failure();
      for (int64_t factor : made) {
        const Factor &info = rule.factors[factor];
        bool moves = info.kind == FactorKind::Permutation;
        if (!seen.test(factor))
          extent.kind = rule.movement || rule.operands.empty() ? Extent::Free
                        : info.kind == FactorKind::NeedReplication
                            ? Extent::Real
                            : Extent::Unknown;
        else if (moves && rule.movement) {
          if (failed(movedExtent(op, dim, extent)))
            return failure();
        } else if (!moves)
          extent = factors[factor];
        else if (factors[factor].kind == Extent::Windows)
          extent = tileOf(factors[factor],
                          typeOf(op->getResult(index)).getDimSize(dim));
        else if (factors[factor].kind == Extent::Padded &&
                 info.combiner == FactorCombiner::None)
          extent = factors[factor];
        else if (factors[factor].kind == Extent::Unknown)
          extent.kind = Extent::Unknown;
        if (made.size() > 1) {
          extent = Extent::of(extent.kind == Extent::Real ? Extent::Real
                                                          : Extent::Unknown);
          if (extent.kind == Extent::Unknown)
            break;
        }
        if (extent.kind == Extent::Real)
          extent = Extent();
        // The content of the padding is no longer known if the operation
        // computes new elements. It is also unknown if nn.pad inserts elements
        // with another value along some dimension, because inserted elements in
        // the padded part of this dimension belong to its padding.
        if (!rule.movement || (pad && !fills(pad, extent.filler)))
          extent.filler = {};
      }
    }
    if (std::optional<Lookup> lookup = Lookup::of(op);
        lookup && !plain && failed(visitLookup(op, *lookup, result)))
      return failure();
    set(op->getResult(index), std::move(result));
  }
  return success();
}

/// Returns the extent of a dimension of `length` elements that an operation
/// computes from `windows`, overlapping ranges of elements that the ranks
/// received. If a tile has `length` elements, this is the extent of the tile.
/// Otherwise the dimension still counts as windows, and a later slice or gather
/// selects the tile.
Extent Padding::tileOf(const Extent &windows, int64_t length) {
  // If `placed` is false, all ranks have the same window.
  if (!windows.placed || tileSize(windows.size, windows.ways) != length)
    return windows;
  if (length * windows.ways == windows.size)
    return {};
  return Extent::padded(windows.size, windows.ways, windows.axes);
}

/// Determines the extent of a dimension along which a slice, pad or
/// concatenation moves elements.
LogicalResult Padding::movedExtent(Operation *op, int64_t dim,
                                   Extent &moved) const {
  Value input = op->getOperand(0);
  const Extent &extent = at(input, dim);
  int64_t size = typeOf(op->getResult(0)).getDimSize(dim);
  auto wrong = [&](Value operand, const Twine &expected) {
    return op->emitOpError("moves elements along dimension ")
           << dim << " of type " << operand.getType() << ", of "
           << describe(at(operand, dim)) << ", which ends in padding; expected "
           << expected;
  };
  if (auto slice = dyn_cast<nn::SliceOp>(op)) {
    int64_t offset = slice.getOffsets()[dim], stride = slice.getStrides()[dim];
    moved = extent;
    if (extent.kind == Extent::Windows)
      moved = tileOf(extent, size);
    if (extent.kind != Extent::Padded)
      return success();
    if (extent.ways != 1)
      return wrong(input, "the whole, or a window of it");
    if (size == 0 || (offset < extent.size && stride < 0)) {
      moved = Extent();
      return success();
    }
    if (offset >= extent.size)
      return wrong(input, "a slice that begins within the " +
                              Twine(extent.size) + " elements");
    int64_t count = llvm::divideCeil(extent.size - offset, stride);
    moved.size = count;
    if (size <= count)
      moved = Extent();
    return success();
  }
  if (auto pad = dyn_cast<nn::PadOp>(op)) {
    if (!op->hasAttr(kTilePaddingAttrName)) {
      if (extent.kind == Extent::Padded)
        return wrong(input,
                     "a dimension without: cut (nn.slice), or a window of it");
      moved =
          extent.kind == Extent::Real ? Extent() : Extent::of(Extent::Unknown);
      return success();
    }
    Attribute filler;
    if (pad.getValue().isZero())
      filler =
          Builder(op->getContext()).getZeroAttr(typeOf(input).getElementType());
    moved = Extent::of(Extent::Unknown);
    if (extent.kind == Extent::Real && !isSplit(input, dim))
      moved = Extent::padded(typeOf(input).getDimSize(dim), 1, {}, filler);
    if (extent.kind == Extent::Padded && extent.ways == 1) {
      moved = extent;
      if (moved.filler != filler)
        moved.filler = {};
    }
    return success();
  }
  moved = Extent();
  for (Value operand : op->getOperands()) {
    const Extent &part = at(operand, dim);
    if (part.kind == Extent::Padded)
      return wrong(operand,
                   "a dimension without: cut (nn.slice), or a window of it");
    if (part.kind != Extent::Real)
      moved = Extent::of(Extent::Unknown);
  }
  return success();
}
