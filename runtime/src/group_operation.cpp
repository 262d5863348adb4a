// The collectives of ranks in one process, for every kind of memory.
#include "group_operation.h"

#include "error.h"

#include <algorithm>

using namespace cleave;
using program::CollectiveKind;

GroupOperation::GroupOperation(const CollectiveCall &call, Group &group,
                               Counters &counters)
    : call(call), group(group), counters(counters),
      elementSize(program::sizeOf(call.dtype)),
      size(static_cast<int>(group.members.size())),
      sources(group.members.size()) {}

void GroupOperation::move() {
  auto each = [&](void (GroupOperation::*body)(size_t)) {
    for (size_t part = 0; part < call.parts.size(); ++part)
      (this->*body)(part);
  };
  switch (call.kind) {
  case CollectiveKind::AllReduce:
    return allReduce();
  case CollectiveKind::AllGather:
    return each(&GroupOperation::allGather);
  case CollectiveKind::ReduceScatter:
    return each(&GroupOperation::reduceScatter);
  case CollectiveKind::AllToAll:
    return each(&GroupOperation::allToAll);
  case CollectiveKind::AllToAllV:
    return allToAllV();
  case CollectiveKind::Permute:
  case CollectiveKind::Broadcast:
    return each(&GroupOperation::receiveWhole);
  case CollectiveKind::Exchange:
    return exchange();
  case CollectiveKind::SendRecv:
    return; // sent through a channel
  }
}

// Counts bytes that this rank reads from the memory of member `owner`.
void GroupOperation::book(int owner, int64_t bytes) {
  if (owner == call.self)
    return;
  received += bytes;
  mine().received.fetch_add(bytes, std::memory_order_relaxed);
  counters.at(group.members[owner], call.purpose)
      .sent.fetch_add(bytes, std::memory_order_relaxed);
}

// An all-reduce is a reduce-scatter followed by an all-gather. In the
// reduce-scatter only member p reads chunk p of the sources. So a member may
// overwrite its own chunk in place.
void GroupOperation::allReduce() {
  forChunk(call, call.self, [&](size_t part, int64_t begin, int64_t end) {
    for (int p = 0; p < size; ++p) {
      sources[p] = partOf(p, part).src + begin * elementSize;
      book(p, (end - begin) * elementSize);
    }
    reduce({call.parts[part].dst + begin * elementSize, sources, 1, end - begin,
            0, 0});
  });
  betweenRounds();
  for (int step = 1; step < size; ++step) {
    int p = (call.self + step) % size;
    forChunk(call, p, [&](size_t part, int64_t begin, int64_t end) {
      int64_t bytes = (end - begin) * elementSize;
      book(p, bytes);
      copyRows(call.parts[part].dst + begin * elementSize, bytes,
               partOf(p, part).dst + begin * elementSize, bytes, 1, bytes);
    });
  }
}

void GroupOperation::allGather(size_t index) {
  const Part &part = call.parts[index];
  int64_t row = part.inner * elementSize;
  for (int step = 0; step < size; ++step) {
    int p = (call.self + step) % size;
    book(p, part.outer * row);
    copyRows(part.dst + p * row, size * row, partOf(p, index).src, row,
             part.outer, row);
  }
}

void GroupOperation::reduceScatter(size_t index) {
  const Part &part = call.parts[index];
  int64_t row = part.inner * elementSize;
  for (int p = 0; p < size; ++p) {
    sources[p] = partOf(p, index).src + call.self * row;
    book(p, part.outer * row);
  }
  reduce({part.dst, sources, part.outer, part.inner, row, size * row});
}

void GroupOperation::allToAll(size_t index) {
  const Part &part = call.parts[index];
  for (int step = 0; step < size; ++step) {
    int p = (call.self + step) % size;
    book(p, part.count * elementSize);
    // The block from member p is a sequence of elements. The sender stores it
    // in rows of `inner` elements, this rank in rows of `dstInner` elements.
    retile({part.dst + p * part.dstInner * elementSize, part.dstInner,
            size * part.dstInner},
           {partOf(p, index).src + call.self * part.inner * elementSize,
            part.inner, size * part.inner},
           part.count);
  }
}

void GroupOperation::allToAllV() {
  for (int step = 0; step < size; ++step) {
    int p = (call.self + step) % size;
    int64_t rows = rowsOfMember(p);
    for (size_t index = 0; index < call.parts.size(); ++index) {
      const Part &part = call.parts[index];
      int64_t bytes = rows * part.inner * elementSize;
      book(p, bytes);
      copyRows(part.dst + p * part.count * elementSize, bytes,
               partOf(p, index).src + call.self * part.count * elementSize,
               bytes, 1, bytes);
    }
  }
}

// Receives the data of a Permute or Broadcast: the whole buffer of one member,
// or zeros if this member has no sender.
void GroupOperation::receiveWhole(size_t index) {
  const Part &part = call.parts[index];
  int from = call.kind == CollectiveKind::Permute ? call.sources[call.self]
                                                  : call.root;
  int64_t bytes = part.count * elementSize;
  if (bytes == 0)
    return; // an empty buffer may have no memory
  if (from < 0)
    return zero(part.dst, bytes);
  book(from, bytes);
  copyRows(part.dst, bytes, partOf(from, index).src, bytes, 1, bytes);
}

void GroupOperation::exchange() {
  int rounds = 1;
  for (size_t index = 0; index < call.parts.size(); ++index) {
    rounds = std::max(rounds, call.parts[index].rounds);
    exchangeRound(index, 0);
  }
  if (rounds == 1)
    return;
  betweenRounds();
  for (size_t index = 0; index < call.parts.size(); ++index)
    exchangeRound(index, 1);
}

// Assembles this member's target tile of an exchange from boxes. In the first
// round the boxes are read from source tiles of members, in the second round
// from their target tiles, which were partly assembled in the first round.
void GroupOperation::exchangeRound(size_t index, int round) {
  const Part &part = call.parts[index];
  std::vector<const char *> from;
  for (const program::ExchangePiece &piece : part.pieces) {
    if (piece.receiver != call.self || piece.round != round)
      continue;
    from.clear();
    for (int32_t sender : piece.senders) {
      const Part &theirs = partOf(sender, index);
      from.push_back(round ? theirs.dst : theirs.src);
      book(sender, piece.count() * elementSize);
    }
    box(piece, part, from, round ? part.dstStrides : part.srcStrides);
  }
}
