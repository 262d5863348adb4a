// Tests the kernel records of CUDA programs: for each argument of a kernel, how
// many bytes the kernel accesses and whether it writes them. The kernels run in
// the interpreter on memory of exactly the recorded sizes, which shows that
// they access no more than the records say.

#include "GpuInterpreter.h"
#include "cleave/Codegen/GPU/GPU.h"
#include "cleave/Compiler/Backend.h"
#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Fusion/Fusion.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Memory/Passes.h"

#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBuffer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

using namespace mlir;
using namespace cleave;

namespace {

class EmitTest : public ::testing::Test {
protected:
  EmitTest() {
    DialectRegistry registry;
    registry.insert<arith::ArithDialect, func::FuncDialect, math::MathDialect,
                    nn::NNDialect, dist::DistDialect, rt::RTDialect>();
    registerInterfaceModels(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    options.device = program::Device::Cuda;
  }

  OwningOpRef<ModuleOp> parse(StringRef text) {
    auto module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module);
    return module;
  }

  LogicalResult align(ModuleOp module) {
    PassManager passes(&context);
    passes.addPass(createAlignKernelsPass());
    return passes.run(module);
  }

  FailureOr<program::Program> emit(ModuleOp module) {
    said.clear();
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      said += diagnostic.str() + "\n";
      return success();
    });
    return target::emitProgram(module, options);
  }

  FailureOr<program::Program> lower(ModuleOp module) {
    BackendOptions backend;
    backend.device = options.device;
    if (failed(lowerToCommands(module, backend)))
      return failure();
    return emit(module);
  }

  MLIRContext context;
  target::ProgramOptions options;
  std::string said;
};

/// A program with planned memory. OFFSET is replaced by the element offset of a
/// view.
std::string planned(int64_t offset) {
  std::string text = R"(
    module attributes {rt.arenas = array<i64: 192, 64>} {
      func.func private @k(%x: tensor<8xf32>) -> tensor<8xf32> attributes {nn.kernel, nn.extent = 8 : i64} {
        %0 = arith.negf %x : tensor<8xf32>
        return %0 : tensor<8xf32>
      }
      func.func @f(%x: tensor<20xf32> {nn.name = "x", nn.role = #nn.role<input>, rt.buffer = #rt.address<0, 0>})
          -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>, rt.buffer = #rt.address<0, 128>})
          attributes {rt.lifetimes = []} {
        %0 = rt.alias %x offset = OFFSET {rt.buffers = [#rt.address<0, BYTES>]} : (tensor<20xf32>) -> tensor<8xf32>
        %1 = rt.launch @k(%0) extent = 8 grain = 1 {rt.beyond = array<i64: 2>, rt.buffers = [#rt.address<0, 128>]}
          : (tensor<8xf32>) -> tensor<8xf32>
        return %1 : tensor<8xf32>
      }
    })";
  for (auto [from, to] : {std::pair<std::string, int64_t>("OFFSET", offset),
                          std::pair<std::string, int64_t>("BYTES", 4 * offset)})
    text.replace(text.find(from), from.size(), std::to_string(to));
  return text;
}

TEST_F(EmitTest, KernelsSayHowTheyAreLaunched) {
  auto module = parse(planned(4));
  auto program = emit(*module);
  ASSERT_TRUE(succeeded(program)) << said;
  EXPECT_EQ(program->device, program::Device::Cuda);
  ASSERT_EQ(program->kernels.size(), 1u);
  const program::Kernel &kernel = program->kernels[0];
  EXPECT_EQ(kernel.symbol, "k");
  EXPECT_EQ(kernel.numArgs, 2);
  ASSERT_EQ(kernel.args.size(), 2u);
  EXPECT_EQ(kernel.args[0].bytes, 40); // including reads past the end
  EXPECT_FALSE(kernel.args[0].written);
  EXPECT_EQ(kernel.args[1].bytes, 32);
  EXPECT_TRUE(kernel.args[1].written);
  EXPECT_EQ(kernel.grid, 1);
  EXPECT_EQ(kernel.block, 256);
  auto &launch = std::get<program::Launch>(program->actions[0].commands[0].op);
  EXPECT_EQ(launch.extent, 8);
  EXPECT_EQ(launch.args.size(), 2u);
}

TEST_F(EmitTest, KernelsOfTheHostAreLaunchedByExtent) {
  options.device = program::Device::Cpu;
  auto module = parse(planned(3));
  auto program = emit(*module);
  ASSERT_TRUE(succeeded(program)) << said;
  EXPECT_EQ(program->kernels[0].args.size(), 2u);
  EXPECT_EQ(program->kernels[0].grid, 0);
}

TEST_F(EmitTest, WhatKernelsTakeForGrantedIsVerified) {
  auto module = parse(planned(2));
  EXPECT_TRUE(failed(emit(*module)));
  EXPECT_NE(said.find("internal error: kernel @k takes argument 0 for a "
                      "multiple of 16, but in 'f' it is one of 8"),
            std::string::npos)
      << said;
  ASSERT_TRUE(succeeded(align(*module)));
  EXPECT_TRUE(succeeded(emit(*module))) << said;
}

//===----------------------------------------------------------------------===//
// Kernels run in memory of the recorded sizes
//===----------------------------------------------------------------------===//

/// Returns `bytes` bytes for an argument of a kernel: floats are 1.5, and
/// integers are 0, which is a valid index.
std::vector<char> filled(Type type, int64_t bytes) {
  std::vector<char> memory(bytes);
  Type element = cast<RankedTensorType>(type).getElementType();
  if (!isa<FloatType>(element))
    return memory;
  int64_t width = element.getIntOrFloatBitWidth() / 8;
  APInt one = APFloat(cast<FloatType>(element).getFloatSemantics(), "1.5")
                  .bitcastToAPInt();
  uint64_t bits = one.getZExtValue();
  for (int64_t at = 0; at + width <= bytes; at += width)
    std::memcpy(memory.data() + at, &bits, width);
  return memory;
}

/// Returns whether a kernel depends on the rank.
bool isOfRanks(func::FuncOp kernel) {
  return kernel
      ->walk([](Operation *op) {
        return isa<dist::DistDialect>(op->getDialect())
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Runs those kernels of a program whose arguments are small enough for the
/// interpreter. Kernels that depend on the rank run for all ranks. Returns
/// error messages; `count` is set to the number of kernels that were run.
std::string runWithinBytes(ModuleOp module, const program::Program &program,
                           int &count) {
  auto emitted = codegen::emitGpuKernels(module);
  EXPECT_TRUE(succeeded(emitted));
  EXPECT_TRUE(succeeded(codegen::expandGpuMath(**emitted)));
  llvm::StringMap<gpu::GPUFuncOp> functions;
  (*emitted)->walk(
      [&](gpu::GPUFuncOp func) { functions[func.getName()] = func; });
  std::string wrong;
  count = 0;
  for (const program::Kernel &kernel : program.kernels) {
    auto func = module.lookupSymbol<func::FuncOp>(kernel.symbol);
    int64_t most = 0;
    for (const program::KernelArg &arg : kernel.args)
      most = std::max(most, arg.bytes);
    if (most > 400000)
      continue;
    ++count;
    int64_t ranks = isOfRanks(func) ? program.numRanks() : 1;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      std::string where =
          kernel.symbol + " on rank " + std::to_string(rank) + ": ";
      std::vector<int64_t> axes(program.mesh.size());
      int64_t rest = rank;
      for (size_t axis = axes.size(); axis-- > 0;) {
        axes[axis] = rest % program.mesh[axis].size;
        rest /= program.mesh[axis].size;
      }
      SmallVector<Type> types(func.getArgumentTypes());
      llvm::append_range(types, func.getResultTypes());
      std::vector<std::vector<char>> memory;
      std::vector<GpuBuffer> buffers;
      for (auto [type, arg] : llvm::zip(types, kernel.args))
        memory.push_back(filled(type, arg.bytes));
      auto before = memory;
      for (std::vector<char> &buffer : memory)
        buffers.push_back({buffer.data(), int64_t(buffer.size())});
      buffers.push_back({axes.data(), int64_t(axes.size() * sizeof(int64_t))});
      if (std::string error = runGpuKernel(functions[kernel.symbol], buffers);
          !error.empty())
        wrong += where + error + "\n";
      for (auto [index, arg] : llvm::enumerate(kernel.args))
        if (!arg.written && memory[index] != before[index])
          wrong +=
              where + "argument " + std::to_string(index) + " is written\n";
    }
  }
  return wrong;
}

// Three ranks take two rows each of a four-row array. The array has room for
// the rows of the last rank, which are padding.
TEST_F(EmitTest, KernelsReadWithinWhatTheySay) {
  auto module = parse(R"(
    dist.mesh @m <["x"=3]>
    func.func @f(%x: tensor<4x6xf32> {nn.name = "x", nn.role = #nn.role<parameter>},
                 %y: tensor<2x6xf32> {nn.name = "y", nn.role = #nn.role<input>})
        -> (tensor<2x6xf32> {nn.name = "z", nn.role = #nn.role<output>}) {
      %0 = dist.slice %x dim 0 over @m {"x"} : tensor<4x6xf32> -> tensor<2x6xf32>
      %1 = arith.addf %0, %y : tensor<2x6xf32>
      return %1 : tensor<2x6xf32>
    })");
  ASSERT_TRUE(module);
  auto program = lower(*module);
  ASSERT_TRUE(succeeded(program)) << said;
  ASSERT_EQ(program->kernels.size(), 1u);
  EXPECT_EQ(program->kernels[0].args[0].bytes, 3 * 2 * 6 * 4);
  int count = 0;
  EXPECT_EQ(runWithinBytes(*module, *program, count), "");
  EXPECT_EQ(count, 1);
  // The record of a kernel states for each argument how many bytes the kernel
  // accesses and whether it writes them. The check detects a kernel that
  // accesses more than its record states.
  program::Kernel &kernel = program->kernels[0];
  kernel.args[2].written = false;
  EXPECT_NE(
      runWithinBytes(*module, *program, count).find("argument 2 is written"),
      std::string::npos);
  kernel.args[2].written = true;
  kernel.args[0].bytes = 4 * 6 * 4;
  EXPECT_EQ(runWithinBytes(*module, *program, count), "");
  kernel.args[0].bytes -= 4;
  EXPECT_NE(runWithinBytes(*module, *program, count).find("on rank 1"),
            std::string::npos);
}

// Programs from test_cuda_artifacts.py, for one rank, before kernel fusion.
TEST_F(EmitTest, OfAFile) {
  const char *path = std::getenv("CLEAVE_TEST_PROGRAM");
  if (!path)
    GTEST_SKIP() << "CLEAVE_TEST_PROGRAM names no file";
  auto file = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(bool(file)) << path;
  auto module = parse((*file)->getBuffer());
  ASSERT_TRUE(module);
  auto program = lower(*module);
  ASSERT_TRUE(succeeded(program)) << said;
  int count = 0;
  EXPECT_EQ(runWithinBytes(*module, *program, count), "");
  EXPECT_GT(count, 10);
}

} // namespace
