// Decodes operations into instructions.

#include "Program.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::gpusim;

namespace {

using Kind = Instruction::Kind;

int64_t bytesOf(Type type) {
  Type element = getElementTypeOrSelf(type);
  return element.isIntOrFloat()
             ? std::max(1u, element.getIntOrFloatBitWidth() / 8)
             : 8;
}

uint64_t bitsOf(Attribute attr) {
  if (auto number = dyn_cast<FloatAttr>(attr))
    return number.getValue().bitcastToAPInt().getZExtValue();
  return cast<IntegerAttr>(attr).getValue().getZExtValue();
}

class Decoder {
public:
  Decoder(gpu::GPUFuncOp kernel, size_t buffers, Program &program)
      : kernel(kernel), buffers(buffers), program(program) {}

  std::string run() {
    if (!kernel.getKnownBlockSize() || !kernel.getKnownGridSize())
      return "the sizes of grid and block are not known";
    auto product = [](ArrayRef<int32_t> sizes) {
      return int64_t(sizes[0]) * sizes[1] * sizes[2];
    };
    program.block = product(*kernel.getKnownBlockSize());
    program.grid = product(*kernel.getKnownGridSize());
    if (program.block != (*kernel.getKnownBlockSize())[0] ||
        program.grid != (*kernel.getKnownGridSize())[0] || program.block > 1024)
      return "grids and blocks have one dimension, and blocks 1024 threads";
    for (unsigned i = 0; i < kernel.getNumArguments(); ++i)
      program.arguments.push_back(slot(kernel.getArgument(i)).first);
    for (BlockArgument buffer : kernel.getWorkgroupAttributions()) {
      auto type = cast<MemRefType>(buffer.getType());
      int64_t width = bytesOf(type);
      program.workgroupBytes = llvm::alignTo(program.workgroupBytes, width);
      workgroup[buffer] = program.workgroupBytes;
      program.workgroupBytes += type.getNumElements() * width;
    }
    decodeBlock(kernel.getBody().front());
    return error;
  }

private:
  Slot slot(Value value) {
    auto [entry, isNew] = slots.try_emplace(value);
    if (isNew) {
      unsigned lanes = 1;
      if (auto vector = dyn_cast<VectorType>(value.getType()))
        lanes = vector.getNumElements();
      entry->second = {static_cast<unsigned>(program.words), lanes};
      program.words += lanes;
    }
    return entry->second;
  }

  Instruction &append(Kind kind, Operation *op) {
    Instruction &instruction = program.code.emplace_back();
    instruction.kind = kind;
    instruction.op = op;
    return instruction;
  }

  template <typename F> void compute(Operation *op, F run) {
    append(Kind::Compute, op).run = run;
  }

  /// Appends an instruction that assigns the values `from` to the values `to`.
  /// It reads all values before it writes any, because a value may be in both
  /// lists.
  void move(Operation *op, ValueRange to, ValueRange from) {
    SmallVector<std::pair<Slot, Slot>> moves;
    for (auto [target, source] : llvm::zip_equal(to, from))
      moves.push_back({slot(target), slot(source)});
    if (moves.empty())
      return;
    compute(op, [moves](Thread &thread, Memory &) {
      SmallVector<uint64_t, 32> values;
      for (const auto &[target, source] : moves)
        values.append(thread.words.begin() + source.first,
                      thread.words.begin() + source.first + source.lanes);
      auto next = values.begin();
      for (const auto &[target, source] : moves)
        for (unsigned i = 0; i < target.lanes; ++i)
          thread.words[target.first + i] = *next++;
    });
  }

  /// Decodes the operations before the block's terminator.
  void decodeBlock(Block &block) {
    for (Operation &op : block)
      if (error.empty() &&
          (!op.hasTrait<OpTrait::IsTerminator>() || isa<gpu::ReturnOp>(op)))
        decode(&op);
  }

  void decode(Operation *op) {
    llvm::TypeSwitch<Operation *>(op)
        .Case<scf::ForOp, scf::IfOp, scf::WhileOp>(
            [&](auto control) { decodeControl(control); })
        .Case<gpu::BarrierOp>([&](auto) { append(Kind::Barrier, op); })
        .Case<NVVM::SyncWarpOp>([&](auto) { append(Kind::SyncWarp, op); })
        .Case<gpu::ReturnOp>([&](auto) { append(Kind::Return, op); })
        .Case<gpu::ShuffleOp>([&](gpu::ShuffleOp shuffle) {
          Slot result = slot(shuffle.getShuffleResult()),
               value = slot(shuffle.getValue()),
               offset = slot(shuffle.getOffset());
          slot(shuffle.getValid());
          Instruction &instruction = append(Kind::Shuffle, op);
          instruction.result = result;
          instruction.value = value;
          instruction.offset = offset;
          if (shuffle.getMode() != gpu::ShuffleMode::XOR &&
              shuffle.getMode() != gpu::ShuffleMode::IDX)
            fail(op, "shuffles other than xor and idx");
        })
        .Case<NVVM::VoteSyncOp>([&](NVVM::VoteSyncOp vote) {
          Slot result = slot(vote.getRes()), value = slot(vote.getPred());
          Instruction &instruction = append(Kind::Vote, op);
          instruction.result = result;
          instruction.value = value;
          if (vote.getKind() != NVVM::VoteSyncKind::ballot)
            fail(op, "votes other than ballot");
        })
        .Case<gpu::ThreadIdOp, gpu::BlockIdOp>([&](auto id) {
          Slot result = slot(id.getResult());
          bool ofBlock = isa<gpu::BlockIdOp>(op);
          bool first = id.getDimension() == gpu::Dimension::x;
          compute(op, [=](Thread &thread, Memory &) {
            thread.words[result.first] = !first    ? 0
                                         : ofBlock ? thread.block
                                                   : thread.number;
          });
        })
        .Case<arith::ConstantOp>(
            [&](auto constant) { decodeConstant(constant); })
        .Case<ub::PoisonOp>([&](auto) { slot(op->getResult(0)); })
        .Case<LLVM::GEPOp, LLVM::LoadOp, LLVM::StoreOp, LLVM::AddressOfOp,
              memref::LoadOp, memref::StoreOp>(
            [&](auto access) { decodeAccess(access); })
        .Case<vector::BroadcastOp, vector::ExtractOp, vector::InsertOp,
              vector::ShuffleOp, vector::FromElementsOp>(
            [&](auto vector) { decodeVector(vector); })
        .Default([&](auto) { decodeElementwise(op); });
  }

  //===--------------------------------------------------------------------===//
  // Control flow
  //===--------------------------------------------------------------------===//

  void decodeControl(scf::ForOp loop) {
    Slot iv = slot(loop.getInductionVar()), end = slot(loop.getUpperBound()),
         step = slot(loop.getStep());
    move(loop, {loop.getInductionVar()}, {loop.getLowerBound()});
    move(loop, loop.getRegionIterArgs(), loop.getInitArgs());
    size_t head = program.code.size();
    unsigned test = program.words++;
    compute(loop, [=](Thread &thread, Memory &) {
      thread.words[test] = static_cast<int64_t>(thread.words[iv.first]) <
                           static_cast<int64_t>(thread.words[end.first]);
    });
    size_t exit = program.code.size();
    append(Kind::JumpIfNot, loop).value.first = test;
    decodeBlock(*loop.getBody());
    move(loop, loop.getRegionIterArgs(), loop.getYieldedValues());
    compute(loop, [=](Thread &thread, Memory &) {
      thread.words[iv.first] += thread.words[step.first];
    });
    append(Kind::Jump, loop).target = head;
    program.code[exit].target = program.code.size();
    move(loop, loop.getResults(), loop.getRegionIterArgs());
  }

  void decodeControl(scf::IfOp branch) {
    Slot condition = slot(branch.getCondition());
    size_t skip = program.code.size();
    append(Kind::JumpIfNot, branch).value = condition;
    decodeBlock(*branch.thenBlock());
    move(branch, branch.getResults(), branch.thenYield().getOperands());
    if (branch.getElseRegion().empty()) {
      program.code[skip].target = program.code.size();
      return;
    }
    size_t end = program.code.size();
    append(Kind::Jump, branch);
    program.code[skip].target = program.code.size();
    decodeBlock(*branch.elseBlock());
    move(branch, branch.getResults(), branch.elseYield().getOperands());
    program.code[end].target = program.code.size();
  }

  void decodeControl(scf::WhileOp loop) {
    move(loop, loop.getBeforeArguments(), loop.getInits());
    size_t head = program.code.size();
    decodeBlock(*loop.getBeforeBody());
    scf::ConditionOp condition = loop.getConditionOp();
    size_t exit = program.code.size();
    append(Kind::JumpIfNot, loop).value = slot(condition.getCondition());
    move(loop, loop.getAfterArguments(), condition.getArgs());
    decodeBlock(*loop.getAfterBody());
    move(loop, loop.getBeforeArguments(), loop.getYieldOp().getOperands());
    append(Kind::Jump, loop).target = head;
    program.code[exit].target = program.code.size();
    move(loop, loop.getResults(), condition.getArgs());
  }

  //===--------------------------------------------------------------------===//
  // Values
  //===--------------------------------------------------------------------===//

  void decodeConstant(arith::ConstantOp op) {
    SmallVector<uint64_t> words;
    if (auto dense = dyn_cast<DenseElementsAttr>(op.getValue())) {
      for (Attribute value : dense.getValues<Attribute>())
        words.push_back(bitsOf(value));
    } else {
      words.push_back(bitsOf(op.getValue()));
    }
    Slot result = slot(op.getResult());
    compute(op, [=](Thread &thread, Memory &) {
      std::copy(words.begin(), words.end(),
                thread.words.begin() + result.first);
    });
  }

  void decodeElementwise(Operation *op) {
    Function function = elementwise(op);
    if (!function)
      return fail(op, "this operation");
    SmallVector<Slot> operands, results;
    for (Value operand : op->getOperands())
      operands.push_back(slot(operand));
    for (Value result : op->getResults())
      results.push_back(slot(result));
    compute(op, [=](Thread &thread, Memory &) {
      for (unsigned lane = 0; lane < results[0].lanes; ++lane) {
        uint64_t in[3] = {}, out[2] = {};
        for (auto [number, operand] : llvm::enumerate(operands))
          in[number] =
              thread.words[operand.first + std::min(lane, operand.lanes - 1)];
        function(in, out);
        for (auto [number, result] : llvm::enumerate(results))
          thread.words[result.first + lane] = out[number];
      }
    });
  }

  /// Appends an instruction that computes the vector result of `op`: its lane i
  /// is lane `from[i].second` of the value `from[i].first`.
  void gatherLanes(Operation *op, ArrayRef<std::pair<Value, int64_t>> from) {
    Slot result = slot(op->getResult(0));
    SmallVector<unsigned> words;
    for (auto [value, lane] : from)
      words.push_back(slot(value).first + lane);
    compute(op, [=](Thread &thread, Memory &) {
      for (unsigned i = 0; i < result.lanes; ++i)
        thread.words[result.first + i] = thread.words[words[i]];
    });
  }

  void decodeVector(vector::BroadcastOp op) {
    if (isa<VectorType>(op.getSource().getType()))
      return fail(op, "broadcasts of vectors");
    gatherLanes(op, SmallVector<std::pair<Value, int64_t>>(
                        op.getType().getNumElements(), {op.getSource(), 0}));
  }
  void decodeVector(vector::ExtractOp op) {
    if (op.hasDynamicPosition() || op.getStaticPosition().size() != 1)
      return fail(op, "extracts other than of a static lane");
    gatherLanes(op, {{op.getSource(), op.getStaticPosition()[0]}});
  }
  void decodeVector(vector::InsertOp op) {
    if (op.hasDynamicPosition() || op.getStaticPosition().size() != 1)
      return fail(op, "inserts other than of a static lane");
    SmallVector<std::pair<Value, int64_t>> from;
    for (int64_t i = 0; i < op.getType().getNumElements(); ++i)
      from.push_back({op.getDest(), i});
    from[op.getStaticPosition()[0]] = {op.getValueToStore(), 0};
    gatherLanes(op, from);
  }
  void decodeVector(vector::ShuffleOp op) {
    SmallVector<std::pair<Value, int64_t>> from;
    int64_t first = op.getV1VectorType().getNumElements();
    for (int64_t lane : op.getMask())
      from.push_back(lane < first ? std::pair(Value(op.getV1()), lane)
                                  : std::pair(Value(op.getV2()), lane - first));
    gatherLanes(op, from);
  }
  void decodeVector(vector::FromElementsOp op) {
    SmallVector<std::pair<Value, int64_t>> from;
    for (Value element : op.getElements())
      from.push_back({element, 0});
    gatherLanes(op, from);
  }

  //===--------------------------------------------------------------------===//
  // Memory
  //===--------------------------------------------------------------------===//

  void decodeAccess(LLVM::GEPOp op) {
    if (op.getRawConstantIndices().size() != 1)
      return fail(op, "pointers into anything but arrays");
    Slot result = slot(op.getResult()), base = slot(op.getBase());
    uint64_t size = bytesOf(op.getElemType());
    if (op.getDynamicIndices().empty()) {
      uint64_t offset = op.getRawConstantIndices()[0] * size;
      compute(op, [=](Thread &thread, Memory &) {
        thread.words[result.first] = thread.words[base.first] + offset;
      });
      return;
    }
    Value index = op.getDynamicIndices()[0];
    unsigned shift =
        64 - getElementTypeOrSelf(index.getType()).getIntOrFloatBitWidth();
    Slot at = slot(index);
    compute(op, [=](Thread &thread, Memory &) {
      for (unsigned i = 0; i < result.lanes; ++i) {
        int64_t number =
            static_cast<int64_t>(thread.words[at.first + i] << shift) >> shift;
        thread.words[result.first + i] =
            thread.words[base.first + std::min(i, base.lanes - 1)] +
            number * size;
      }
    });
  }

  void decodeAccess(LLVM::AddressOfOp op) {
    auto global = SymbolTable::lookupNearestSymbolFrom<LLVM::GlobalOp>(
        op, op.getGlobalNameAttr());
    auto values =
        global ? dyn_cast_or_null<DenseElementsAttr>(global.getValueAttr())
               : DenseElementsAttr();
    if (!values)
      return fail(op, "globals that are not constant tensors");
    auto [entry, isNew] = tables.try_emplace(global, program.tables.size());
    if (isNew) {
      std::vector<char> &bytes = program.tables.emplace_back();
      int64_t width = bytesOf(values.getElementType());
      for (Attribute value : values.getValues<Attribute>()) {
        uint64_t bits = bitsOf(value);
        bytes.insert(bytes.end(), reinterpret_cast<char *>(&bits),
                     reinterpret_cast<char *>(&bits) + width);
      }
    }
    uint64_t pointer = Memory::pointer(buffers + entry->second);
    Slot result = slot(op.getResult());
    compute(op, [=](Thread &thread, Memory &) {
      thread.words[result.first] = pointer;
    });
  }

  void decodeAccess(LLVM::LoadOp op) {
    Slot result = slot(op.getResult()), from = slot(op.getAddr());
    int64_t size = bytesOf(op.getType());
    int64_t alignment = op.getAlignment().value_or(size);
    compute(op, [=](Thread &thread, Memory &memory) {
      char bytes[256];
      if (!memory.load({thread.block, thread.number}, thread.words[from.first],
                       bytes, size * result.lanes, alignment))
        return;
      for (unsigned i = 0; i < result.lanes; ++i) {
        uint64_t word = 0;
        std::memcpy(&word, bytes + i * size, size);
        thread.words[result.first + i] = word;
      }
    });
  }

  void decodeAccess(LLVM::StoreOp op) {
    Slot value = slot(op.getValue()), to = slot(op.getAddr());
    int64_t size = bytesOf(op.getValue().getType());
    int64_t alignment = op.getAlignment().value_or(size);
    compute(op, [=](Thread &thread, Memory &memory) {
      char bytes[256];
      for (unsigned i = 0; i < value.lanes; ++i)
        std::memcpy(bytes + i * size, &thread.words[value.first + i], size);
      memory.store({thread.block, thread.number}, thread.words[to.first], bytes,
                   size * value.lanes, alignment);
    });
  }

  /// Returns a function that computes the byte offset of an element in
  /// workgroup memory.
  std::function<int64_t(const Thread &)>
  workgroupAt(Operation *op, Value buffer, ValueRange indices) {
    auto found = workgroup.find(buffer);
    if (found == workgroup.end() || indices.size() != 1) {
      fail(op, "memrefs other than lines of workgroup memory");
      return nullptr;
    }
    auto type = cast<MemRefType>(buffer.getType());
    int64_t base = found->second, size = bytesOf(type);
    int64_t count = type.getNumElements();
    Slot index = slot(indices[0]);
    return [=](const Thread &thread) {
      int64_t at = static_cast<int64_t>(thread.words[index.first]);
      // An index outside of this buffer is an error, even if it is inside of
      // the workgroup memory.
      return at < 0 || at >= count ? int64_t(-1) : base + at * size;
    };
  }

  void decodeAccess(memref::LoadOp op) {
    auto at = workgroupAt(op, op.getMemRef(), op.getIndices());
    Slot result = slot(op.getResult());
    int64_t size = bytesOf(op.getResult().getType());
    compute(op, [=](Thread &thread, Memory &memory) {
      uint64_t word = 0;
      memory.loadWorkgroup({thread.block, thread.number}, at(thread), &word,
                           size);
      thread.words[result.first] = word;
    });
  }

  void decodeAccess(memref::StoreOp op) {
    auto at = workgroupAt(op, op.getMemRef(), op.getIndices());
    Slot value = slot(op.getValueToStore());
    int64_t size = bytesOf(op.getValueToStore().getType());
    compute(op, [=](Thread &thread, Memory &memory) {
      memory.storeWorkgroup({thread.block, thread.number}, at(thread),
                            &thread.words[value.first], size);
    });
  }

  void fail(Operation *op, const std::string &what) {
    if (error.empty())
      error = what + " ('" + op->getName().getStringRef().str() +
              "') is not interpreted";
  }

  gpu::GPUFuncOp kernel;
  size_t buffers;
  Program &program;
  std::string error;
  llvm::DenseMap<Value, Slot> slots;
  llvm::DenseMap<Value, int64_t> workgroup;
  llvm::DenseMap<Operation *, size_t> tables;
};

} // namespace

std::string cleave::gpusim::decode(gpu::GPUFuncOp kernel, size_t buffers,
                                   Program &program) {
  return Decoder(kernel, buffers, program).run();
}
