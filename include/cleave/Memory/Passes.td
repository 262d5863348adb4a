// Passes of the memory phase.

#ifndef CLEAVE_MEMORY_PASSES_TD
#define CLEAVE_MEMORY_PASSES_TD

include "mlir/Pass/PassBase.td"

def AddScratchPass : Pass<"rt-add-scratch", "::mlir::ModuleOp"> {
  let summary = "Give library calls the scratch memory that they need";
  let description = [{
    Asks the runtime's library (`cleave/workspace.h`) how many bytes of scratch memory each product,
    attention and convolution needs. The pass adds this memory to the call as a last result of i8,
    which is planned like any other value. A call that the library refuses is an error. The option
    `device` selects the CPU or the CUDA library; a CUDA device need not be present.

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
           "CPU: threads of a rank that a call may use">,
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
    The pass works on SSA values and runs when the commands have their final order. A value is live
    from its command to its last reader; a collective's operands and results are live from its start
    to its wait. Views share their source's memory.

    Arguments and results have `nn.name` and `nn.role`. Each pair of name and
    role has one buffer in arena 0, "state", for all functions of the module. A
    result with the name and role of an argument takes the argument's buffer: it
    is computed in place if the command allows this, written to the buffer
    directly if the old content is already dead, and copied to the buffer
    otherwise. If no result has the name and role of an argument, the buffer of
    the argument is never written.

    All other values are in arena 1, "transient", which all functions share.
    They are placed largest first, each in the tightest gap between the values
    that are live at the same time, at multiples of 64 bytes. If the command
    allows it (`nn.inplace` of kernels, all-reduce), a result reuses the memory
    of an operand that no later command reads.

    If the functions of pipeline stages share the module (`pipe.stage`), each
    stage has its own arenas and names. Some values of a microbatch are stored
    from one action of a stage to a later one, for example from the forward to
    the backward pass. The attribute `pipe.slot` of such a value gives the
    interval for which it is stored. All values with the same interval share an
    arena, and these arenas are numbered from 2 on. Such an arena consists of
    equal slots, one for each microbatch in flight. This pass plans the offsets
    of values within one slot. The pipeline schedule decides how many slots the
    arena has.

    Arguments get `rt.buffer = #rt.address<arena, offset>`, operations get
    `rt.buffers`. The module gets the arena sizes in `rt.arenas`. A module of
    stages gets `rt.stages` instead, which has for each stage the arena sizes
    and, for each arena that consists of slots, the interval for which its
    values are stored. Functions get `rt.lifetimes`, the lifetimes of their
    transient memory.

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
  let summary = "Mark kernels that are launched on addresses with a smaller alignment";
  let description = [{
    GPU kernels read and write 16 bytes at once, and assume that all addresses are multiples of 16.
    Planned buffers begin at multiples of 64, but views may not: a view begins inside another value,
    at an offset that may depend on the rank. This pass sets `nn.align` on kernels that are launched
    on such addresses, to the alignment that holds for all launches and all ranks.

    If other launches call the kernel with aligned addresses, the kernel is copied, so that launches
    with aligned addresses do not become slower. So a kernel becomes at most two kernels, for any
    number of launches. An address that no wide access uses (such as that of a scalar) causes no
    copy. Runs after `rt-plan-memory`.

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
  let summary = "Refuse a program that needs more memory than a rank has";
  let description = [{
    Compares the sizes of the planned arenas with `limit`. If the arenas are larger, the pass fails
    with a message that lists the largest categories of memory, the batch size or strategies with
    which the program would fit, and the largest tensors that are live at the peak. The IR does not
    change. Runs after `rt-plan-memory`. The pass does not check modules of pipeline stages, because
    their memory is only known together with the schedule.

    Before and After:
    ```mlir
    module attributes {rt.arenas = array<i64: 128, 64>} {
    }
    ```
  }];
  let options = [
    Option<"limit", "limit", "int64_t", "0", "Bytes of memory of a rank; 0: no limit">,
    Option<"batch", "batch", "int64_t", "0", "Samples of a step, for the message; 0: not known">,
  ];
}

#endif
