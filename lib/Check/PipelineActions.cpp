// Interprets the actions in the lists of pipeline ranks, for the reference
// execution of pipelines (PipelineEngine.cpp).
//
// A receive overwrites its slot (memory of one microbatch in flight) with wrong
// values when it starts, and the message is copied as late as possible, at the
// receiver's wait. So a slot that is reused too early causes a wrong result.

#include "PipelineEngine.h"

#include "cleave/Interfaces/StageAttrs.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::check;
using namespace cleave::pipeline;

/// Runs the function `name` of the stage for one microbatch. Does nothing if
/// the stage has no such function.
LogicalResult PipelineEngine::call(StageInstance &instance, StringRef name,
                                   int64_t microbatch) {
  auto found = instance.functions.find(name.str());
  if (found == instance.functions.end())
    return success();
  func::FuncOp func = found->second;
  std::vector<RankTensors> arguments;
  for (const Port &port : argumentsOf(func)) {
    const RankTensors &value = *instance.find(port.key(), microbatch);
    if (value.empty())
      return func.emitError("argument ") << port.describe() << " of microbatch "
                                         << microbatch << " has no value";
    arguments.push_back(value);
  }
  FailureOr<std::vector<RankTensors>> results =
      interpretOn(mesh, func, arguments);
  if (failed(results))
    return failure();
  for (auto [port, value] : llvm::zip_equal(resultsOf(func), *results)) {
    if (port.role == nn::Role::Tap)
      instance.buffers[port.key()].history[microbatch] = value;
    *instance.find(port.key(), microbatch) = std::move(value);
  }
  return success();
}

/// Returns the keys (role and name) of the values that stage `from` sends to
/// stage `to`: the results of the functions `makers` of stage `from` that are
/// also arguments of a function of stage `to`.
std::vector<std::string> PipelineEngine::handedOver(const StageInstance &from,
                                                    const StageInstance &to,
                                                    ArrayRef<StringRef> makers,
                                                    nn::Role role) const {
  std::vector<std::string> keys;
  for (StringRef maker : makers)
    if (auto func = from.functions.find(maker.str());
        func != from.functions.end())
      for (const Port &port : resultsOf(func->second))
        if (port.role == role && to.buffers.count(port.key()))
          keys.push_back(port.key());
  return keys;
}

LogicalResult PipelineEngine::move(const Channel::End &from,
                                   const Channel::End &to) {
  auto name = [](const Channel::End &end) {
    return ("stage " + Twine(end.instance->stage) + ", microbatch " +
            Twine(end.microbatch))
        .str();
  };
  if (from.keys.size() != to.keys.size())
    return module.emitError("a message of ")
           << from.keys.size() << " tensors (" << name(from)
           << ") meets a receive of " << to.keys.size() << " (" << name(to)
           << ")";
  for (auto [given, taken] : llvm::zip_equal(from.keys, to.keys)) {
    const RankTensors &value = *from.instance->find(given, from.microbatch);
    const Port &receiving = to.instance->buffers.at(taken).port;
    if (value.empty())
      return module.emitError("'")
             << given << "' of " << name(from) << " is sent before it is made";
    const Port &sending = from.instance->buffers.at(given).port;
    if (sending.type != receiving.type ||
        shardingOf(sending) != shardingOf(receiving))
      return module.emitError("'")
             << given << "' of " << name(from)
             << " is laid out otherwise than '" << taken << "' of " << name(to)
             << ": " << sending.type << " with " << shardingOf(sending)
             << ", and " << receiving.type << " with " << shardingOf(receiving);
    *to.instance->find(taken, to.microbatch) = value;
  }
  return success();
}

LogicalResult PipelineEngine::compute(const Action &action, int rank) {
  StageInstance &own = at(rank, action.stage);
  if (action.kind == ActionKind::Unshard)
    return call(own, kUnshardFunc, 0);
  if (action.kind == ActionKind::ReduceGrad)
    return call(own, kReduceGradFunc, 0);
  if (action.kind == ActionKind::Reshard) {
    for (auto &[key, buffer] : own.buffers)
      if (buffer.slot == kGatheredSlot)
        for (Tensor &tensor : buffer.values[0])
          poison(tensor);
    return success();
  }
  if (action.kind == ActionKind::F)
    // The forward pass copies each loaded input to the slot (memory of one
    // microbatch in flight) from which the microbatch's actions read it.
    for (auto &[key, buffer] : own.buffers) {
      StringRef name = key;
      if (!name.consume_back(".stored"))
        continue;
      const RankTensors &stored = *own.find(key, action.microbatch);
      *own.find((name + ".slot").str(), action.microbatch) = stored;
    }
  SmallVector<StringRef> parts = {StringRef(spelling(action.kind))};
  if (action.kind == ActionKind::B)
    parts = {kBackwardPart, kInputPart, kWeightPart};
  for (StringRef part : parts)
    if (failed(call(own, part, action.microbatch)))
      return failure();
  return success();
}

/// Starts or completes the send or receive `entry` of the rank's action list.
/// Returns false if the rank must wait for its peer.
FailureOr<bool> PipelineEngine::transfer(const LoweredAction &entry, int rank) {
  const Action &action = entry.action;
  bool sends = isSend(action.kind);
  bool forward =
      action.kind == ActionKind::SendF || action.kind == ActionKind::RecvF;
  StageInstance &own = at(rank, action.stage);
  StageInstance &peer =
      at(entry.peer, action.stage + (forward == sends ? 1 : -1));
  StageInstance &from = sends ? own : peer, &to = sends ? peer : own;
  SmallVector<StringRef> makers = {kForwardPart};
  if (!forward)
    makers = {kInputPart, kBackwardPart};
  std::vector<std::string> keys = handedOver(
      from, to, makers, forward ? nn::Role::Activation : nn::Role::Cotangent);
  if (keys.empty())
    return true;
  if (entry.peer == rank) { // a copy within the rank, when it receives
    if (!sends && failed(move({&from, keys, action.microbatch},
                              {&to, keys, action.microbatch})))
      return failure();
    return true;
  }
  Channel &channel = channels[{from.rank, to.rank}];
  Cursor &cursor = cursors[rank];
  if (entry.phase != Phase::Wait && !cursor.isStarted) {
    auto &ends = sends ? channel.sends : channel.receives;
    cursor.number[action] = ends.size();
    ends.push_back({&own, keys, action.microbatch});
    if (!sends) {
      channel.done.push_back(false);
      for (const std::string &key : keys)
        for (Tensor &tensor : *own.find(key, action.microbatch))
          poison(tensor);
    }
    if (entry.phase == Phase::Start)
      return true;
    cursor.isStarted = true;
  }
  size_t number = cursor.number.at(action);
  if (sends)
    return number < channel.done.size() && channel.done[number];
  if (number >= channel.sends.size())
    return false;
  if (failed(move(channel.sends[number], channel.receives[number])))
    return failure();
  channel.done[number] = true;
  return true;
}

/// Runs the next entry of the rank's action list; returns false if the rank
/// must wait for another one.
FailureOr<bool> PipelineEngine::advance(int rank) {
  Cursor &cursor = cursors[rank];
  if (cursor.next == table.actions[rank].size())
    return false;
  const LoweredAction &entry = table.actions[rank][cursor.next];
  bool isDone = true;
  if (isTransfer(entry.action.kind)) {
    FailureOr<bool> moved = transfer(entry, rank);
    if (failed(moved))
      return failure();
    isDone = *moved;
  } else if (failed(compute(entry.action, rank))) {
    return failure();
  }
  if (isDone) {
    ++cursor.next;
    cursor.isStarted = false;
  }
  return isDone;
}
