#include "Harness.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interpreter/Interpreter.h"
#include "cleave/Kernels/Kernels.h"
#include "cleave/runtime.h"

#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <random>

using namespace mlir;
using namespace cleave;

MLIRContext &test::context() {
  static MLIRContext *context = [] {
    DialectRegistry registry;
    registry.insert<arith::ArithDialect, func::FuncDialect, math::MathDialect,
                    nn::NNDialect, dist::DistDialect>();
    registerInterfaceModels(registry);
    auto *result = new MLIRContext(registry);
    result->loadAllAvailableDialects();
    return result;
  }();
  return *context;
}

OwningOpRef<ModuleOp> test::parse(const std::string &text) {
  auto module = parseSourceString<ModuleOp>(text, &context());
  EXPECT_TRUE(module);
  return module;
}

std::string test::widened(std::string text) {
  for (size_t at = 0; (at = text.find("f32", at)) != std::string::npos;)
    text.replace(at, 3, "f64");
  return text;
}

namespace {

/// A buffer of a tensor's type with guard bytes around it.
class Buffer {
public:
  explicit Buffer(RankedTensorType type) : type(type) {
    unsigned bits = type.getElementTypeBitWidth();
    width = std::max(1u, bits / 8);
    bytes.assign(type.getNumElements() * width + 2 * kGuard, 0xA5);
  }
  void *data() { return bytes.data() + kGuard; }
  void write(const Tensor &tensor) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      Type element = type.getElementType();
      if (element.isF32())
        put(i, static_cast<float>(tensor.floats[i]));
      else if (element.isF64())
        put(i, tensor.floats[i]);
      else if (element.isInteger(64))
        put(i, tensor.ints[i]);
      else if (element.isInteger(32))
        put(i, static_cast<int32_t>(tensor.ints[i]));
      else
        put(i, static_cast<uint8_t>(tensor.ints[i]));
    }
  }
  Tensor read() {
    Tensor tensor(type);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      Type element = type.getElementType();
      if (element.isF32())
        tensor.floats[i] = get<float>(i);
      else if (element.isF64())
        tensor.floats[i] = get<double>(i);
      else if (element.isInteger(64))
        tensor.ints[i] = get<int64_t>(i);
      else if (element.isInteger(32))
        tensor.ints[i] = get<int32_t>(i);
      else
        tensor.ints[i] = get<uint8_t>(i);
    }
    return tensor;
  }
  void expectGuards() {
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(bytes[i], 0xA5) << "written before the buffer";
      ASSERT_EQ(bytes[bytes.size() - 1 - i], 0xA5) << "written past the end";
    }
  }

private:
  static constexpr size_t kGuard = 64;
  template <typename T> void put(int64_t i, T value) {
    std::memcpy(bytes.data() + kGuard + i * width, &value, sizeof(T));
  }
  template <typename T> T get(int64_t i) {
    T value;
    std::memcpy(&value, bytes.data() + kGuard + i * width, sizeof(T));
    return value;
  }
  RankedTensorType type;
  size_t width;
  std::vector<uint8_t> bytes;
};

} // namespace

std::vector<Tensor> test::runKernel(func::FuncOp kernel,
                                    const std::vector<Tensor> &arguments,
                                    const RunOptions &options) {
  std::string folder =
      (std::filesystem::temp_directory_path() / "cleave-test-XXXXXX").string();
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  std::string path = folder + "/kernels.so";
  EXPECT_TRUE(succeeded(kernels::annotateKernel(kernel)));
  if (!kernel->hasAttr(kernels::kExtentAttr))
    return {};
  bool compiled = succeeded(codegen::compileKernels(
      kernel->getParentOfType<ModuleOp>(), path, options.codegen));
  EXPECT_TRUE(compiled);
  if (!compiled)
    return {};
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  if (!library)
    return {};
  auto entry = reinterpret_cast<cleave_kernel>(
      dlsym(library, kernel.getName().str().c_str()));
  EXPECT_NE(entry, nullptr);

  std::vector<Buffer> buffers;
  auto inPlace =
      kernel->getAttrOfType<DenseI64ArrayAttr>(kernels::kInPlaceAttr);
  for (const Tensor &argument : arguments) {
    buffers.emplace_back(argument.type);
    buffers.back().write(argument);
  }
  for (Type type : kernel.getResultTypes())
    buffers.emplace_back(cast<RankedTensorType>(type));
  std::vector<void *> addresses;
  for (Buffer &buffer : buffers)
    addresses.push_back(buffer.data());
  std::vector<size_t> holder(kernel.getNumResults());
  for (size_t i = 0; i < holder.size(); ++i)
    holder[i] = arguments.size() + i;
  llvm::DenseSet<int64_t> taken;
  for (int64_t pair = 0; options.inPlace && pair + 1 < inPlace.size();
       pair += 2) {
    int64_t result = inPlace[pair], operand = inPlace[pair + 1];
    if (holder[result] != arguments.size() + result ||
        !taken.insert(operand).second)
      continue;
    holder[result] = operand;
    addresses[arguments.size() + result] = addresses[operand];
  }
  int64_t axisIndex[2] = {1, 2}, axisSize[2] = {2, 3};
  cleave_ctx ctx{axisIndex, axisSize, 2, 5, 6};
  int64_t extent =
      kernel->getAttrOfType<IntegerAttr>(kernels::kExtentAttr).getInt();
  // In pieces, as threads take them, and not in order.
  int64_t cut = extent / 3;
  entry(&ctx, addresses.data(), cut, extent);
  entry(&ctx, addresses.data(), 0, cut);
  std::vector<Tensor> results;
  for (size_t i = 0; i < holder.size(); ++i)
    results.push_back(buffers[holder[i]].read());
  for (Buffer &buffer : buffers)
    buffer.expectGuards();
  dlclose(library);
  std::filesystem::remove_all(folder);
  return results;
}

static std::vector<Tensor> randomArguments(func::FuncOp kernel,
                                           int64_t indexBound) {
  std::mt19937_64 random(17);
  std::normal_distribution<double> normal;
  std::vector<Tensor> arguments;
  for (Type type : kernel.getArgumentTypes()) {
    Tensor tensor(cast<RankedTensorType>(type));
    // Exact in single precision, so that both programs see the same numbers.
    for (double &value : tensor.floats)
      value = static_cast<float>(normal(random));
    bool boolean = tensor.type.getElementType().isInteger(1);
    for (int64_t &value : tensor.ints)
      value = random() % (boolean ? 2 : indexBound);
    arguments.push_back(tensor);
  }
  return arguments;
}

static void compare(const std::vector<Tensor> &found,
                    const std::vector<Tensor> &expected, double bound,
                    double floor) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    for (int64_t j = 0; j < found[i].size(); ++j) {
      if (!found[i].isFloat()) {
        ASSERT_EQ(found[i].ints[j], expected[i].ints[j])
            << "result " << i << ", element " << j;
        continue;
      }
      double a = found[i].floats[j], b = expected[i].floats[j];
      if (a == b || (std::isnan(a) && std::isnan(b)))
        continue;
      ASSERT_LE(std::abs(a - b), bound * std::max(std::abs(b), floor))
          << "result " << i << ", element " << j << ": " << a << ", expected "
          << b;
    }
  }
}

void test::checkKernel(const std::string &text, const RunOptions &options) {
  for (bool wide : {false, true})
    for (bool inPlace : {false, true}) {
      SCOPED_TRACE(wide ? "f64" : "f32");
      SCOPED_TRACE(inPlace ? "in place" : "apart");
      auto module = parse(wide ? widened(text) : text);
      ASSERT_TRUE(module);
      auto kernel = module->lookupSymbol<func::FuncOp>("k");
      auto arguments = randomArguments(kernel, options.indexBound);
      if (options.prepare)
        options.prepare(arguments);
      auto expected = interpret(kernel, arguments);
      ASSERT_TRUE(succeeded(expected));
      RunOptions run = options;
      run.inPlace = inPlace;
      auto found = runKernel(kernel, arguments, run);
      compare(found, *expected, wide ? options.f64Bound : options.f32Bound,
              options.floor);
      if (::testing::Test::HasFatalFailure())
        return;
    }
}
