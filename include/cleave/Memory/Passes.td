// Passes of the memory phase.

#ifndef CLEAVE_MEMORY_PASSES_TD
#define CLEAVE_MEMORY_PASSES_TD

include "mlir/Pass/PassBase.td"

def AddScratchPass : Pass<"rt-add-scratch", "::mlir::ModuleOp"> {
  let summary = "Give library calls the scratch memory they ask for";
  let description = [{
    Asks the runtime's library (`cleave/workspace.h`) how many bytes each product, attention
    and convolution needs, and adds them as a last result of i8, whose memory is then
    planned like any other. A call that the library refuses is an error. The library
    is that of `device`; no device need be there.

    Before:
    ```mlir
    func.func @f(%x: tensor<4x4xf64>) -> tensor<4x4xf64> {
      %0 = rt.gemm a(%x [0, 4, 1]) b(%x [0, 4, 1]) c [0, 4, 1] m = 4 n = 4 k = 4 : (tensor<4x4xf64>, tensor<4x4xf64>) -> tensor<4x4xf64>
      return %0 : tensor<4x4xf64>
    }
    ```

    After (the number of bytes is an example):
    ```mlir
    func.func @f(%x: tensor<4x4xf64>) -> tensor<4x4xf64> {
      %0:2 = rt.gemm a(%x [0, 4, 1]) b(%x [0, 4, 1]) c [0, 4, 1] m = 4 n = 4 k = 4 : (tensor<4x4xf64>, tensor<4x4xf64>) -> (tensor<4x4xf64>, tensor<4096xi8>)
      return %0#0 : tensor<4x4xf64>
    }
    ```
  }];
  let options = [
    Option<"threads", "threads", "int64_t", "1",
           "Threads of a rank that a call may use; of a CPU">,
    Option<"device", "device", "::cleave::program::Device", "::cleave::program::Device::Cpu",
           "What runs the calls", [{::llvm::cl::values(
             clEnumValN(::cleave::program::Device::Cpu, "cpu", "The host's library"),
             clEnumValN(::cleave::program::Device::Cuda, "cuda", "NVIDIA's libraries"))}]>,
  ];
  let dependentDialects = ["::cleave::rt::RTDialect"];
}

def PlanMemoryPass : Pass<"rt-plan-memory", "::mlir::ModuleOp"> {
  let summary = "Give every value of the command lists an address";
  let description = [{
    Works on SSA values, after commands have their final order. A value lives
    from its command to its last reader; a collective's operands and results
    from start to wait. Views share their source's memory.

    Everything with a name at the boundary (`nn.name` with `nn.role`) has one
    buffer in arena 0, "state", in all actions. A result with the name and role of an
    argument takes the argument's buffer: it is computed in place where a command
    allows it, written there directly where the old content is dead by then, and
    copied there otherwise. Arguments that no result replaces are never written.

    All other values lie in arena 1, "transient", which the actions share:
    largest first, each in the tightest gap between those alive at the same time,
    at multiples of 64 bytes. A result of a command that allows it
    (`nn.inplace` of kernels, all-reduce) takes the memory of an operand that dies there.

    Where the functions of pipeline stages share the module (`pipe.stage`), each
    stage has arenas of its own, and names are those of the stage. What lives
    between actions (`pipe.slot`) has a place in a slot of its class; arenas from 2
    on are one slot each. How many slots there are is for the schedule to say.

    Arguments get `rt.buffer = [arena, offset]`, operations `rt.buffers`, the
    module `rt.arenas`, the sizes (with stages `rt.stages`, by stage, and the classes); functions `rt.lifetimes` of transient memory.

    Before:
    ```mlir
    func.func private @k(tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    func.func @f(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>})
        -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
      %0 = rt.launch @k(%x, %x) extent = 8 grain = 1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      %1 = rt.launch @k(%x, %0) extent = 8 grain = 1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      return %1 : tensor<8xf32>
    }
    ```

    After (without `rt.lifetimes`):
    ```mlir
    module attributes {rt.arenas = array<i64: 128, 64>} {
      func.func private @k(tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      func.func @f(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>, rt.buffer = #rt.address<0, 0>})
          -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>, rt.buffer = #rt.address<0, 64>}) {
        %0 = rt.launch @k(%x, %x) extent = 8 grain = 1 {rt.buffers = [#rt.address<1, 0>]} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
        %1 = rt.launch @k(%x, %0) extent = 8 grain = 1 {rt.buffers = [#rt.address<0, 64>]} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
        return %1 : tensor<8xf32>
      }
    }
    ```
  }];
  let dependentDialects = ["::cleave::rt::RTDialect"];
}

def AlignKernelsPass : Pass<"rt-align-kernels", "::mlir::ModuleOp"> {
  let summary = "Tell kernels which addresses are less aligned";
  let description = [{
    Kernels of GPUs read and write 16 bytes at once where an address is a multiple of
    16, which they take for granted. Planned buffers begin at multiples of 64, but
    views need not: they lie in other values, and where may depend on the rank. This
    pass sets `nn.align` on kernels that are launched on such addresses, to what holds
    for all launches and all ranks.

    A kernel that other launches call with aligned addresses is copied, so that those
    do not become slower: then there are two, whatever the number of launches.
    Addresses that matter to no wide access (a scalar's) make no copy. Runs after `rt-plan-memory`.

    Before:
    ```mlir
    func.func private @k(tensor<8xf32>) -> tensor<8xf32>
    func.func @f(%x: tensor<20xf32> {nn.name = "x", nn.role = #nn.role<input>, rt.buffer = #rt.address<0, 0>})
        -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>, rt.buffer = #rt.address<0, 128>}) {
      %0 = rt.alias %x offset = 2 {rt.buffers = [#rt.address<0, 8>]} : (tensor<20xf32>) -> tensor<8xf32>
      %1 = rt.launch @k(%0) extent = 8 grain = 1 {rt.buffers = [#rt.address<0, 128>]} : (tensor<8xf32>) -> tensor<8xf32>
      return %1 : tensor<8xf32>
    }
    ```

    After:
    ```mlir
    func.func private @k(tensor<8xf32>) -> tensor<8xf32> attributes {nn.align = array<i64: 8, 16>}
    func.func @f(%x: tensor<20xf32> {nn.name = "x", nn.role = #nn.role<input>, rt.buffer = #rt.address<0, 0>})
        -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>, rt.buffer = #rt.address<0, 128>}) {
      %0 = rt.alias %x offset = 2 {rt.buffers = [#rt.address<0, 8>]} : (tensor<20xf32>) -> tensor<8xf32>
      %1 = rt.launch @k(%0) extent = 8 grain = 1 {rt.buffers = [#rt.address<0, 128>]} : (tensor<8xf32>) -> tensor<8xf32>
      return %1 : tensor<8xf32>
    }
    ```
  }];
  let dependentDialects = ["::cleave::rt::RTDialect"];
}

def CheckFitPass : Pass<"rt-check-fit", "::mlir::ModuleOp"> {
  let summary = "Refuse a program that needs more memory than there is";
  let description = [{
    Compares the planned arenas with `limit`, and, where they are larger, fails with the
    largest categories, what would fit, and the largest tensors that are alive at the peak. The IR does not change. Runs
    after `rt-plan-memory`. Modules of pipeline stages pass: their memory is
    known once the schedule is laid over them.

    Before and After:
    ```mlir
    module attributes {rt.arenas = array<i64: 128, 64>} {
    }
    ```
  }];
  let options = [
    Option<"limit", "limit", "int64_t", "0", "Bytes of memory of a rank; 0: no limit">,
    Option<"batch", "batch", "int64_t", "0", "Samples of a step, for what is said; 0: not known">,
  ];
}

#endif
