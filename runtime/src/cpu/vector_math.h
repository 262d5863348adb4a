// Vectors of one instruction set, and math functions on them. Included only by
// isa_*.cpp, inside an anonymous namespace of the including file;
// CLEAVE_VECTOR_BYTES is the width of a vector.

template <class T> struct Lanes;
template <> struct Lanes<float> {
  static constexpr int count = CLEAVE_VECTOR_BYTES / 4;
  typedef float V __attribute__((vector_size(CLEAVE_VECTOR_BYTES)));
  typedef int32_t I __attribute__((vector_size(CLEAVE_VECTOR_BYTES)));
  typedef float U __attribute__((vector_size(CLEAVE_VECTOR_BYTES), aligned(4)));
};
template <> struct Lanes<double> {
  static constexpr int count = CLEAVE_VECTOR_BYTES / 8;
  typedef double V __attribute__((vector_size(CLEAVE_VECTOR_BYTES)));
  typedef int64_t I __attribute__((vector_size(CLEAVE_VECTOR_BYTES)));
  typedef double U
      __attribute__((vector_size(CLEAVE_VECTOR_BYTES), aligned(8)));
};
template <class T> using Vec = typename Lanes<T>::V;
template <class T> using IVec = typename Lanes<T>::I;

// Broadcasts x to all lanes. It is written as x - 0, which compilers simplify
// to x. They cannot simplify 0 + x, because it changes -0 to 0.
template <class T> inline Vec<T> splat(T x) { return x - Vec<T>{}; }
template <class T> inline Vec<T> load(const T *p) {
  return *reinterpret_cast<const typename Lanes<T>::U *>(p);
}
template <class T> inline void store(T *p, Vec<T> x) {
  *reinterpret_cast<typename Lanes<T>::U *>(p) = x;
}
// Load and store bf16 values as f32.
typedef uint16_t Halves __attribute__((vector_size(CLEAVE_VECTOR_BYTES / 2)));
typedef uint16_t LooseHalves
    __attribute__((vector_size(CLEAVE_VECTOR_BYTES / 2), aligned(2)));
typedef uint32_t Words __attribute__((vector_size(CLEAVE_VECTOR_BYTES)));
template <class T> inline Vec<float> load(const Bf16 *p) {
  Halves bits = *reinterpret_cast<const LooseHalves *>(p);
  return (Vec<float>)(__builtin_convertvector(bits, Words) << 16);
}
template <class T> inline void store(Bf16 *p, Vec<float> x) {
  Words bits = (Words)x;
  Words rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  Words nan = 0x7fc0 | bits >> 16;
  rounded = x == x ? rounded : nan;
  *reinterpret_cast<LooseHalves *>(p) =
      __builtin_convertvector(rounded, Halves);
}
template <class T> inline Vec<T> maxOf(Vec<T> a, Vec<T> b) {
  return a > b ? a : b;
}
template <class T> inline Vec<T> minOf(Vec<T> a, Vec<T> b) {
  return a < b ? a : b;
}

// exp: x = n ln 2 + r, |r| <= ln 2 / 2, with a Taylor polynomial for e^r. 2^n
// is built from its exponent bits in two factors, so that n may exceed the
// exponent's range. The error is below 2 ulp. Results below the smallest normal
// number become 0, above the largest one infinity; NaN stays NaN.
inline Vec<float> expOf(Vec<float> x) {
  typedef Vec<float> V;
  typedef IVec<float> I;
  V y = minOf<float>(maxOf<float>(x, splat(-87.3365f)), splat(88.7228f));
  V magic = splat(12582912.0f); // 1.5 * 2^23: adding it rounds
  V shifted = y * 1.44269504f + magic;
  V n = shifted - magic;
  V r = y - n * 0.693359375f; // ln 2 in two parts
  r = r + n * 2.12194440e-4f;
  V p = splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  I whole = (I)shifted - 0x4b400000; // n, in the low bits
  I half = whole >> 1;
  V result = p * (V)((half + 127) << 23) * (V)((whole - half + 127) << 23);
  result = x < -87.3365f ? V{} : result;
  result = x > 88.7228f ? splat(__builtin_inff()) : result;
  return x == x ? result : x;
}

inline Vec<double> expOf(Vec<double> x) {
  typedef Vec<double> V;
  typedef IVec<double> I;
  V y = minOf<double>(maxOf<double>(x, splat(-708.396)), splat(709.7827));
  V magic = splat(6755399441055744.0); // 1.5 * 2^52
  V shifted = y * 1.4426950408889634 + magic;
  V n = shifted - magic;
  V r = y - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  // The coefficients from 1/13! downwards. The next term is below 2^-55 for |r|
  // <= 0.3466.
  V p = splat(1.6059043836821613e-10);
  p = p * r + 2.08767569878681e-09;
  p = p * r + 2.505210838544172e-08;
  p = p * r + 2.755731922398589e-07;
  p = p * r + 2.7557319223985893e-06;
  p = p * r + 2.48015873015873e-05;
  p = p * r + 1.984126984126984e-04;
  p = p * r + 1.388888888888889e-03;
  p = p * r + 8.333333333333333e-03;
  p = p * r + 4.1666666666666664e-02;
  p = p * r + 1.6666666666666666e-01;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  I whole = (I)shifted - 0x4338000000000000; // n, in the low bits
  I half = whole >> 1;
  V result = p * (V)((half + 1023) << 52) * (V)((whole - half + 1023) << 52);
  result = x < -708.396 ? V{} : result;
  result = x > 709.7827 ? splat(__builtin_inf()) : result;
  return x == x ? result : x;
}

// erf as a rational function of x on [-4, 4]; beyond that range erf is +-1 in
// f32.
inline Vec<float> erfOf(Vec<float> x) {
  typedef Vec<float> V;
  x = minOf<float>(maxOf<float>(x, splat(-4.0f)), splat(4.0f));
  V s = x * x;
  V p = splat(-2.72614225801306e-10f);
  p = p * s + 2.77068142495902e-08f;
  p = p * s - 2.10102402082508e-06f;
  p = p * s - 5.69250639462346e-05f;
  p = p * s - 7.34990630326855e-04f;
  p = p * s - 2.95459980854025e-03f;
  p = p * s - 1.60960333262415e-02f;
  V q = splat(-1.45660718464996e-05f);
  q = q * s - 2.13374055278905e-04f;
  q = q * s - 1.68282697438203e-03f;
  q = q * s - 7.37332916720468e-03f;
  q = q * s - 1.42647390514189e-02f;
  return x * p / q;
}

// f64 is used in checks, so it is exact and not fast.
inline Vec<double> erfOf(Vec<double> x) {
  for (int i = 0; i < Lanes<double>::count; ++i)
    x[i] = __builtin_erf(x[i]);
  return x;
}

// tanh: near 0 the seventh convergent of its continued fraction x / (1 + x^2 /
// (3 + x^2 / (5 + ...))), which is exact to 2e-16 there; elsewhere 1 - 2 /
// (e^2x + 1).
template <class T> inline Vec<T> tanhOf(Vec<T> x) {
  Vec<T> s = x * x;
  Vec<T> p = s + T(378);
  p = p * s + T(17325);
  p = p * s + T(135135);
  Vec<T> q = s * T(28) + T(3150);
  q = q * s + T(62370);
  q = q * s + T(135135);
  Vec<T> far = splat(T(1)) - splat(T(2)) / (expOf(x + x) + T(1));
  return s < T(0.25) ? x * p / q : far;
}

// The numbers are those of program::Activation.
template <class T> inline Vec<T> activateVector(int activation, Vec<T> x) {
  switch (activation) {
  case 1: { // GELU, tanh form: x * sigmoid(2u)
    Vec<T> u = x * T(0.7978845608028654) * (x * x * T(0.044715) + T(1));
    return x / (expOf(u * T(-2)) + T(1));
  }
  case 2: // GELU, erf form
    return x * T(0.5) * (erfOf(x * T(0.7071067811865476)) + T(1));
  case 3:
    return x > T(0) ? x : Vec<T>{};
  case 4: // SiLU
    return x / (expOf(-x) + T(1));
  }
  return x;
}

template <class S, class T = Compute<S>>
void activate(int activation, const S *src, S *dst, int64_t count) {
  constexpr int lanes = Lanes<T>::count;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    store<T>(dst + i, activateVector<T>(activation, load<T>(src + i)));
  if (i == count)
    return;
  Vec<T> rest{};
  for (int64_t j = i; j < count; ++j)
    rest[j - i] = src[j];
  rest = activateVector<T>(activation, rest);
  for (int64_t j = i; j < count; ++j)
    dst[j] = rest[j - i];
}
