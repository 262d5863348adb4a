// What elementwise operations do with the bits of one element.

#include "Program.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/ADT/bit.h"

#include <cmath>
#include <cstring>

using namespace mlir;
using namespace cleave;
using namespace cleave::gpusim;

/// Bits of an element; pointers and indices have 64.
static unsigned widthOf(Type type) {
  Type element = getElementTypeOrSelf(type);
  return element.isIntOrFloat() ? element.getIntOrFloatBitWidth() : 64;
}

static uint64_t maskOf(unsigned width) {
  return width >= 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
}

static int64_t signedOf(uint64_t bits, unsigned width) {
  unsigned shift = 64 - width;
  return static_cast<int64_t>(bits << shift) >> shift;
}

namespace {

/// Float types as C++ has them; what the device rounds, the host rounds.
template <typename T> T floatOf(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T> uint64_t bitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

uint64_t roundToBFloat16(float value) {
  uint32_t bits = bitsOf(value);
  if (std::isnan(value))
    return (bits >> 16) | 0x40;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

/// An element of any float type in double, exactly.
double wideOf(uint64_t bits, Type type) {
  if (type.isF64())
    return floatOf<double>(bits);
  return floatOf<float>(type.isBF16() ? bits << 16 : bits);
}

/// Rounded once; bf16 from what f32 holds.
uint64_t narrowTo(double value, Type type) {
  if (type.isF64())
    return bitsOf(value);
  float rounded = static_cast<float>(value);
  return type.isBF16() ? roundToBFloat16(rounded) : bitsOf(rounded);
}

/// A function of floats of one type, computed in that type.
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

bool compare(arith::CmpIPredicate predicate, uint64_t a, uint64_t b,
             unsigned width) {
  int64_t sa = signedOf(a, width), sb = signedOf(b, width);
  switch (predicate) {
  case arith::CmpIPredicate::eq:
    return a == b;
  case arith::CmpIPredicate::ne:
    return a != b;
  case arith::CmpIPredicate::slt:
    return sa < sb;
  case arith::CmpIPredicate::sle:
    return sa <= sb;
  case arith::CmpIPredicate::sgt:
    return sa > sb;
  case arith::CmpIPredicate::sge:
    return sa >= sb;
  case arith::CmpIPredicate::ult:
    return a < b;
  case arith::CmpIPredicate::ule:
    return a <= b;
  case arith::CmpIPredicate::ugt:
    return a > b;
  case arith::CmpIPredicate::uge:
    return a >= b;
  }
  llvm_unreachable("all predicates are covered");
}

/// Whether equal, greater, less or unordered numbers satisfy a predicate, as
/// bits 0 to 3.
unsigned outcomesOf(arith::CmpFPredicate predicate) {
  unsigned number = static_cast<unsigned>(predicate);
  if (predicate == arith::CmpFPredicate::UNO)
    return 8;
  if (number >= static_cast<unsigned>(arith::CmpFPredicate::UEQ) &&
      number <= static_cast<unsigned>(arith::CmpFPredicate::UNE))
    return 8 | (number - 7); // of the ordered one, and unordered
  return number;
}

bool compare(unsigned outcomes, double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return outcomes & 8;
  return outcomes & (a == b ? 1 : a > b ? 2 : 4);
}

template <typename T> T propagateNaN(T a, T b, T otherwise) {
  return std::isnan(a) ? a : std::isnan(b) ? b : otherwise;
}

Function integerOperation(Operation *op, unsigned width) {
  using U = uint64_t;
  using S = int64_t;
  return llvm::TypeSwitch<Operation *, Function>(op)
      .Case<arith::AddIOp>(
          [&](auto) { return integers(width, [](U a, U b) { return a + b; }); })
      .Case<arith::SubIOp>(
          [&](auto) { return integers(width, [](U a, U b) { return a - b; }); })
      .Case<arith::MulIOp>(
          [&](auto) { return integers(width, [](U a, U b) { return a * b; }); })
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
      // Division by 0 is undefined on devices, too; generated code avoids it.
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

Function floatOperation(Operation *op, Type type) {
#define CLEAVE_FUNCTION(OP, EXPRESSION)                                        \
  .Case<OP>([&](auto) {                                                        \
    return floats(type, [](auto a, auto b, auto c) -> decltype(a) {            \
      (void)b, (void)c;                                                        \
      return EXPRESSION;                                                       \
    });                                                                        \
  })
  return llvm::TypeSwitch<Operation *, Function>(op) //
      CLEAVE_FUNCTION(arith::AddFOp, a + b)          //
      CLEAVE_FUNCTION(arith::SubFOp, a - b)          //
      CLEAVE_FUNCTION(arith::MulFOp, a * b)          //
      CLEAVE_FUNCTION(arith::DivFOp, a / b)          //
      CLEAVE_FUNCTION(arith::RemFOp, std::fmod(a, b)) CLEAVE_FUNCTION(
             arith::NegFOp,
             -a) CLEAVE_FUNCTION(arith::MaximumFOp,
                                 propagateNaN(a, b,
                                              a == b ? (std::signbit(a) ? b : a)
                                                     : std::max(a, b)))
          CLEAVE_FUNCTION(
              arith::MinimumFOp,
              propagateNaN(
                  a, b,
                  a == b ? (std::signbit(a) ? a : b)
                         : std::min(a, b))) CLEAVE_FUNCTION(arith::MaxNumFOp,
                                                            std::fmax(a, b))
              CLEAVE_FUNCTION(
                  arith::MinNumFOp,
                  std::fmin(
                      a,
                      b)) CLEAVE_FUNCTION(math::SqrtOp,
                                          std::sqrt(
                                              a)) CLEAVE_FUNCTION(math::FmaOp,
                                                                  std::fma(a, b,
                                                                           c))
                  CLEAVE_FUNCTION(math::AbsFOp, std::fabs(a)) CLEAVE_FUNCTION(
                      math::CopySignOp,
                      std::copysign(a, b)) CLEAVE_FUNCTION(math::RoundEvenOp,
                                                           std::nearbyint(a))
                      CLEAVE_FUNCTION(math::RoundOp, std::round(a)) CLEAVE_FUNCTION(
                          math::FloorOp,
                          std::floor(
                              a)) CLEAVE_FUNCTION(math::CeilOp, std::ceil(a))
                          CLEAVE_FUNCTION(math::TruncOp, std::trunc(a)) CLEAVE_FUNCTION(
                              math::RsqrtOp,
                              1 / std::sqrt(a)) CLEAVE_FUNCTION(math::ExpOp,
                                                                std::exp(a))
                              CLEAVE_FUNCTION(math::Exp2Op, std::exp2(a)) CLEAVE_FUNCTION(
                                  math::ExpM1Op,
                                  std::expm1(a)) CLEAVE_FUNCTION(math::LogOp,
                                                                 std::
                                                                     log(a))
                                  CLEAVE_FUNCTION(math::Log2Op, std::log2(a)) CLEAVE_FUNCTION(
                                      math::Log10Op,
                                      std::
                                          log10(a)) CLEAVE_FUNCTION(math::Log1pOp,
                                                                    std::
                                                                        log1p(
                                                                            a))
                                      CLEAVE_FUNCTION(math::SinOp, std::sin(a)) CLEAVE_FUNCTION(
                                          math::CosOp,
                                          std::cos(
                                              a)) CLEAVE_FUNCTION(math::TanOp, std::tan(a))
                                          CLEAVE_FUNCTION(math::AsinOp, std::asin(a)) CLEAVE_FUNCTION(
                                              math::AcosOp, std::acos(a))
                                              CLEAVE_FUNCTION(math::AtanOp, std::atan(a)) CLEAVE_FUNCTION(
                                                  math::Atan2Op,
                                                  std::atan2(
                                                      a,
                                                      b)) CLEAVE_FUNCTION(math::SinhOp, std::sinh(a))
                                                  CLEAVE_FUNCTION(math::CoshOp, std::cosh(a)) CLEAVE_FUNCTION(
                                                      math::TanhOp,
                                                      std::
                                                          tanh(a)) CLEAVE_FUNCTION(math::
                                                                                       AsinhOp,
                                                                                   std::asinh(
                                                                                       a))
                                                      CLEAVE_FUNCTION(
                                                          math::AcoshOp,
                                                          std::acosh(a))
                                                          CLEAVE_FUNCTION(
                                                              math::AtanhOp,
                                                              std::atanh(a))
                                                              CLEAVE_FUNCTION(
                                                                  math::CbrtOp,
                                                                  std::cbrt(a))
                                                                  CLEAVE_FUNCTION(
                                                                      math::
                                                                          ErfOp,
                                                                      std::erf(
                                                                          a))
                                                                      CLEAVE_FUNCTION(
                                                                          math::
                                                                              ErfcOp,
                                                                          std::erfc(
                                                                              a))
                                                                          CLEAVE_FUNCTION(
                                                                              math::
                                                                                  PowFOp,
                                                                              std::pow(
                                                                                  a,
                                                                                  b))
                                                                              .Default(
                                                                                  [](auto) {
                                                                                    return nullptr;
                                                                                  });
#undef CLEAVE_FUNCTION
}

/// Conversions between types, comparisons, choices.
Function conversion(Operation *op, Type from, Type to) {
  unsigned narrow = widthOf(from), width = widthOf(to);
  return llvm::TypeSwitch<Operation *, Function>(op)
      .Case<arith::BitcastOp>([&](auto) -> Function {
        return [](const uint64_t *x, uint64_t *y) { y[0] = x[0]; };
      })
      .Case<arith::ExtUIOp, arith::TruncIOp, arith::IndexCastUIOp>(
          [&](auto) -> Function {
            return [=](const uint64_t *x, uint64_t *y) {
              y[0] = x[0] & maskOf(width);
            };
          })
      .Case<arith::ExtSIOp, arith::IndexCastOp>([&](auto) -> Function {
        return [=](const uint64_t *x, uint64_t *y) {
          y[0] = static_cast<uint64_t>(signedOf(x[0], narrow)) & maskOf(width);
        };
      })
      .Case<arith::ExtFOp, arith::TruncFOp>([&](auto) -> Function {
        return [=](const uint64_t *x, uint64_t *y) {
          y[0] = narrowTo(wideOf(x[0], from), to);
        };
      })
      .Case<arith::SIToFPOp>([&](auto) -> Function {
        if (to.isF32())
          return [=](const uint64_t *x, uint64_t *y) {
            y[0] = bitsOf(static_cast<float>(signedOf(x[0], narrow)));
          };
        return [=](const uint64_t *x, uint64_t *y) {
          y[0] = narrowTo(static_cast<double>(signedOf(x[0], narrow)), to);
        };
      })
      .Case<arith::UIToFPOp>([&](auto) -> Function {
        if (to.isF32())
          return [=](const uint64_t *x, uint64_t *y) {
            y[0] = bitsOf(static_cast<float>(x[0]));
          };
        return [=](const uint64_t *x, uint64_t *y) {
          y[0] = narrowTo(static_cast<double>(x[0]), to);
        };
      })
      // As devices do: what does not fit is the nearest number that does.
      .Case<arith::FPToSIOp>([&](auto) -> Function {
        return [=](const uint64_t *x, uint64_t *y) {
          double value = wideOf(x[0], from), limit = std::ldexp(1.0, width - 1);
          int64_t whole = std::isnan(value) ? 0
                          : value >= limit  ? int64_t(maskOf(width - 1))
                          : value < -limit  ? -int64_t(maskOf(width - 1)) - 1
                                            : int64_t(value);
          y[0] = static_cast<uint64_t>(whole) & maskOf(width);
        };
      })
      .Case<arith::FPToUIOp>([&](auto) -> Function {
        return [=](const uint64_t *x, uint64_t *y) {
          double value = wideOf(x[0], from);
          y[0] = !(value > 0)                      ? 0
                 : value >= std::ldexp(1.0, width) ? maskOf(width)
                                                   : uint64_t(value);
        };
      })
      .Case<arith::CmpIOp>([&](arith::CmpIOp cmp) -> Function {
        auto predicate = cmp.getPredicate();
        return [=](const uint64_t *x, uint64_t *y) {
          y[0] = compare(predicate, x[0], x[1], narrow);
        };
      })
      .Case<arith::CmpFOp>([&](arith::CmpFOp cmp) -> Function {
        unsigned outcomes = outcomesOf(cmp.getPredicate());
        return [=](const uint64_t *x, uint64_t *y) {
          y[0] = compare(outcomes, wideOf(x[0], from), wideOf(x[1], from));
        };
      })
      .Case<arith::SelectOp>([&](auto) -> Function {
        return
            [](const uint64_t *x, uint64_t *y) { y[0] = x[0] ? x[1] : x[2]; };
      })
      .Case<math::IsNaNOp>([&](auto) -> Function {
        return [=](const uint64_t *x, uint64_t *y) {
          y[0] = std::isnan(wideOf(x[0], from));
        };
      })
      .Case<math::IsInfOp>([&](auto) -> Function {
        return [=](const uint64_t *x, uint64_t *y) {
          y[0] = std::isinf(wideOf(x[0], from));
        };
      })
      .Case<math::IsFiniteOp>([&](auto) -> Function {
        return [=](const uint64_t *x, uint64_t *y) {
          y[0] = std::isfinite(wideOf(x[0], from));
        };
      })
      .Default([](auto) { return nullptr; });
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
  if (isa<FloatType>(to))
    return floatOperation(op, to);
  return integerOperation(op, widthOf(to));
}
