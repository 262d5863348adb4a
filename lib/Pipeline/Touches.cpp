// What commands read and write.

#include "Touches.h"

#include <algorithm>

namespace cleave::pipeline {

using namespace program;

namespace {

// Ranks from one position on the sub-axis to the next.
int64_t stepOf(const Program &program, const SubAxis &sub) {
  int64_t below = 1; // ranks per step of the axis
  for (size_t axis = sub.axis + 1; axis < program.mesh.size(); ++axis)
    below *= program.mesh[axis].size;
  return below * (program.mesh[sub.axis].size / (sub.pre * sub.size));
}

class Reader {
public:
  Reader(const Program &program, int64_t rank) : program(program), rank(rank) {}

  std::vector<Touch> run(const Command &command) {
    std::visit([&](const auto &op) { read(op); }, command.op);
    add(command.when, Access::Read);
    return std::move(touches);
  }

private:
  void add(const BufferRef &ref, Access access, int64_t bytes = 1) {
    if (!ref.present() || bytes <= 0)
      return;
    int64_t begin = ref.offset;
    for (const AxisTerm &term : ref.terms)
      begin += term.coef * (rank / stepOf(program, term.on) % term.on.size);
    touches.push_back({ref.arena, begin, begin + bytes, access});
  }

  void read(const Launch &launch) {
    for (const BufferRef &ref : launch.args)
      add(ref, Access::Unknown);
  }

  void read(const Gemm &gemm) {
    for (const BufferRef *ref :
         {&gemm.a.buffer, &gemm.b.buffer, &gemm.bias, &gemm.derivativeAt})
      add(*ref, Access::Read);
    for (const BufferRef *ref :
         {&gemm.c.buffer, &gemm.preActivation, &gemm.sums})
      add(*ref, Access::Write);
    add(gemm.workspace, Access::Write, gemm.workspaceSize);
  }

  void read(const Attention &attention) {
    for (const AttentionRef *ref :
         {&attention.q, &attention.k, &attention.v, &attention.dO,
          &attention.bias, &attention.dropoutKeys})
      add(ref->buffer, Access::Read);
    for (const IndexRef *ref :
         {&attention.queryPositions, &attention.keyPositions,
          &attention.querySegments, &attention.keySegments, &attention.keyMask,
          &attention.queryIndices, &attention.keyIndices})
      add(ref->buffer, Access::Read);
    for (const AttentionRef *ref : {&attention.o, &attention.lse})
      add(ref->buffer, attention.backward ? Access::Read : Access::Write);
    for (const AttentionRef *ref :
         {&attention.dq, &attention.dk, &attention.dV})
      add(ref->buffer, Access::Write);
    add(attention.workspace, Access::Write, attention.workspaceSize);
  }

  void read(const GroupedGemm &grouped) {
    add(grouped.a.buffer, Access::Read);
    add(grouped.ids.buffer, Access::Read);
    add(grouped.c.buffer, grouped.outer ? Access::Read : Access::Write);
    add(grouped.w.buffer, grouped.outer ? Access::Write : Access::Read);
    add(grouped.workspace, Access::Write, grouped.workspaceSize);
  }

  void read(const Convolution &conv) {
    for (auto [ref, written] : {std::pair(&conv.x, ConvolutionKind::InputGrad),
                                std::pair(&conv.w, ConvolutionKind::FilterGrad),
                                std::pair(&conv.y, ConvolutionKind::Forward)})
      add(*ref, conv.kind == written ? Access::Write : Access::Read);
    add(conv.workspace, Access::Write, conv.workspaceSize);
  }

  void read(const PlanRows &plan) {
    int64_t all = plan.rounds * plan.ranks * plan.places;
    add(plan.ids, Access::Read, 8 * plan.rows);
    add(plan.sources, Access::Write, 8 * all);
    add(plan.placeOf, Access::Write, 8 * plan.rows);
    add(plan.sent, Access::Write, 8 * all);
    add(plan.counts, Access::Write, 8 * plan.ranks * plan.rounds);
  }

  void read(const SortRows &sort) {
    add(sort.ids, Access::Read, 8 * sort.rows);
    for (const BufferRef &list : {sort.order, sort.placeOf, sort.sorted})
      add(list, Access::Write, 8 * sort.rows);
  }

  void read(const PositionInExpert &order) {
    int64_t tokens = order.b * order.s, slots = tokens * order.k;
    add(order.ids, Access::Read, 8 * slots);
    add(order.positions, Access::Read,
        8 * (order.perSample ? tokens : order.s));
    add(order.loads, Access::Read, 8 * order.rows * order.e);
    add(order.samples, Access::Read, 8 * order.b);
    add(order.result, Access::Write, 8 * slots);
    add(order.scratch, Access::Write, 8 * (2 * order.e + order.s));
  }

  void read(const Collective &collective) {
    std::vector<int64_t> members = membersOf(program, collective, rank);
    auto count = static_cast<int64_t>(members.size());
    bool sends = true, receives = true;
    if (collective.kind == CollectiveKind::SendRecv) {
      sends = !members.empty() && members.front() == rank;
      receives = !members.empty() && members.back() == rank;
    }
    for (const Transfer &part : collective.parts) {
      int64_t given = part.count, taken = part.count;
      bool isAllToAll = collective.kind == CollectiveKind::AllToAll ||
                        collective.kind == CollectiveKind::AllToAllV;
      if (collective.kind == CollectiveKind::AllGather || isAllToAll)
        taken *= count;
      if (collective.kind == CollectiveKind::ReduceScatter || isAllToAll)
        given *= count;
      if (collective.kind == CollectiveKind::Exchange)
        taken = part.dstOuter * part.dstInner;
      if (sends)
        add(part.src, Access::Read, given * sizeOf(collective.dtype));
      if (receives)
        add(part.dst, Access::Write, taken * sizeOf(collective.dtype));
    }
    add(collective.sent, Access::Read, 8 * count);
    add(collective.received, Access::Read, 8 * count);
  }

  // From the first byte to the last, gaps included.
  static int64_t span(const Copy &copy, const std::vector<int64_t> &strides) {
    int64_t elements = 1;
    for (size_t dim = 0; dim < copy.shape.size(); ++dim) {
      if (copy.shape[dim] == 0)
        return 0;
      elements += (copy.shape[dim] - 1) * std::max<int64_t>(strides[dim], 0);
    }
    return elements * copy.elementSize;
  }

  void read(const Copy &copy) {
    add(copy.src, Access::Read, span(copy, copy.srcStrides));
    add(copy.dst, Access::Write, span(copy, copy.dstStrides));
  }

  void read(const Fill &fill) {
    add(fill.dst, Access::Write, fill.count * fill.elementSize);
  }

  void read(const Wait &) {}
  void read(const Call &) {}

  const Program &program;
  const int64_t rank;
  std::vector<Touch> touches;
};

} // namespace

std::vector<Touch> touchesOf(const Program &program, const Command &command,
                             int64_t rank) {
  return Reader(program, rank).run(command);
}

std::vector<int64_t> membersOf(const Program &program,
                               const Collective &collective, int64_t rank) {
  // The ranks that agree outside the group's sub-axes, first one slowest.
  std::vector<int64_t> members = {rank};
  for (const SubAxis &sub : collective.group) {
    int64_t step = stepOf(program, sub);
    std::vector<int64_t> next;
    for (int64_t member : members)
      for (int64_t i = 0; i < sub.size; ++i)
        next.push_back(member + (i - member / step % sub.size) * step);
    members = std::move(next);
  }
  if (collective.positions.empty())
    return members;
  std::vector<int64_t> some;
  for (int32_t position : collective.positions)
    some.push_back(members[position]);
  if (!std::count(some.begin(), some.end(), rank))
    some.clear();
  return some;
}

std::string nameOf(const Program &program, const Touch &touch) {
  return program.arenas[touch.arena].name + " at byte " +
         std::to_string(touch.begin);
}

} // namespace cleave::pipeline
