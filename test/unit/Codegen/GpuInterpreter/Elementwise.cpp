// Elementwise operations as functions on the bits of one element.

#include "Bits.h"
#include "Conversions.h"
#include "Program.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/ADT/bit.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::gpusim;

namespace {

/// Wraps a function of floats, which is computed in the given type.
template <typename F> Function floats(Type type, F function) {
  if (type.isF64())
    return [=](const uint64_t *x, uint64_t *y) {
      y[0] = bitsOf<double>(function(
          floatOf<double>(x[0]), floatOf<double>(x[1]), floatOf<double>(x[2])));
    };
  if (type.isF32())
    return [=](const uint64_t *x, uint64_t *y) {
      y[0] = bitsOf<float>(function(floatOf<float>(x[0]), floatOf<float>(x[1]),
                                    floatOf<float>(x[2])));
    };
  return nullptr;
}

template <typename F> Function integers(unsigned width, F function) {
  return [=](const uint64_t *x, uint64_t *y) {
    y[0] = function(x[0], x[1]) & maskOf(width);
  };
}

template <typename F> Function signedIntegers(unsigned width, F function) {
  return [=](const uint64_t *x, uint64_t *y) {
    y[0] = static_cast<uint64_t>(
               function(signedOf(x[0], width), signedOf(x[1], width))) &
           maskOf(width);
  };
}

template <typename T> T propagateNaN(T a, T b, T otherwise) {
  return std::isnan(a) ? a : std::isnan(b) ? b : otherwise;
}

using U = uint64_t;
using S = int64_t;

Function integerArithmetic(Operation *op, unsigned width) {
  return llvm::TypeSwitch<Operation *, Function>(op)
      .Case<arith::AddIOp>(
          [&](auto) { return integers(width, [](U a, U b) { return a + b; }); })
      .Case<arith::SubIOp>(
          [&](auto) { return integers(width, [](U a, U b) { return a - b; }); })
      .Case<arith::MulIOp>(
          [&](auto) { return integers(width, [](U a, U b) { return a * b; }); })
      .Case<arith::MinUIOp>([&](auto) {
        return integers(width, [](U a, U b) { return std::min(a, b); });
      })
      .Case<arith::MaxUIOp>([&](auto) {
        return integers(width, [](U a, U b) { return std::max(a, b); });
      })
      .Case<arith::MinSIOp>([&](auto) {
        return signedIntegers(width, [](S a, S b) { return std::min(a, b); });
      })
      .Case<arith::MaxSIOp>([&](auto) {
        return signedIntegers(width, [](S a, S b) { return std::max(a, b); });
      })
      .Case<math::AbsIOp>([&](auto) {
        return signedIntegers(width, [](S a, S) { return a < 0 ? -a : a; });
      })
      .Default([](auto) { return nullptr; });
}

/// Division by 0 is undefined on devices, too, so generated code avoids it.
Function integerDivision(Operation *op, unsigned width) {
  return llvm::TypeSwitch<Operation *, Function>(op)
      .Case<arith::DivUIOp>([&](auto) {
        return integers(width, [](U a, U b) { return b ? a / b : ~U(0); });
      })
      .Case<arith::RemUIOp>([&](auto) {
        return integers(width, [](U a, U b) { return b ? a % b : ~U(0); });
      })
      .Case<arith::DivSIOp>([&](auto) {
        return signedIntegers(width, [](S a, S b) {
          return b == 0 ? -1 : b == -1 ? S(-U(a)) : a / b;
        });
      })
      .Case<arith::RemSIOp>([&](auto) {
        return signedIntegers(
            width, [](S a, S b) { return b == 0 || b == -1 ? 0 : a % b; });
      })
      .Case<arith::FloorDivSIOp>([&](auto) {
        return signedIntegers(width, [](S a, S b) {
          if (b == 0 || b == -1)
            return b == 0 ? -1 : S(-U(a));
          return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
        });
      })
      .Case<arith::CeilDivSIOp>([&](auto) {
        return signedIntegers(width, [](S a, S b) {
          if (b == 0 || b == -1)
            return b == 0 ? -1 : S(-U(a));
          return a / b + ((a % b != 0) && ((a < 0) == (b < 0)));
        });
      })
      .Case<arith::CeilDivUIOp>([&](auto) {
        return integers(
            width, [](U a, U b) { return b ? a / b + (a % b != 0) : ~U(0); });
      })
      .Default([](auto) { return nullptr; });
}

Function bitOperation(Operation *op, unsigned width) {
  return llvm::TypeSwitch<Operation *, Function>(op)
      .Case<arith::AndIOp>(
          [&](auto) { return integers(width, [](U a, U b) { return a & b; }); })
      .Case<arith::OrIOp>(
          [&](auto) { return integers(width, [](U a, U b) { return a | b; }); })
      .Case<arith::XOrIOp>(
          [&](auto) { return integers(width, [](U a, U b) { return a ^ b; }); })
      .Case<arith::ShLIOp>([&](auto) {
        return integers(width,
                        [=](U a, U b) { return b < width ? a << b : 0; });
      })
      .Case<arith::ShRUIOp>([&](auto) {
        return integers(width,
                        [=](U a, U b) { return b < width ? a >> b : 0; });
      })
      .Case<arith::ShRSIOp>([&](auto) {
        return signedIntegers(
            width, [=](S a, S b) { return a >> std::min<U>(b, width - 1); });
      })
      .Case<math::CountTrailingZerosOp>([&](auto) {
        return integers(width, [=](U a, U) {
          return a ? U(llvm::countr_zero(a)) : U(width);
        });
      })
      .Case<math::CountLeadingZerosOp>([&](auto) {
        return integers(width, [=](U a, U) {
          return U(llvm::countl_zero(a)) - (64 - width);
        });
      })
      .Case<math::CtPopOp>([&](auto) {
        return integers(width, [](U a, U) { return U(llvm::popcount(a)); });
      })
      .Default([](auto) { return nullptr; });
}

/// Returns the function of an operation with two results: the low and high bits
/// of a product, or a sum and its carry.
Function extendedArithmetic(Operation *op, unsigned width) {
  return llvm::TypeSwitch<Operation *, Function>(op)
      .Case<arith::MulUIExtendedOp>([&](auto) -> Function {
        return [=](const U *x, U *y) {
          auto product = static_cast<unsigned __int128>(x[0]) * x[1];
          y[0] = static_cast<U>(product) & maskOf(width);
          y[1] = static_cast<U>(product >> width) & maskOf(width);
        };
      })
      .Case<arith::MulSIExtendedOp>([&](auto) -> Function {
        return [=](const U *x, U *y) {
          auto product = static_cast<__int128>(signedOf(x[0], width)) *
                         signedOf(x[1], width);
          y[0] = static_cast<U>(product) & maskOf(width);
          y[1] = static_cast<U>(product >> width) & maskOf(width);
        };
      })
      .Case<arith::AddUIExtendedOp>([&](auto) -> Function {
        return [=](const U *x, U *y) {
          auto sum = static_cast<unsigned __int128>(x[0]) + x[1];
          y[0] = static_cast<U>(sum) & maskOf(width);
          y[1] = static_cast<U>(sum >> width);
        };
      })
      .Default([](auto) { return nullptr; });
}

Function integerOperation(Operation *op, unsigned width) {
  for (auto *family :
       {integerArithmetic, integerDivision, bitOperation, extendedArithmetic})
    if (Function found = family(op, width))
      return found;
  return nullptr;
}

/// Maps a float operation to the C++ function that computes it. Each call
/// unary<Op>(f), binary<Op>(f) or ternary<Op>(f) adds a case: if the operation
/// is an Op, f computes it. The result is null if no case fits.
class FloatSwitch {
public:
  FloatSwitch(Operation *op, Type type) : op(op), type(type) {}

  template <typename Op, typename F> FloatSwitch &unary(F function) {
    return ternary<Op>([=](auto a, auto, auto) { return function(a); });
  }
  template <typename Op, typename F> FloatSwitch &binary(F function) {
    return ternary<Op>([=](auto a, auto b, auto) { return function(a, b); });
  }
  template <typename Op, typename F> FloatSwitch &ternary(F function) {
    if (isa<Op>(op))
      found = floats(type, function);
    return *this;
  }
  operator Function() const { return found; }

private:
  Operation *op;
  Type type;
  Function found = nullptr;
};

/// Returns the function of a sum, product, root or rounding; null for other
/// operations.
Function floatArithmetic(Operation *op, Type type) {
  return FloatSwitch(op, type)
      .binary<arith::AddFOp>([](auto a, auto b) { return a + b; })
      .binary<arith::SubFOp>([](auto a, auto b) { return a - b; })
      .binary<arith::MulFOp>([](auto a, auto b) { return a * b; })
      .binary<arith::DivFOp>([](auto a, auto b) { return a / b; })
      .binary<arith::RemFOp>([](auto a, auto b) { return std::fmod(a, b); })
      .unary<arith::NegFOp>([](auto a) { return -a; })
      .binary<arith::MaximumFOp>([](auto a, auto b) {
        return propagateNaN(
            a, b, a == b ? (std::signbit(a) ? b : a) : std::max(a, b));
      })
      .binary<arith::MinimumFOp>([](auto a, auto b) {
        return propagateNaN(
            a, b, a == b ? (std::signbit(a) ? a : b) : std::min(a, b));
      })
      .binary<arith::MaxNumFOp>([](auto a, auto b) { return std::fmax(a, b); })
      .binary<arith::MinNumFOp>([](auto a, auto b) { return std::fmin(a, b); })
      .unary<math::SqrtOp>([](auto a) { return std::sqrt(a); })
      .ternary<math::FmaOp>(
          [](auto a, auto b, auto c) { return std::fma(a, b, c); })
      .unary<math::AbsFOp>([](auto a) { return std::fabs(a); })
      .binary<math::CopySignOp>(
          [](auto a, auto b) { return std::copysign(a, b); })
      .unary<math::RoundEvenOp>([](auto a) { return std::nearbyint(a); })
      .unary<math::RoundOp>([](auto a) { return std::round(a); })
      .unary<math::FloorOp>([](auto a) { return std::floor(a); })
      .unary<math::CeilOp>([](auto a) { return std::ceil(a); })
      .unary<math::TruncOp>([](auto a) { return std::trunc(a); })
      .unary<math::RsqrtOp>([](auto a) { return 1 / std::sqrt(a); });
}

/// Returns the function of an exponential, a logarithm or a similar operation;
/// null for other operations.
Function exponential(Operation *op, Type type) {
  return FloatSwitch(op, type)
      .unary<math::ExpOp>([](auto a) { return std::exp(a); })
      .unary<math::Exp2Op>([](auto a) { return std::exp2(a); })
      .unary<math::ExpM1Op>([](auto a) { return std::expm1(a); })
      .unary<math::LogOp>([](auto a) { return std::log(a); })
      .unary<math::Log2Op>([](auto a) { return std::log2(a); })
      .unary<math::Log10Op>([](auto a) { return std::log10(a); })
      .unary<math::Log1pOp>([](auto a) { return std::log1p(a); })
      .unary<math::CbrtOp>([](auto a) { return std::cbrt(a); })
      .unary<math::ErfOp>([](auto a) { return std::erf(a); })
      .unary<math::ErfcOp>([](auto a) { return std::erfc(a); })
      .binary<math::PowFOp>([](auto a, auto b) { return std::pow(a, b); });
}

/// Trigonometric and hyperbolic functions.
Function trigonometric(Operation *op, Type type) {
  return FloatSwitch(op, type)
      .unary<math::SinOp>([](auto a) { return std::sin(a); })
      .unary<math::CosOp>([](auto a) { return std::cos(a); })
      .unary<math::TanOp>([](auto a) { return std::tan(a); })
      .unary<math::AsinOp>([](auto a) { return std::asin(a); })
      .unary<math::AcosOp>([](auto a) { return std::acos(a); })
      .unary<math::AtanOp>([](auto a) { return std::atan(a); })
      .binary<math::Atan2Op>([](auto a, auto b) { return std::atan2(a, b); })
      .unary<math::SinhOp>([](auto a) { return std::sinh(a); })
      .unary<math::CoshOp>([](auto a) { return std::cosh(a); })
      .unary<math::TanhOp>([](auto a) { return std::tanh(a); })
      .unary<math::AsinhOp>([](auto a) { return std::asinh(a); })
      .unary<math::AcoshOp>([](auto a) { return std::acosh(a); })
      .unary<math::AtanhOp>([](auto a) { return std::atanh(a); });
}

Function floatOperation(Operation *op, Type type) {
  for (auto *family : {floatArithmetic, exponential, trigonometric})
    if (Function found = family(op, type))
      return found;
  return nullptr;
}

} // namespace

Function cleave::gpusim::elementwise(Operation *op) {
  if (op->getNumOperands() == 0 || op->getNumOperands() > 3 ||
      op->getNumResults() == 0)
    return nullptr;
  Type from = getElementTypeOrSelf(op->getOperand(0).getType());
  Type to = getElementTypeOrSelf(op->getResult(0).getType());
  if (Function found = conversion(op, from, to))
    return found;
  if (Function found = predicate(op, from))
    return found;
  if (isa<FloatType>(to))
    return floatOperation(op, to);
  return integerOperation(op, widthOf(to));
}
