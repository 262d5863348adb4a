// Emits the command lists that the host runs on a pipeline rank: for loading
// microbatches, for a step in the order of the schedule, and for the forward
// pass of one microbatch through all stages.

#include "EmitPipeline.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interfaces/StageAttrs.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::target;
using namespace cleave::pipeline;

void PipelineEmitter::emitLoads(int rank) {
  for (int k = 0; k < table.microbatches; ++k) {
    begin(rank, program::loadAction(k));
    for (int stage : table.stagesOfRank[rank])
      if (llvm::is_contained(microbatchesOf(at(rank, stage)), k))
        call(at(rank, stage), "load", k, "load" + std::to_string(k));
    end();
  }
}

void PipelineEmitter::emitInitState(int rank) {
  begin(rank, nn::kInitStateFunc.str());
  for (int stage : table.stagesOfRank[rank])
    call(at(rank, stage), nn::kInitStateFunc, 0, nn::kInitStateFunc.str());
  end();
}

void PipelineEmitter::loadStored(const Instance &own, int microbatch,
                                 const std::string &label) {
  for (const BoundaryBuffer &buffer : own.boundary.buffers) {
    StringRef name = buffer.name;
    if (buffer.slot() != "store" || !name.consume_back(".stored"))
      continue;
    const BoundaryBuffer *slot =
        bufferOf(own, (name + ".slot").str(), nn::Role::Residual);
    if (slot) // null if the stage does not read the input
      copy(address(own, buffer, microbatch), address(own, *slot, microbatch),
           bytesOf(buffer.type), label);
  }
}

void PipelineEmitter::emitTransfer(const Instance &own,
                                   const LoweredAction &entry,
                                   const std::string &label,
                                   std::map<Action, int32_t> &started) {
  const Action &action = entry.action;
  if (entry.phase == Phase::Wait) {
    auto token = started.find(action);
    if (token != started.end() && token->second >= 0)
      push(program::Wait{token->second}, label);
    return;
  }
  bool forward =
      action.kind == ActionKind::SendF || action.kind == ActionKind::RecvF;
  bool sends = isSend(action.kind);
  int other = action.stage + (forward == sends ? 1 : -1);
  const Instance &peer = at(entry.peer, other);
  const Instance &from = sends ? own : peer, &to = sends ? peer : own;
  nn::Role role = forward ? nn::Role::Activation : nn::Role::Cotangent;
  SmallVector<StringRef> makers =
      forward ? SmallVector<StringRef>{kForwardPart}
              : SmallVector<StringRef>{kInputPart, kBackwardPart};
  SmallVector<std::string> names = handedOver(from, to, makers, role);
  if (entry.peer == own.rank) { // one copy, emitted for the receive
    if (!sends)
      for (const std::string &name : names)
        copy(address(from, *bufferOf(from, name, role), action.microbatch),
             address(to, *bufferOf(to, name, role), action.microbatch),
             bytesOf(bufferOf(to, name, role)->type), label);
    return;
  }
  int32_t token =
      transfer(own, from.rank, to.rank, names, role, action.microbatch, label);
  started[action] = token;
  if (entry.phase == Phase::Run && token >= 0)
    push(program::Wait{token}, label);
}

LogicalResult PipelineEmitter::emitStep(int rank) {
  begin(rank, nn::kLossGradFunc.str());
  due.reset();
  std::map<Action, int32_t> started;
  for (const LoweredAction &entry : table.actions[rank]) {
    const Action &action = entry.action;
    const Instance &own = at(rank, action.stage);
    std::string label = print(entry);
    if (table.asynchronous && isCompute(action.kind))
      emitDueUpdate(own);
    switch (action.kind) {
    case ActionKind::F:
      loadStored(own, action.microbatch, label);
      call(own, kForwardPart, action.microbatch, label);
      break;
    case ActionKind::I:
      call(own, kInputPart, action.microbatch, label);
      break;
    case ActionKind::W:
      call(own, kWeightPart, action.microbatch, label);
      break;
    case ActionKind::B:
      for (StringRef part : {kBackwardPart, kInputPart, kWeightPart})
        call(own, part, action.microbatch, label);
      due = action.microbatch;
      break;
    case ActionKind::SendF:
    case ActionKind::RecvF:
    case ActionKind::SendB:
    case ActionKind::RecvB:
      emitTransfer(own, entry, label, started);
      break;
    case ActionKind::Unshard:
      call(own, kUnshardFunc, 0, label);
      break;
    case ActionKind::Reshard:
      break; // the arena is free for another stage
    case ActionKind::ReduceGrad:
      call(own, kReduceGradFunc, 0, label);
      break;
    }
  }
  emitReplicaSums(rank);
  end();
  return success();
}

/// Emits a forward pass of one microbatch through all stages.
LogicalResult PipelineEmitter::emitChain(int rank, StringRef function) {
  begin(rank, function.str());
  for (int stage : table.stagesOfRank[rank]) {
    if (ownerOf(stage) != rank)
      continue;
    const Instance &own = at(rank, stage);
    std::string label = (function + Twine(stage)).str();
    auto handOver = [&](int from, int to) {
      const Instance &a = at(ownerOf(from), from), &b = at(ownerOf(to), to);
      SmallVector<std::string> names =
          handedOver(a, b, function, nn::Role::Activation);
      if (a.rank == b.rank) {
        for (const std::string &name : names)
          if (to == stage)
            copy(address(a, *bufferOf(a, name, nn::Role::Activation), 0),
                 address(b, *bufferOf(b, name, nn::Role::Activation), 0),
                 bytesOf(bufferOf(b, name, nn::Role::Activation)->type), label);
        return;
      }
      int32_t token =
          transfer(own, a.rank, b.rank, names, nn::Role::Activation, 0, label);
      if (token >= 0)
        push(program::Wait{token}, label);
    };
    if (stage > 0)
      handOver(stage - 1, stage);
    call(own, function, 0, label);
    if (stage + 1 < table.stages && ownerOf(stage + 1) != rank)
      handOver(stage, stage + 1);
  }
  end();
  return success();
}
