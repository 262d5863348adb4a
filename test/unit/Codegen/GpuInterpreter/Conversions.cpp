// Conversions between element types, and predicates.

#include "Conversions.h"

#include "Bits.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::gpusim;

namespace {

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

/// Returns which outcomes of a comparison satisfy the predicate: bit 0 is
/// equal, bit 1 greater, bit 2 less, bit 3 unordered.
unsigned outcomesOf(arith::CmpFPredicate predicate) {
  unsigned number = static_cast<unsigned>(predicate);
  if (predicate == arith::CmpFPredicate::UNO)
    return 8;
  if (number >= static_cast<unsigned>(arith::CmpFPredicate::UEQ) &&
      number <= static_cast<unsigned>(arith::CmpFPredicate::UNE))
    return 8 | (number - 7); // the ordered outcomes, and unordered
  return number;
}

bool compare(unsigned outcomes, double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return outcomes & 8;
  return outcomes & (a == b ? 1 : a > b ? 2 : 4);
}

/// Returns the function of a conversion between integers or of a bitcast; null
/// for other operations.
Function integerConversion(Operation *op, Type from, Type to) {
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
      .Default([](auto) { return nullptr; });
}

/// Returns the function of a conversion from or to floats; null for other
/// operations.
Function floatConversion(Operation *op, Type from, Type to) {
  unsigned narrow = widthOf(from), width = widthOf(to);
  return llvm::TypeSwitch<Operation *, Function>(op)
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
      // As on devices, a value that does not fit is converted to the nearest
      // integer that does.
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
      .Default([](auto) { return nullptr; });
}

} // namespace

Function cleave::gpusim::conversion(Operation *op, Type from, Type to) {
  if (Function found = integerConversion(op, from, to))
    return found;
  return floatConversion(op, from, to);
}

Function cleave::gpusim::predicate(Operation *op, Type from) {
  unsigned narrow = widthOf(from);
  return llvm::TypeSwitch<Operation *, Function>(op)
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
