// Passes that turn kernels into code.

#ifndef CLEAVE_CODEGEN_PASSES_TD
#define CLEAVE_CODEGEN_PASSES_TD

include "mlir/Pass/PassBase.td"

def KernelsToGPUPass : Pass<"kernels-to-gpu", "::mlir::ModuleOp"> {
  let summary = "Lower kernel functions to GPU kernels";
  let description = [{
    Adds one `gpu.module` with a kernel for each function marked `nn.kernel`, generated from the
    same plan as the loops of a CPU kernel. The kernel's arguments are the addresses of operands and
    results, and finally the address of the rank's indices along the mesh axes. Grid and block sizes
    are static, and so is workgroup memory. The functions become declarations, to which calls still
    refer; at these calls the runtime launches the kernels.

    With `expand`, mathematical functions and arithmetic on bf16 are expanded into operations
    that every GPU has. With `arch`, the kernels are compiled to PTX, which becomes the
    attribute `nn.ptx` of the `gpu.module`. The body of the `gpu.module` is kept.

    Before:
    ```mlir
    func.func private @neg(%x: tensor<1024xf32>) -> tensor<1024xf32> attributes {nn.kernel} {
      %0 = arith.negf %x : tensor<1024xf32>
      return %0 : tensor<1024xf32>
    }
    ```

    After:
    ```mlir
    func.func private @neg(tensor<1024xf32>) -> tensor<1024xf32> attributes {nn.kernel}
    gpu.module @kernels {
      gpu.func @neg(%x: !llvm.ptr<1> {llvm.align = 16 : i64}, %r: !llvm.ptr<1> {llvm.align = 16 : i64},
                    %axes: !llvm.ptr<1> {llvm.align = 8 : i64}) kernel
          attributes {known_block_size = array<i32: 256, 1, 1>, known_grid_size = array<i32: 1, 1, 1>} {
        %c4 = arith.constant 4 : i64
        %id = gpu.thread_id x
        %t = arith.index_castui %id : index to i64
        %i = arith.muli %t, %c4 : i64
        %from = llvm.getelementptr %x[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
        %v = llvm.load %from {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
        %n = arith.negf %v : vector<4xf32>
        %to = llvm.getelementptr %r[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
        llvm.store %n, %to {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
        gpu.return
      }
    }
    ```
  }];
  let options = [
    Option<"expand", "expand", "bool", "false",
           "Expand mathematical functions and bf16 into arithmetic">,
    Option<"arch", "arch", "std::string", "\"\"",
           "Compile for this processor, such as sm_90">,
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
  ];
}

#endif
