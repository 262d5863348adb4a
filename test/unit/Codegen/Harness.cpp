#include "Harness.h"

#include "cleave/Codegen/GPU/GPU.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Fusion/Fusion.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interpreter/Interpreter.h"
#include "cleave/runtime.h"

#include "mlir/IR/Verifier.h"
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
                    nn::NNDialect, dist::DistDialect, rt::RTDialect>();
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

uint16_t bitsOfBFloat16(double x) {
  APFloat value(x);
  bool losesInfo;
  value.convert(APFloat::BFloat(), APFloat::rmNearestTiesToEven, &losesInfo);
  return value.bitcastToAPInt().getZExtValue();
}

/// A buffer of a tensor's type with guard bytes around it.
class Buffer {
public:
  explicit Buffer(RankedTensorType type) : type(type) {
    unsigned bits = type.getElementTypeBitWidth();
    width = std::max(1u, bits / 8);
    bytes.assign(type.getNumElements() * width + 2 * kGuard, 0xA5);
  }
  void *data() { return bytes.data() + kGuard; }
  int64_t size() const { return bytes.size() - 2 * kGuard; }
  void write(const Tensor &tensor) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      Type element = type.getElementType();
      if (element.isF32())
        put(i, static_cast<float>(tensor.floats[i]));
      else if (element.isF64())
        put(i, tensor.floats[i]);
      else if (element.isBF16())
        put(i, bitsOfBFloat16(tensor.floats[i]));
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
      else if (element.isBF16())
        tensor.floats[i] =
            APFloat(APFloat::BFloat(), APInt(16, get<uint16_t>(i)))
                .convertToDouble();
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

/// The buffers of one call: arguments, then results; some results may reuse an
/// argument's memory.
class Call {
public:
  Call(func::FuncOp kernel, const std::vector<Tensor> &arguments,
       bool allowInPlace) {
    for (const Tensor &argument : arguments) {
      buffers.emplace_back(argument.type);
      buffers.back().write(argument);
    }
    for (Type type : kernel.getResultTypes())
      buffers.emplace_back(cast<RankedTensorType>(type));
    for (size_t i = 0; i < buffers.size(); ++i)
      holder.push_back(i);
    auto inPlace =
        kernel->getAttrOfType<DenseI64ArrayAttr>(kernels::kInPlaceAttr);
    first = arguments.size();
    llvm::DenseSet<int64_t> taken;
    for (int64_t pair = 0; allowInPlace && pair + 1 < inPlace.size();
         pair += 2) {
      size_t result = first + inPlace[pair];
      int64_t operand = inPlace[pair + 1];
      if (holder[result] == result && taken.insert(operand).second)
        holder[result] = operand;
    }
  }
  std::vector<void *> addresses() {
    std::vector<void *> result;
    for (size_t which : holder)
      result.push_back(buffers[which].data());
    return result;
  }
  std::vector<GpuBuffer> gpuBuffers() {
    std::vector<GpuBuffer> result;
    for (size_t which : holder)
      result.push_back({buffers[which].data(), buffers[which].size()});
    return result;
  }
  std::vector<Tensor> results() {
    std::vector<Tensor> tensors;
    for (size_t i = first; i < holder.size(); ++i)
      tensors.push_back(buffers[holder[i]].read());
    for (Buffer &buffer : buffers)
      buffer.expectGuards();
    return tensors;
  }

private:
  std::vector<Buffer> buffers;
  std::vector<size_t> holder;
  size_t first = 0;
};

} // namespace

static int64_t axisIndex[2] = {1, 2}, axisSize[2] = {2, 3};

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

  Call call(kernel, arguments, options.inPlace);
  std::vector<void *> addresses = call.addresses();
  int64_t indexFault[2] = {0, 0};
  cleave_ctx ctx{axisIndex, axisSize, 2, 5, 6, indexFault};
  int64_t extent =
      kernel->getAttrOfType<IntegerAttr>(kernels::kExtentAttr).getInt();
  // Calls the kernel on two parts of its extent, out of order, as several
  // threads would.
  int64_t cut = extent / 3;
  entry(&ctx, addresses.data(), cut, extent);
  entry(&ctx, addresses.data(), 0, cut);
  std::vector<Tensor> results = call.results();
  dlclose(library);
  std::filesystem::remove_all(folder);
  return results;
}

std::vector<Tensor> test::runKernelOnGpu(func::FuncOp kernel,
                                         const std::vector<Tensor> &arguments,
                                         bool inPlace, ThreadOrder order) {
  EXPECT_TRUE(succeeded(kernels::annotateKernel(kernel)));
  auto emitted = codegen::emitGpuKernels(kernel->getParentOfType<ModuleOp>());
  EXPECT_TRUE(succeeded(emitted));
  if (failed(emitted) || failed(verify(**emitted)))
    return {};
  EXPECT_TRUE(succeeded(codegen::expandGpuMath(**emitted)));
  gpu::GPUFuncOp function;
  (*emitted)->walk([&](gpu::GPUFuncOp found) { function = found; });
  Call call(kernel, arguments, inPlace);
  std::vector<GpuBuffer> buffers = call.gpuBuffers();
  buffers.push_back({axisIndex, sizeof axisIndex});
  std::string error = runGpuKernel(function, buffers, order);
  EXPECT_EQ(error, "");
  if (!error.empty())
    return {};
  return call.results();
}

static bool sameBits(const std::vector<Tensor> &a,
                     const std::vector<Tensor> &b) {
  if (a.size() != b.size())
    return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].ints != b[i].ints || a[i].floats.size() != b[i].floats.size() ||
        (!a[i].floats.empty() && // there is nothing to compare with null
         std::memcmp(a[i].floats.data(), b[i].floats.data(),
                     a[i].floats.size() * sizeof(double)) != 0))
      return false;
  return true;
}

static std::vector<Tensor> randomArguments(func::FuncOp kernel,
                                           int64_t indexBound) {
  std::mt19937_64 random(17);
  std::normal_distribution<double> normal;
  std::vector<Tensor> arguments;
  for (Type type : kernel.getArgumentTypes()) {
    Tensor tensor(cast<RankedTensorType>(type));
    // Values are exact in single precision, so that the f32 and the f64 program
    // get the same values.
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
  for (bool wide : {false, true}) {
    if (wide && options.onlyF32)
      break;
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
      double bound = wide ? options.f64Bound : options.f32Bound;
      if (!options.onlyGpu) {
        auto found = runKernel(kernel, arguments, run);
        compare(found, *expected, bound, options.floor);
        if (::testing::Test::HasFatalFailure())
          return;
      }

      SCOPED_TRACE("on a GPU");
      auto up = runKernelOnGpu(kernel, arguments, inPlace);
      compare(up, *expected, bound, options.floor);
      // The order in which the threads run must not change the result.
      auto down =
          runKernelOnGpu(kernel, arguments, inPlace, ThreadOrder::Descending);
      ASSERT_TRUE(sameBits(up, down));
      if (::testing::Test::HasFatalFailure())
        return;
    }
  }
}

test::RunOptions test::gpuOptions() {
  RunOptions options;
  options.onlyGpu = true;
  options.indexBound = 12; // some indices are outside
  options.f32Bound = 4e-5;
  options.f64Bound = 1e-12;
  options.floor = 10;
  return options;
}

std::string test::tensor(const std::vector<int64_t> &shape,
                         const char *element) {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + element + ">";
}

std::string test::fill(std::string text, const std::vector<std::string> &with) {
  for (size_t i = with.size(); i-- > 0;) {
    std::string mark = "$" + std::to_string(i);
    for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos;)
      text.replace(at, mark.size(), with[i]);
  }
  return text;
}
