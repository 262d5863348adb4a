// Formulas of mathematical functions; see MathFormulas.h.

#include "MathFormulas.h"

#include <limits>

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Single precision
//===----------------------------------------------------------------------===//

/// exp(x) = 2^n exp(r), |r| <= ln(2)/2, by a polynomial of degree 6. 2^n is
/// applied in two factors, so that results near both ends of the range are
/// correct; results beyond the range overflow to infinity or underflow to 0.
Value formulas::exp32(MathBuilder &m, Value x) {
  Value bounded = m.min(m.max(x, m.f(-104.0)), m.f(89.0));
  Value n = m.roundEven(m.mul(bounded, m.f(1.44269504088896341)));
  Value r = m.fma(n, m.f(-0.693359375), bounded);
  r = m.fma(n, m.f(2.12194440e-4), r);
  Value p =
      m.polynomial(r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3,
                       4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1});
  Value y = m.add(m.fma(p, m.mul(r, r), r), m.f(1.0));
  Value exponent = m.toInt(n);
  Value half = m.shiftRight(exponent, 1);
  y = m.mul(m.mul(y, m.powerOfTwo(half)),
            m.powerOfTwo(m.subInt(exponent, half)));
  return m.select(m.isNaN(x), x, y);
}

/// log(x) = n ln(2) + log(f), sqrt(1/2) <= f < sqrt(2), after Cephes.
Value formulas::log32(MathBuilder &m, Value x) {
  // Subnormal numbers are scaled up first.
  Value tiny = m.less(x, m.f(1.17549435e-38));
  Value scaled = m.select(tiny, m.mul(x, m.f(8388608.0)), x);
  Value bits = m.bitsOf(scaled);
  // With the bits of sqrt(1/2) subtracted, the exponent in `offset` is n, and
  // `fraction` is between sqrt(1/2) and sqrt(2).
  Value offset = m.subInt(bits, m.i(0x3f3504f3));
  Value n = m.toFloat(m.shiftRight(offset, 23));
  n = m.sub(n, m.select(tiny, m.f(23.0), m.f(0.0)));
  Value fraction =
      m.floatOf(m.addInt(m.andInt(offset, m.i(0x007fffff)), m.i(0x3f3504f3)));
  Value f = m.sub(fraction, m.f(1.0));
  Value square = m.mul(f, f);
  Value p =
      m.polynomial(f, {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1,
                       -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
                       2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  Value y = m.mul(m.mul(p, f), square);
  y = m.fma(n, m.f(-2.12194440e-4), y);
  y = m.fma(square, m.f(-0.5), y);
  y = m.add(f, y);
  y = m.fma(n, m.f(0.693359375), y);
  y = m.select(m.equal(x, m.f(0.0)), m.f(-kInfinity), y);
  y = m.select(m.equal(x, m.f(kInfinity)), x, y);
  // The logarithm of a negative number or NaN is NaN.
  return m.select(m.notLess(x, m.f(0.0)), y,
                  m.f(std::numeric_limits<double>::quiet_NaN()));
}

/// tanh(x): an odd polynomial near 0, else 1 - 2 / (exp(2x) + 1).
Value formulas::tanh32(MathBuilder &m, Value x) {
  Value magnitude = m.abs(x);
  Value square = m.mul(x, x);
  Value p = m.polynomial(square, {-5.70498872745e-3, 2.06390887954e-2,
                                  -5.37397155531e-2, 1.33314422036e-1,
                                  -3.33332819422e-1});
  Value small = m.fma(m.mul(p, square), x, x);
  // tanh(9.1) rounds to 1.
  Value bounded = m.min(magnitude, m.f(9.1));
  Value e = exp32(m, m.add(bounded, bounded));
  Value large = m.sub(m.f(1.0), m.div(m.f(2.0), m.add(e, m.f(1.0))));
  large = m.copySign(large, x);
  Value y = m.select(m.less(magnitude, m.f(0.625)), small, large);
  return m.select(m.isNaN(x), x, y);
}

/// erf(x): an odd polynomial near 0, else 1 - exp(polynomial).
Value formulas::erf32(MathBuilder &m, Value x) {
  Value t = m.abs(x);
  Value s = m.mul(x, x);
  Value r = m.fma(m.f(-1.72853470e-5), t, m.f(3.83197126e-4));
  Value u = m.fma(m.f(-3.88396438e-3), t, m.f(2.42546219e-2));
  r = m.fma(r, s, u);
  r = m.fma(r, t, m.f(-1.06777877e-1));
  r = m.fma(r, t, m.f(-6.34846687e-1));
  r = m.fma(r, t, m.f(-1.28717512e-1));
  r = m.fma(r, t, m.neg(t));
  // The polynomial in the exponent is only valid for small arguments; for large
  // ones, erf is 1.
  r = m.select(m.less(t, m.f(4.0)), r, m.f(-100.0));
  Value large = m.copySign(m.sub(m.f(1.0), exp32(m, r)), x);
  Value p = m.polynomial(s, {-5.96761703e-4, 4.99119423e-3, -2.67681349e-2,
                             1.12819925e-1, -3.76125336e-1, 1.28379166e-1});
  Value small = m.fma(p, x, x);
  Value y = m.select(m.less(m.f(0.927734375), t), large, small);
  return m.select(m.isNaN(x), x, y);
}

//===----------------------------------------------------------------------===//
// Double precision
//===----------------------------------------------------------------------===//

/// exp(x) = 2^n exp(r), |r| <= ln(2)/2, by the Taylor polynomial of degree 13.
Value formulas::exp64(MathBuilder &m, Value x) {
  Value bounded = m.min(m.max(x, m.f(-746.0)), m.f(710.0));
  Value n = m.roundEven(m.mul(bounded, m.f(1.4426950408889634)));
  Value r = m.fma(n, m.f(-6.93147180369123816490e-01), bounded);
  r = m.fma(n, m.f(-1.90821492927058770002e-10), r);
  SmallVector<double> taylor;
  double factorial = 6227020800.0; // 13!
  for (int k = 13; k >= 2; --k) {
    taylor.push_back(1.0 / factorial);
    factorial /= k;
  }
  Value p = m.polynomial(r, taylor);
  Value y = m.add(m.fma(p, m.mul(r, r), r), m.f(1.0));
  Value exponent = m.toInt(n);
  Value half = m.shiftRight(exponent, 1);
  y = m.mul(m.mul(y, m.powerOfTwo(half)),
            m.powerOfTwo(m.subInt(exponent, half)));
  return m.select(m.isNaN(x), x, y);
}

/// log(x) = n ln(2) + log(1 + f), after FreeBSD's e_log.c.
Value formulas::log64(MathBuilder &m, Value x) {
  Value tiny = m.less(x, m.f(2.2250738585072014e-308));
  Value scaled = m.select(tiny, m.mul(x, m.f(18014398509481984.0)), x);
  Value offset = m.subInt(m.bitsOf(scaled), m.i(0x3fe6a09e667f3bcd));
  Value n = m.toFloat(m.shiftRight(offset, 52));
  n = m.sub(n, m.select(tiny, m.f(54.0), m.f(0.0)));
  Value fraction = m.floatOf(m.addInt(m.andInt(offset, m.i(0x000fffffffffffff)),
                                      m.i(0x3fe6a09e667f3bcd)));
  Value f = m.sub(fraction, m.f(1.0));
  Value s = m.div(f, m.add(f, m.f(2.0)));
  Value z = m.mul(s, s);
  Value rest = m.mul(
      z, m.polynomial(z, {1.479819860511658591e-01, 1.531383769920937332e-01,
                          1.818357216161805012e-01, 2.222219843214978396e-01,
                          2.857142874366239149e-01, 3.999999999940941908e-01,
                          6.666666666666735130e-01}));
  Value halfSquare = m.mul(m.mul(f, m.f(0.5)), f);
  Value inner = m.fma(s, m.add(halfSquare, rest),
                      m.mul(n, m.f(1.90821492927058770002e-10)));
  Value y = m.fma(n, m.f(6.93147180369123816490e-01),
                  m.sub(f, m.sub(halfSquare, inner)));
  y = m.select(m.equal(x, m.f(0.0)), m.f(-kInfinity), y);
  y = m.select(m.equal(x, m.f(kInfinity)), x, y);
  return m.select(m.notLess(x, m.f(0.0)), y,
                  m.f(std::numeric_limits<double>::quiet_NaN()));
}

//===----------------------------------------------------------------------===//
// Single precision by way of double
//===----------------------------------------------------------------------===//

/// sin(x + quarters * pi/2), in double.
Value formulas::sine64(MathBuilder &m, Value x, int64_t quarters) {
  Value n = m.roundEven(m.mul(x, m.f(0.63661977236758134308)));
  Value r = m.fma(n, m.f(-1.57079632673412561417e+00), x);
  r = m.fma(n, m.f(-6.07710050650619224932e-11), r);
  Value z = m.mul(r, r);
  Value sine =
      m.polynomial(z, {-2.50521083854417187751e-08, 2.75573192239858906526e-06,
                       -1.98412698412698412698e-04, 8.33333333333333333333e-03,
                       -1.66666666666666666667e-01});
  sine = m.fma(m.mul(sine, z), r, r);
  Value cosine =
      m.polynomial(z, {2.08767569878680989792e-09, -2.75573192239858906526e-07,
                       2.48015873015873015873e-05, -1.38888888888888888889e-03,
                       4.16666666666666666667e-02, -0.5});
  cosine = m.fma(cosine, z, m.f(1.0));
  Value quadrant = m.addInt(m.toInt(n), m.i(quarters));
  Value odd = m.equalInt(m.andInt(quadrant, m.i(1)), m.i(1));
  Value lower = m.equalInt(m.andInt(quadrant, m.i(2)), m.i(2));
  Value y = m.select(odd, cosine, sine);
  return m.select(lower, m.neg(y), y);
}

/// pow(x, y) in double: computes |x|^y, and then applies the sign and the
/// special cases of pow (zero, infinity, NaN).
Value formulas::power64(MathBuilder &m, Value x, Value y) {
  Value magnitude = m.abs(x);
  Value result = exp64(m, m.mul(y, log64(m, magnitude)));
  Value whole = m.roundEven(y);
  Value isWhole = m.equal(whole, y);
  Value half = m.mul(y, m.f(0.5));
  Value isOdd = m.both(isWhole, m.differ(m.roundEven(half), half));
  Value negative = m.less(x, m.f(0.0));
  Value nan = m.f(std::numeric_limits<double>::quiet_NaN());
  // A power of a negative number with an exponent that is not an integer is
  // NaN, except that powers of -infinity are those of infinity (IEEE 754-2019,
  // section 9.2.1).
  Value isInfinite =
      m.equal(magnitude, m.f(std::numeric_limits<double>::infinity()));
  Value signedResult = m.select(isWhole, m.select(isOdd, m.neg(result), result),
                                m.select(isInfinite, result, nan));
  result = m.select(negative, signedResult, result);
  return m.select(m.equal(y, m.f(0.0)), m.f(1.0), result);
}

/// exp(x) - 1 in double, to the accuracy of single precision.
Value formulas::expM1(MathBuilder &m, Value x) {
  Value y = m.sub(exp64(m, x), m.f(1.0));
  return m.select(m.less(m.abs(x), m.f(1e-8)), x, y);
}

Value formulas::log1P(MathBuilder &m, Value x) {
  Value y = log64(m, m.add(x, m.f(1.0)));
  return m.select(m.less(m.abs(x), m.f(1e-8)), x, y);
}

/// Computes an odd function of x from its value at |x|, `ofMagnitude`. Near 0,
/// where the formulas lose accuracy by cancellation, the result is x.
static Value oddOf(MathBuilder &m, Value x, Value ofMagnitude) {
  Value y = m.copySign(ofMagnitude, x);
  return m.select(m.less(m.abs(x), m.f(1e-8)), x, y);
}

Value formulas::sinh(MathBuilder &m, Value x) {
  Value magnitude = m.abs(x);
  Value e = exp64(m, magnitude);
  Value y = m.mul(m.sub(e, m.div(m.f(1.0), e)), m.f(0.5));
  return oddOf(m, x, m.select(m.isNaN(x), x, y));
}

/// Returns atan(x), computed from atan(|x|). The half-angle formula reduces the
/// argument to t <= tan(pi/8), for which a Taylor polynomial is accurate.
Value formulas::arcTangent(MathBuilder &m, Value x) {
  Value magnitude = m.abs(x), one = m.f(1.0);
  Value large = m.less(one, magnitude);
  Value t = m.select(large, m.div(one, magnitude), magnitude);
  t = m.div(t, m.add(one, m.sqrt(m.fma(t, t, one))));
  SmallVector<double> taylor;
  for (int power = 27; power >= 3; power -= 2)
    taylor.push_back((power % 4 == 1 ? 1.0 : -1.0) / power);
  Value z = m.mul(t, t);
  Value y = m.fma(m.mul(m.polynomial(z, taylor), z), t, t);
  y = m.add(y, y);
  y = m.select(large, m.sub(m.f(1.57079632679489661923), y), y);
  return oddOf(m, x, y);
}

Value formulas::arcSine(MathBuilder &m, Value x) {
  Value root = m.sqrt(m.mul(m.sub(m.f(1.0), x), m.add(m.f(1.0), x)));
  return arcTangent(m, m.div(x, root));
}

Value formulas::arcTangent2(MathBuilder &m, Value y, Value x) {
  constexpr double pi = 3.14159265358979323846;
  Value zero = m.f(0.0);
  Value angle = arcTangent(m, m.div(m.abs(y), m.abs(x)));
  angle = m.select(m.both(m.equal(x, zero), m.equal(y, zero)), zero, angle);
  // The quadrant is also left of the y axis for x = -0.
  Value negative = m.less(m.copySign(m.f(1.0), x), zero);
  angle = m.select(negative, m.sub(m.f(pi), angle), angle);
  return m.copySign(angle, y);
}

Value formulas::cubeRoot(MathBuilder &m, Value x) {
  Value y = exp64(m, m.mul(log64(m, m.abs(x)), m.f(1.0 / 3.0)));
  return m.copySign(y, x);
}

Value formulas::arSinh(MathBuilder &m, Value x) {
  Value magnitude = m.abs(x);
  Value root = m.sqrt(m.fma(x, x, m.f(1.0)));
  return oddOf(m, x, log64(m, m.add(magnitude, root)));
}

Value formulas::arCosh(MathBuilder &m, Value x) {
  Value root = m.sqrt(m.mul(m.sub(x, m.f(1.0)), m.add(x, m.f(1.0))));
  return log64(m, m.add(x, root));
}

Value formulas::arTanh(MathBuilder &m, Value x) {
  Value ratio = m.div(m.add(m.f(1.0), x), m.sub(m.f(1.0), x));
  Value y = m.mul(log64(m, ratio), m.f(0.5));
  return m.select(m.less(m.abs(x), m.f(1e-8)), x, y);
}
