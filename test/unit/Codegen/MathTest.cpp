// Error bounds of math functions. Also checks that kernels call no library.

#include "Harness.h"

#include "cleave/Fusion/Fusion.h"

#include "llvm/Object/ELFObjectFile.h"
#include "gtest/gtest.h"

#include <cmath>
#include <filesystem>

using namespace mlir;
using namespace cleave;
using namespace cleave::test;

namespace {

constexpr int64_t kSamples = 20000;

std::string unaryKernel(const std::string &op, const std::string &type) {
  std::string tensor = "tensor<" + std::to_string(kSamples) + "x" + type + ">";
  return "func.func @k(%x: " + tensor + ") -> " + tensor + " {\n  %r = " + op +
         " %x : " + tensor + "\n  return %r : " + tensor + "\n}";
}

/// Returns samples in [low, high]: special values, then evenly spaced values,
/// then values with evenly spaced exponents.
Tensor samples(RankedTensorType type, double low, double high) {
  Tensor x(type);
  const double special[] = {0.0,       -0.0,   1.0,   -1.0,  INFINITY,
                            -INFINITY, NAN,    1e-40, 1e-30, 88.5,
                            -87.5,     -103.0, 0.625, 4.0,   0.92};
  int64_t count = std::size(special);
  for (int64_t i = 0; i < kSamples; ++i) {
    double at = double(i) / kSamples;
    double value = i < count          ? special[i]
                   : i < kSamples / 2 ? low + (high - low) * 2 * at
                                      : std::exp(-80 + (at - 0.5) * 2 * 84);
    if (i >= kSamples / 2 && i % 2 && low < 0)
      value = -value;
    if (i >= count)
      value = std::clamp(value, low, high);
    x.floats[i] = type.getElementType().isF32() ? float(value) : value;
  }
  return x;
}

/// Checks the largest error in units in the last place (ULP) of the result.
void checkFunction(const std::string &op, double (*exact)(double), double low,
                   double high, double bound, bool wide = false) {
  SCOPED_TRACE(op);
  auto module = parse(unaryKernel(op, wide ? "f64" : "f32"));
  auto kernel = module->lookupSymbol<func::FuncOp>("k");
  Tensor x =
      samples(cast<RankedTensorType>(kernel.getArgumentTypes()[0]), low, high);
  auto results = runKernel(kernel, {x});
  ASSERT_EQ(results.size(), 1u);
  double worst = 0, worstAt = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    double want = exact(x.floats[i]), have = results[0].floats[i];
    double rounded = wide ? want : double(float(want));
    if (have == rounded || (std::isnan(have) && std::isnan(want)))
      continue;
    ASSERT_TRUE(std::isfinite(have) && std::isfinite(rounded))
        << op << "(" << x.floats[i] << ") = " << have << ", expected " << want;
    double unit =
        wide ? std::nextafter(std::abs(want), INFINITY) - std::abs(want)
             : std::nextafter(float(std::abs(want)), INFINITY) -
                   float(std::abs(want));
    double error = std::abs(have - want) / unit;
    if (error > worst) {
      worst = error;
      worstAt = x.floats[i];
    }
  }
  EXPECT_LE(worst, bound) << op << " at " << worstAt;
  printf("  %-12s %s  %.2f ulp at %g\n", op.c_str(), wide ? "f64" : "f32",
         worst, worstAt);
}

double rsqrt(double x) { return 1 / std::sqrt(x); }

} // namespace

TEST(KernelMath, SinglePrecisionBounds) {
  checkFunction("math.exp", std::exp, -110, 95, 2);
  checkFunction("math.log", std::log, -1, 1e4, 2);
  checkFunction("math.tanh", std::tanh, -12, 12, 3);
  checkFunction("math.erf", std::erf, -6, 6, 3);
  checkFunction("math.sin", std::sin, -1e4, 1e4, 1);
  checkFunction("math.cos", std::cos, -1e4, 1e4, 1);
  checkFunction("math.rsqrt", rsqrt, 0, 1e4, 2);
  checkFunction("math.sqrt", std::sqrt, -1, 1e4, 1);
  checkFunction("math.expm1", std::expm1, -80, 80, 1);
  checkFunction("math.log1p", std::log1p, -1, 1e4, 1);
  checkFunction("math.sinh", std::sinh, -80, 80, 1);
  checkFunction("math.cosh", std::cosh, -80, 80, 1);
  checkFunction("math.tan", std::tan, -100, 100, 1);
  checkFunction("math.log2", std::log2, -1, 1e4, 1);
  checkFunction("math.atan", std::atan, -100, 100, 1);
  checkFunction("math.asin", std::asin, -1, 1, 1);
  checkFunction("math.acos", std::acos, -1, 1, 1);
  checkFunction("math.cbrt", std::cbrt, -1e4, 1e4, 1);
  checkFunction("math.asinh", std::asinh, -1e4, 1e4, 1);
  checkFunction("math.acosh", std::acosh, 1, 1e4, 1);
  checkFunction("math.atanh", std::atanh, -1, 1, 1);
}

TEST(KernelMath, DoublePrecisionBounds) {
  checkFunction("math.exp", std::exp, -750, 720, 2, true);
  checkFunction("math.log", std::log, -1, 1e4, 2, true);
  checkFunction("math.tanh", std::tanh, -12, 12, 2, true);
  checkFunction("math.erf", std::erf, -6, 6, 2, true);
  checkFunction("math.sin", std::sin, -1e4, 1e4, 1, true);
  checkFunction("math.rsqrt", rsqrt, 0, 1e4, 2, true);
}

TEST(KernelMath, Powers) {
  RunOptions options;
  options.f32Bound = 1e-6;
  options.f64Bound = 1e-14;
  options.floor = 1e-3;
  options.prepare = [](std::vector<Tensor> &arguments) {
    for (double &value : arguments[0].floats)
      value = std::abs(value);
  };
  for (const char *exponent : {"2.0", "3.0", "4.0", "-1.0", "0.5", "1.7"})
    checkKernel(
        std::string("func.func @k(%x: tensor<50xf32>) -> tensor<50xf32> {\n"
                    "  %c = arith.constant dense<") +
            exponent +
            "> : tensor<50xf32>\n"
            "  %r = math.powf %x, %c : tensor<50xf32>\n"
            "  return %r : tensor<50xf32>\n}",
        options);
}

// The exceptional bases and exponents of IEEE 754-2019, section 9.2.1.
TEST(KernelMath, PowersOfExceptionalNumbers) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> bases = {-infinity, -2, -0.0, 0.0, 2, infinity},
                      exponents = {0.5, 1.5, -0.5, -1.5, 2, 3, -2, -3, 0};
  size_t count = bases.size() * exponents.size();
  std::string type = "tensor<" + std::to_string(count) + "xf64>";
  auto module = parse("func.func @k(%x: " + type + ", %y: " + type + ") -> " +
                      type + " {\n  %r = math.powf %x, %y : " + type +
                      "\n  return %r : " + type + "\n}");
  ASSERT_TRUE(module);
  func::FuncOp kernel = *module->getOps<func::FuncOp>().begin();
  auto tensor = cast<RankedTensorType>(kernel.getArgumentTypes()[0]);
  Tensor x(tensor), y(tensor);
  for (size_t i = 0; i < count; ++i) {
    x.floats[i] = bases[i / exponents.size()];
    y.floats[i] = exponents[i % exponents.size()];
  }
  std::vector<Tensor> results = runKernel(kernel, {x, y});
  for (size_t i = 0; i < count; ++i) {
    double want = std::pow(x.floats[i], y.floats[i]);
    double have = results[0].floats[i];
    EXPECT_TRUE(std::isnan(want)
                    ? std::isnan(have)
                    : std::abs(have - want) <= 1e-12 * std::abs(want) ||
                          have == want)
        << x.floats[i] << "^" << y.floats[i] << " = " << have << ", expected "
        << want;
  }
}

TEST(KernelMath, QuestionsAboutNumbers) {
  const std::pair<const char *, bool (*)(double)> questions[] = {
      {"math.isinf", [](double x) { return std::isinf(x); }},
      {"math.isnormal", [](double x) { return std::isnormal(float(x)); }},
      {"math.isfinite", [](double x) { return std::isfinite(x); }},
      {"math.isnan", [](double x) { return std::isnan(x); }}};
  for (auto [op, answer] : questions) {
    SCOPED_TRACE(op);
    auto module = parse("func.func @k(%x: tensor<9xf32>) -> tensor<9xi1> {\n"
                        "  %r = " +
                        std::string(op) +
                        " %x : tensor<9xf32>\n"
                        "  return %r : tensor<9xi1>\n}");
    auto kernel = module->lookupSymbol<func::FuncOp>("k");
    Tensor x(cast<RankedTensorType>(kernel.getArgumentTypes()[0]));
    x.floats = {0.0,       -0.0, 1.0,    -3e38,  INFINITY,
                -INFINITY, NAN,  -1e-40, 1.2e-38};
    auto results = runKernel(kernel, {x});
    ASSERT_EQ(results.size(), 1u);
    for (auto [value, found] : llvm::zip_equal(x.floats, results[0].ints))
      EXPECT_EQ(found, answer(value)) << value;
  }
}

TEST(KernelMath, PowersOfIntegers) {
  auto module = parse("func.func @k(%x: tensor<9xi64>, %y: tensor<9xi64>) -> "
                      "tensor<9xi64> {\n"
                      "  %r = math.ipowi %x, %y : tensor<9xi64>\n"
                      "  return %r : tensor<9xi64>\n}");
  auto kernel = module->lookupSymbol<func::FuncOp>("k");
  auto type = cast<RankedTensorType>(kernel.getArgumentTypes()[0]);
  Tensor x(type), y(type);
  x.ints = {3, -2, 2, -1, -1, 1, 0, 7, 3};
  y.ints = {4, 3, -1, -3, -4, -9, 0, 1, 39};
  auto results = runKernel(kernel, {x, y});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].ints, (std::vector<int64_t>{81, -8, 0, -1, 1, 1, 1, 7,
                                                   4052555153018976267}));
}

/// Returns the undefined symbols of a library.
static std::vector<std::string> undefinedSymbols(const std::string &path) {
  std::vector<std::string> names;
  auto binary = llvm::object::ObjectFile::createObjectFile(path);
  EXPECT_TRUE(bool(binary));
  auto *elf = dyn_cast<llvm::object::ELFObjectFileBase>(binary->getBinary());
  for (auto symbol : elf->getDynamicSymbolIterators()) {
    auto flags = symbol.getFlags();
    if (flags && *flags & llvm::object::SymbolRef::SF_Undefined)
      names.push_back(symbol.getName()->str());
  }
  return names;
}

TEST(KernelMath, SinglePrecisionCallsNoLibrary) {
  std::string text;
  int number = 0;
  for (const char *op :
       {"exp",   "log",   "tanh", "erf",       "sin",   "cos",
        "tan",   "rsqrt", "sqrt", "expm1",     "log1p", "log2",
        "log10", "exp2",  "sinh", "cosh",      "atan",  "asin",
        "acos",  "erfc",  "cbrt", "asinh",     "acosh", "atanh",
        "floor", "ceil",  "absf", "roundeven", "trunc"})
    text += "func.func @k" + std::to_string(number++) +
            "(%x: tensor<100xf32>) -> tensor<100xf32> attributes {nn.kernel} "
            "{\n  %r = math." +
            op + " %x : tensor<100xf32>\n  return %r : tensor<100xf32>\n}\n";
  text += R"(
    func.func @pow(%x: tensor<100xf32>, %y: tensor<100xf32>) -> tensor<100xf32> attributes {nn.kernel} {
      %r = math.powf %x, %y : tensor<100xf32>
      return %r : tensor<100xf32>
    }
    func.func @gelu(%x: tensor<100xf32>) -> (tensor<100xf32>, tensor<100xf32>) attributes {nn.kernel} {
      %a = nn.gelu tanh %x : tensor<100xf32>
      %b = nn.gelu erf %x : tensor<100xf32>
      return %a, %b : tensor<100xf32>, tensor<100xf32>
    }
    func.func @adamw(%p: tensor<100xf32>, %s: tensor<f32>, %step: tensor<i64>) -> tensor<100xf32> attributes {nn.kernel} {
      %p1, %m1, %v1 = nn.adamw %p, %p, %p, %p, %s, %s, %step
        beta1 = 0.9 beta2 = 0.999 epsilon = 1.0e-8 weight_decay = 0.01 : tensor<100xf32>, tensor<f32>
      return %p1 : tensor<100xf32>
    })";
  auto module = parse(text);
  ASSERT_TRUE(module);
  std::string path =
      (std::filesystem::temp_directory_path() / "cleave-nolibm.so").string();
  ASSERT_TRUE(succeeded(codegen::compileKernels(*module, path)));
  for (const std::string &name : undefinedSymbols(path))
    EXPECT_TRUE(name == "memset" || name == "memcpy" || name == "memmove")
        << "the library calls " << name;
  std::filesystem::remove(path);
}

// bf16 kernels for processors with and without bf16 instructions: whole and
// masked vectors, gathers, scatters, and rows kept in registers.
TEST(KernelMath, BFloat16CallsNoLibrary) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "names processors of x86-64";
#endif
  auto module = parse(R"(
    func.func @math(%x: tensor<101xbf16>) -> (tensor<101xbf16>, tensor<101xf32>, tensor<101xbf16>) attributes {nn.kernel} {
      %a = math.exp %x : tensor<101xbf16>
      %b = arith.extf %a : tensor<101xbf16> to tensor<101xf32>
      %c = arith.divf %b, %b : tensor<101xf32>
      %d = arith.truncf %c : tensor<101xf32> to tensor<101xbf16>
      return %a, %b, %d : tensor<101xbf16>, tensor<101xf32>, tensor<101xbf16>
    }
    func.func @transpose(%x: tensor<7x19x5xbf16>) -> tensor<5x19x7xbf16> attributes {nn.kernel} {
      %r = nn.transpose %x [2, 1, 0] : tensor<7x19x5xbf16> -> tensor<5x19x7xbf16>
      %s = arith.addf %r, %r : tensor<5x19x7xbf16>
      return %s : tensor<5x19x7xbf16>
    }
    func.func @gather(%t: tensor<3x11xbf16>, %i: tensor<19xi32>) -> tensor<3x19xbf16> attributes {nn.kernel} {
      %r = nn.gather %t, %i dim = 1 : tensor<3x11xbf16>, tensor<19xi32> -> tensor<3x19xbf16>
      return %r : tensor<3x19xbf16>
    }
    func.func @scatter(%i: tensor<4x9xi64>, %u: tensor<4x9x13xbf16>) -> tensor<11x13xbf16> attributes {nn.kernel} {
      %r = nn.scatter_add %i, %u dim = 0 : tensor<4x9xi64>, tensor<4x9x13xbf16> -> tensor<11x13xbf16>
      return %r : tensor<11x13xbf16>
    }
    func.func @sum(%x: tensor<5x101xbf16>) -> (tensor<5xbf16>, tensor<5x101xbf16>) attributes {nn.kernel} {
      %a = math.exp %x : tensor<5x101xbf16>
      %r = nn.reduce sum %a dims = [1] : tensor<5x101xbf16> -> tensor<5xbf16>
      %b = nn.broadcast %r dims = [0] : tensor<5xbf16> -> tensor<5x101xbf16>
      %c = arith.divf %a, %b : tensor<5x101xbf16>
      return %r, %c : tensor<5xbf16>, tensor<5x101xbf16>
    })");
  ASSERT_TRUE(module);
  std::string path =
      (std::filesystem::temp_directory_path() / "cleave-nobf16.so").string();
  const std::pair<const char *, unsigned> processors[] = {
      {"", 0},
      {"x86-64-v3", 256},
      {"znver2", 256},
      {"x86-64-v4", 512},
      {"skylake-avx512", 512},
      {"znver4", 512},
      {"sapphirerapids", 512},
      {"sapphirerapids", 256}};
  for (auto [cpu, bits] : processors) {
    codegen::CodegenOptions options;
    options.cpu = cpu, options.vectorBits = bits;
    ASSERT_TRUE(succeeded(codegen::compileKernels(*module, path, options)));
    for (const std::string &name : undefinedSymbols(path))
      EXPECT_TRUE(name == "memset" || name == "memcpy" || name == "memmove")
          << "the library calls " << name << " on '" << cpu << "'";
  }
  std::filesystem::remove(path);
}

TEST(KernelLibrary, SameBytesTwice) {
  auto module = parse(R"(
    func.func @a(%x: tensor<100xf32>) -> tensor<100xf32> attributes {nn.kernel} {
      %r = math.exp %x : tensor<100xf32>
      return %r : tensor<100xf32>
    }
    func.func @b(%x: tensor<10x10xf32>) -> tensor<10x10xf32> attributes {nn.kernel} {
      %r = nn.softmax %x : tensor<10x10xf32>
      return %r : tensor<10x10xf32>
    })");
  ASSERT_TRUE(module);
  std::string bytes[2];
  for (int i = 0; i < 2; ++i) {
    std::string path = (std::filesystem::temp_directory_path() /
                        ("cleave-twice-" + std::to_string(i) + ".so"))
                           .string();
    codegen::CodegenOptions options;
    options.threads = i + 1;
    ASSERT_TRUE(succeeded(codegen::compileKernels(*module, path, options)));
    auto buffer = llvm::MemoryBuffer::getFile(path);
    ASSERT_TRUE(bool(buffer));
    bytes[i] = (*buffer)->getBuffer().str();
    std::filesystem::remove(path);
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST(KernelLibrary, VectorWidths) {
  // Only 128 and 256 bits; other tests compile kernels for vector widths that
  // the host lacks.
  for (unsigned bits : {128u, 256u}) {
    RunOptions options;
    options.codegen.vectorBits = bits;
    options.f32Bound = 2e-5;
    options.f64Bound = 1e-13;
    checkKernel(R"(
      func.func @k(%x: tensor<3x29xf32>) -> tensor<3x29xf32> {
        %r = nn.softmax %x : tensor<3x29xf32>
        return %r : tensor<3x29xf32>
      })",
                options);
  }
}
