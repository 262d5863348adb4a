// Builds arithmetic on one float type, scalar or vector.

#ifndef CLEAVE_LIB_CODEGEN_MATHBUILDER_H
#define CLEAVE_LIB_CODEGEN_MATHBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/TypeUtilities.h"

namespace cleave::codegen {

class MathBuilder {
public:
  using Value = mlir::Value;

  MathBuilder(mlir::OpBuilder &b, mlir::Location loc, mlir::Type type)
      : b(b), loc(loc), floats(type) {
    mlir::Type element = mlir::getElementTypeOrSelf(type);
    mantissa = element.isF64() ? 52 : 23;
    mlir::Type integer = b.getIntegerType(element.getIntOrFloatBitWidth());
    auto vector = llvm::dyn_cast<mlir::VectorType>(type);
    ints = vector ? mlir::Type(vector.clone(integer)) : integer;
  }

  Value f(double value) { return constant(floats, value); }
  Value i(int64_t value) { return constant(ints, value); }

  Value add(Value x, Value y) { return make<mlir::arith::AddFOp>(x, y); }
  Value sub(Value x, Value y) { return make<mlir::arith::SubFOp>(x, y); }
  Value mul(Value x, Value y) { return make<mlir::arith::MulFOp>(x, y); }
  Value div(Value x, Value y) { return make<mlir::arith::DivFOp>(x, y); }
  Value neg(Value x) { return make<mlir::arith::NegFOp>(x); }
  Value sqrt(Value x) { return make<mlir::math::SqrtOp>(x); }
  Value abs(Value x) { return make<mlir::math::AbsFOp>(x); }
  Value fma(Value x, Value y, Value z) {
    return make<mlir::math::FmaOp>(x, y, z);
  }
  Value roundEven(Value x) { return make<mlir::math::RoundEvenOp>(x); }
  Value copySign(Value x, Value sign) {
    return make<mlir::math::CopySignOp>(x, sign);
  }
  // Returns the second operand if the first is NaN, as the processor's max
  // instruction does.
  Value max(Value x, Value y) {
    return select(compare(mlir::arith::CmpFPredicate::OGT, x, y), x, y);
  }
  Value min(Value x, Value y) {
    return select(compare(mlir::arith::CmpFPredicate::OLT, x, y), x, y);
  }
  /// Evaluates a polynomial of x. The first coefficient is that of the highest
  /// power.
  Value polynomial(Value x, llvm::ArrayRef<double> coefficients) {
    Value y = f(coefficients[0]);
    for (double coefficient : coefficients.drop_front())
      y = fma(y, x, f(coefficient));
    return y;
  }

  Value less(Value x, Value y) {
    return compare(mlir::arith::CmpFPredicate::OLT, x, y);
  }
  /// x >= y; false for NaN.
  Value notLess(Value x, Value y) {
    return compare(mlir::arith::CmpFPredicate::OGE, x, y);
  }
  Value equal(Value x, Value y) {
    return compare(mlir::arith::CmpFPredicate::OEQ, x, y);
  }
  Value differ(Value x, Value y) {
    return compare(mlir::arith::CmpFPredicate::UNE, x, y);
  }
  Value isNaN(Value x) {
    return compare(mlir::arith::CmpFPredicate::UNO, x, x);
  }
  Value equalInt(Value x, Value y) {
    return make<mlir::arith::CmpIOp>(mlir::arith::CmpIPredicate::eq, x, y);
  }
  Value both(Value x, Value y) { return make<mlir::arith::AndIOp>(x, y); }
  Value select(Value condition, Value x, Value y) {
    return make<mlir::arith::SelectOp>(condition, x, y);
  }

  Value addInt(Value x, Value y) { return make<mlir::arith::AddIOp>(x, y); }
  Value subInt(Value x, Value y) { return make<mlir::arith::SubIOp>(x, y); }
  Value andInt(Value x, Value y) { return make<mlir::arith::AndIOp>(x, y); }
  Value shiftRight(Value x, int64_t count) {
    return make<mlir::arith::ShRSIOp>(x, i(count));
  }
  Value bitsOf(Value x) { return make<mlir::arith::BitcastOp>(ints, x); }
  Value floatOf(Value bits) {
    return make<mlir::arith::BitcastOp>(floats, bits);
  }
  /// Converts to integers of the floats' width, and back. In double, the
  /// conversion adds a large number, because few processors convert vectors of
  /// 64-bit integers.
  Value toInt(Value whole) {
    if (mantissa == 23)
      return make<mlir::arith::FPToSIOp>(ints, whole);
    return subInt(bitsOf(add(whole, f(kShift))), bitsOf(f(kShift)));
  }
  Value toFloat(Value integer) {
    if (mantissa == 23)
      return make<mlir::arith::SIToFPOp>(floats, integer);
    return sub(floatOf(addInt(integer, bitsOf(f(kShift)))), f(kShift));
  }
  /// 2^n, for exponents of normal numbers.
  Value powerOfTwo(Value exponent) {
    int64_t bias = mantissa == 23 ? 127 : 1023;
    Value biased = addInt(exponent, i(bias));
    return floatOf(make<mlir::arith::ShLIOp>(biased, i(mantissa)));
  }

private:
  /// 1.5 * 2^52. If a whole number is added to this constant, the low bits of
  /// the sum are the number in two's complement.
  static constexpr double kShift = 6755399441055744.0;

  template <typename Op, typename... Args> Value make(Args &&...args) {
    return Op::create(b, loc, std::forward<Args>(args)...);
  }
  Value compare(mlir::arith::CmpFPredicate predicate, Value x, Value y) {
    return make<mlir::arith::CmpFOp>(predicate, x, y);
  }
  template <typename Number> Value constant(mlir::Type type, Number value) {
    mlir::Type element = mlir::getElementTypeOrSelf(type);
    mlir::TypedAttr attr;
    if constexpr (std::is_floating_point_v<Number>)
      attr = b.getFloatAttr(element, value);
    else
      attr = b.getIntegerAttr(element, value);
    if (auto vector = llvm::dyn_cast<mlir::VectorType>(type))
      attr = mlir::DenseElementsAttr::get(vector, attr);
    return make<mlir::arith::ConstantOp>(attr);
  }

  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::Type floats, ints;
  int mantissa;
};

} // namespace cleave::codegen

#endif
