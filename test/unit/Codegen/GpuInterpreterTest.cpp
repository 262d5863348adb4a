// Tests that the interpreter of GPU kernels detects errors: each case contains
// one error.

#include "Harness.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::test;

namespace {

/// Runs a kernel of two blocks of 64 threads on 128 numbers, initially 0 to
/// 127. `shared` is a workgroup memory of 64 numbers.
std::string run(const std::string &body, std::vector<float> *data = nullptr,
                ThreadOrder order = ThreadOrder::Ascending) {
  context()
      .loadDialect<gpu::GPUDialect, LLVM::LLVMDialect, NVVM::NVVMDialect,
                   memref::MemRefDialect, scf::SCFDialect,
                   vector::VectorDialect>();
  auto module = parse(R"(
    gpu.module @kernels {
      gpu.func @k(%data: !llvm.ptr<1>) workgroup(%shared: memref<64xf32, #gpu.address_space<workgroup>>) kernel
          attributes {known_block_size = array<i32: 64, 1, 1>, known_grid_size = array<i32: 2, 1, 1>} {
        %thread = gpu.thread_id x
        %block = gpu.block_id x
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %c31 = arith.constant 31 : index
        %c64 = arith.constant 64 : index
        %base = arith.muli %block, %c64 : index
        %number = arith.addi %base, %thread : index
        %at = arith.index_cast %number : index to i64
        %where = llvm.getelementptr %data[%at] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
        %one = arith.constant 1.0 : f32
)" + body + R"(
        gpu.return
      }
    })");
  gpu::GPUFuncOp kernel;
  module->walk([&](gpu::GPUFuncOp found) { kernel = found; });
  std::vector<float> own(128);
  for (int i = 0; i < 128; ++i)
    own[i] = float(i);
  std::vector<float> &buffer = data ? *data : own;
  if (data)
    *data = own;
  return runGpuKernel(kernel, {{buffer.data(), 128 * 4}}, order);
}

bool mentions(const std::string &error, const std::string &words) {
  return error.find(words) != std::string::npos;
}

} // namespace

TEST(GpuInterpreter, SumOfAWarp) {
  std::vector<float> data;
  EXPECT_EQ(run(R"(
    %x = llvm.load %where : !llvm.ptr<1> -> f32
    %width = arith.constant 32 : i32
    %o1 = arith.constant 16 : i32
    %a1, %v1 = gpu.shuffle xor %x, %o1, %width : f32
    %s1 = arith.addf %x, %a1 : f32
    %first = arith.constant 5 : i32
    %s, %v = gpu.shuffle idx %s1, %first, %width : f32
    llvm.store %s, %where : f32, !llvm.ptr<1>
  )",
                &data),
            "");
  EXPECT_EQ(data[0], 5 + 21);
  EXPECT_EQ(data[33], 37 + 53);
  EXPECT_EQ(data[127], 101 + 117);
}

TEST(GpuInterpreter, NeighboursThroughWorkgroupMemory) {
  for (ThreadOrder order : {ThreadOrder::Ascending, ThreadOrder::Descending}) {
    std::vector<float> data;
    EXPECT_EQ(run(R"(
    %x = llvm.load %where : !llvm.ptr<1> -> f32
    memref.store %x, %shared[%thread] : memref<64xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %c63 = arith.constant 63 : index
    %other = arith.subi %c63, %thread : index
    %y = memref.load %shared[%other] : memref<64xf32, #gpu.address_space<workgroup>>
    llvm.store %y, %where : f32, !llvm.ptr<1>
  )",
                  &data, order),
              "");
    EXPECT_EQ(data[0], 63);
    EXPECT_EQ(data[64], 127);
  }
}

TEST(GpuInterpreter, ControlFlow) {
  std::vector<float> data;
  EXPECT_EQ(run(R"(
    %c5 = arith.constant 5 : index
    %sum = scf.for %i = %c0 to %c5 step %c1 iter_args(%s = %one) -> (f32) {
      %even = arith.cmpi ult, %i, %thread : index
      %t = scf.if %even -> (f32) {
        %u = arith.addf %s, %one : f32
        scf.yield %u : f32
      } else {
        scf.yield %s : f32
      }
      scf.yield %t : f32
    }
    %limit = arith.constant 8.0 : f32
    %doubled = scf.while (%d = %sum) : (f32) -> f32 {
      %less = arith.cmpf olt, %d, %limit : f32
      scf.condition(%less) %d : f32
    } do {
    ^bb0(%d: f32):
      %e = arith.addf %d, %d : f32
      scf.yield %e : f32
    }
    llvm.store %doubled, %where : f32, !llvm.ptr<1>
  )",
                &data),
            "");
  EXPECT_EQ(data[0], 8);  // 1, 2, 4, 8
  EXPECT_EQ(data[2], 12); // 3, 6, 12
  EXPECT_EQ(data[9], 12); // 6, 12
}

TEST(GpuInterpreter, OutOfBounds) {
  std::string error = run(R"(
    %next = llvm.getelementptr %where[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, f32
    %x = llvm.load %next : !llvm.ptr<1> -> f32
  )");
  EXPECT_TRUE(mentions(error, "thread 63 of block 1 reads bytes 512 to 515"))
      << error;
  error = run(R"(
    %before = llvm.getelementptr %where[-1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, f32
    llvm.store %one, %before : f32, !llvm.ptr<1>
  )");
  EXPECT_TRUE(mentions(error, "thread 0 of block 0 writes bytes -4 to -1"))
      << error;
  error = run(R"(
    %x = memref.load %shared[%c64] : memref<64xf32, #gpu.address_space<workgroup>>
  )");
  EXPECT_TRUE(mentions(error, "of workgroup memory, which has 256")) << error;
}

TEST(GpuInterpreter, Alignment) {
  std::string error = run(R"(
    %x = llvm.load %data {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
    %y = llvm.load %where {alignment = 8 : i64} : !llvm.ptr<1> -> f32
  )");
  EXPECT_TRUE(mentions(error, "thread 1 of block 0 reads bytes 4 to 7"))
      << error;
  EXPECT_TRUE(mentions(error, "not aligned to 8")) << error;
}

TEST(GpuInterpreter, TwoWritersOfOneByte) {
  std::string error = run("llvm.store %one, %data : f32, !llvm.ptr<1>");
  EXPECT_TRUE(mentions(error, "which thread 0 of block 0 also writes"))
      << error;
}

TEST(GpuInterpreter, BarrierThatNotAllReach) {
  std::string error = run(R"(
    %some = arith.cmpi ne, %thread, %c31 : index
    scf.if %some {
      gpu.barrier
    }
  )");
  EXPECT_TRUE(mentions(error, "waits at a barrier that thread 31")) << error;
}

TEST(GpuInterpreter, Races) {
  // One thread writes the memory, another thread reads it.
  std::string error = run(R"(
    memref.store %one, %shared[%thread] : memref<64xf32, #gpu.address_space<workgroup>>
    %c63 = arith.constant 63 : index
    %other = arith.subi %c63, %thread : index
    gpu.barrier
    %x = memref.load %shared[%other] : memref<64xf32, #gpu.address_space<workgroup>>
    memref.store %x, %shared[%thread] : memref<64xf32, #gpu.address_space<workgroup>>
  )");
  EXPECT_TRUE(mentions(error, "without a barrier between")) << error;
  // Two threads write the memory.
  error = run(R"(
    memref.store %one, %shared[%c0] : memref<64xf32, #gpu.address_space<workgroup>>
  )");
  EXPECT_TRUE(mentions(error, "which another thread writes")) << error;
  // No thread writes the memory.
  error = run(R"(
    %x = memref.load %shared[%thread] : memref<64xf32, #gpu.address_space<workgroup>>
  )");
  EXPECT_TRUE(mentions(error, "which nobody wrote")) << error;
}

TEST(GpuInterpreter, ShuffleWithInactiveLanes) {
  std::string error = run(R"(
    %some = arith.cmpi ne, %thread, %c31 : index
    scf.if %some {
      %width = arith.constant 32 : i32
      %offset = arith.constant 1 : i32
      %x, %v = gpu.shuffle xor %one, %offset, %width : f32
    }
  )");
  EXPECT_TRUE(mentions(error, "for lanes of its warp that do not come"))
      << error;
  error = run(R"(
    %some = arith.cmpi ne, %thread, %c31 : index
    %all = arith.constant -1 : i32
    scf.if %some {
      %x = nvvm.vote.sync ballot %all, %some -> i32
    }
  )");
  EXPECT_TRUE(mentions(error, "for lanes of its warp that do not come"))
      << error;
}

TEST(GpuInterpreter, UnknownOperation) {
  std::string error = run("%x = gpu.subgroup_id : index");
  EXPECT_TRUE(mentions(error, "gpu.subgroup_id")) << error;
}
