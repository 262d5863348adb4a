// Transfers between ranks.
#ifndef CLEAVE_PROGRAM_COLLECTIVES_H
#define CLEAVE_PROGRAM_COLLECTIVES_H

#include "cleave/program/values.h"

#include <cstdint>
#include <vector>

namespace cleave::program {

enum class CollectiveKind : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Permute,
  Broadcast,
  Exchange,
  SendRecv,
  AllToAllV,
};
inline constexpr CollectiveKind lastCollectiveKind = CollectiveKind::AllToAllV;

// One buffer of a collective; N is the group's size. Elements of src and dst:
//   AllReduce, Permute, Broadcast: [count]; but for Permute dst may be src
//   AllGather:     src [outer, inner] -> dst [outer, N, inner]
//   ReduceScatter: src [outer, N, inner] -> dst [outer, inner]
//   AllToAll:      src [outer, N, inner] -> dst [dstOuter, N, dstInner], block
//                  p of src goes to member p, block p of dst comes from it
//   AllToAllV:     src, dst [N, outer, inner]: the first Collective::sent[p]
//   rows of block p of src go to member p, what comes from it is the first
//   Collective::received[p] rows of block p of dst
//   Exchange:      src [count], the source tile; dst [dstOuter * dstInner], the
//                  target tile (see Exchange); inner = count
//   SendRecv:      src [count] at the sender, dst [count] at the receiver; the
//                  other one is not looked at
// with count = outer * inner = dstOuter * dstInner (but for Exchange). Other
// than above, src and dst do not overlap (AllGather: src may be its own block
// of dst when outer = 1; ReduceScatter: dst its own block of src when outer =
// 1).
struct Transfer {
  BufferRef src, dst;
  int64_t count = 0;
  int64_t outer = 1, inner = 0;
  int64_t dstOuter = 1, dstInner = 0;
};

// Of an exchange: how the whole tensor of `shape` is placed before and after.
// Dim i is cut into tiles of ceil(shape[i] / ways), in the row-major order of
// the sub-axes from[i], then of to[i]. The source is partial over `partial`,
// which the result reduces; the result is a partial sum over `toPartial`.
// Sub-axes outside the group cut alike in both. In two rounds every element is
// assembled once and copied then. Who sends what to whom follows
// (cleave/exchange.h); padding is left as it is.
struct Exchange {
  std::vector<int64_t> shape;
  std::vector<std::vector<SubAxis>> from, to;
  std::vector<SubAxis> partial, toPartial;
  int32_t rounds = 1;
};

// A collective over the ranks that agree on all mesh axes outside `group`,
// its members ordered row-major over `group` (first entry slowest). With
// `token` >= 0 it only starts, and a Wait with this token ends it; buffers
// are not touched in between. Permute: member i receives from
// sources[i] (-1: zeros). Broadcast: from member `root`.
//
// If `positions` is not empty, only these positions of the group take part,
// in this order: member i is positions[i]. Only their ranks run the command.
//
// SendRecv: positions[0] sends to positions[1]; always with a token. The k-th
// start of the sender matches the k-th start of the receiver, per ordered pair
// of ranks and apart from all else that the two do. At the sender the Wait
// returns when src may be overwritten, at the receiver when dst is complete;
// neither waits for more than the other's start.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  ReduceOp reduce = ReduceOp::Sum;
  DType dtype = DType::F32;
  std::vector<SubAxis> group;
  std::vector<Transfer> parts;
  // gradient | parameter | activation | expert | norm | loss | pipeline
  StringId purpose = 0;
  int32_t token = -1;
  std::vector<int32_t> sources;
  int32_t root = 0;
  std::vector<Exchange> exchanges; // Exchange: one for each part
  std::vector<int32_t> positions;
  // For AllToAllV: the numbers of rows that go to each member, and that come
  // from each member (i64). Both sides know them before.
  BufferRef sent, received;
  // For reports only: the number of rows that a rank is expected to send to all
  // members together, as one number or one for each position on `by`. If `home`
  // is set, the rows are sent back to their source rank.
  std::vector<int64_t> expected;
  std::vector<SubAxis> by;
  bool home = false;
};

struct Wait {
  int32_t token = 0;
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_COLLECTIVES_H
