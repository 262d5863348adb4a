// Computes the bytes that the transports send in one collective, for each rank,
// from the program alone.

#include "ExplainTraffic.h"

#include "cleave/exchange.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace cleave;

std::vector<int64_t> cleave::coordinatesOf(const program::Program &program,
                                           int64_t rank) {
  std::vector<int64_t> index(program.mesh.size());
  for (size_t axis = program.mesh.size(); axis-- > 0;) {
    index[axis] = rank % program.mesh[axis].size;
    rank /= program.mesh[axis].size;
  }
  return index;
}

std::vector<Traffic>
cleave::exchangeTraffic(const program::Program &program,
                        const program::Collective &collective) {
  // Ranks are in the same group if they differ only in their positions on the
  // group's axes.
  std::map<std::vector<int64_t>, std::vector<int64_t>> groups;
  int64_t size = program::positionsOn(collective.group);
  for (int64_t rank = 0; rank < program.numRanks(); ++rank) {
    std::vector<int64_t> at = coordinatesOf(program, rank);
    int64_t member = program::positionOn(collective.group, program.mesh, at);
    for (const program::SubAxis &sub : collective.group) {
      int64_t inner = program.mesh[sub.axis].size / (sub.pre * sub.size);
      at[sub.axis] -= at[sub.axis] / inner % sub.size * inner;
    }
    groups[at].resize(size);
    groups[at][member] = rank;
  }
  int64_t width = program::sizeOf(collective.dtype);
  std::vector<Traffic> traffic(program.numRanks());
  for (auto &[outside, members] : groups) {
    std::vector<std::vector<int64_t>> coordinates;
    for (int64_t rank : members)
      coordinates.push_back(coordinatesOf(program, rank));
    for (auto [part, exchange] :
         llvm::zip_equal(collective.parts, collective.exchanges)) {
      for (int64_t rank : members)
        traffic[rank].payload +=
            width * std::max(part.count, part.dstOuter * part.dstInner);
      program::ExchangePlan plan(
          program::exchangeTiles(program.mesh, exchange, coordinates));
      plan.forTransfers(
          [&](int32_t sender, int32_t receiver, int, int64_t elements) {
            traffic[members[sender]].sent += width * elements;
            traffic[members[receiver]].received += width * elements;
          });
    }
  }
  return traffic;
}

Traffic cleave::rowTraffic(const program::Program &program,
                           const program::Collective &collective,
                           int64_t rank) {
  std::vector<int64_t> at = coordinatesOf(program, rank);
  auto rowsAt = [&](const std::vector<int64_t> &coordinates) -> int64_t {
    if (collective.expected.empty())
      return 0;
    return collective.expected[program::positionOn(collective.by, program.mesh,
                                                   coordinates)];
  };
  int64_t own = rowsAt(at), all = 0, n = program::positionsOn(collective.group);
  for (int64_t member = 0; member < n; ++member) {
    std::vector<int64_t> coordinates = at;
    int64_t rest = member;
    for (const program::SubAxis &sub : llvm::reverse(collective.group)) {
      int64_t inner = program.mesh[sub.axis].size / (sub.pre * sub.size);
      int64_t &on = coordinates[sub.axis];
      on += (rest % sub.size - on / inner % sub.size) * inner;
      rest /= sub.size;
    }
    all += rowsAt(coordinates);
  }
  int64_t row = 0, width = program::sizeOf(collective.dtype);
  for (const program::Transfer &part : collective.parts)
    row += part.inner;
  Traffic traffic;
  traffic.payload = own * row * width;
  traffic.sent = (n - 1) * own * row / n * width;
  traffic.received = (all - own) * row / n * width;
  if (collective.home)
    std::swap(traffic.sent, traffic.received);
  return traffic;
}

Traffic cleave::trafficOf(const program::Collective &collective,
                          int64_t groupSize, int64_t member) {
  using program::CollectiveKind;
  int64_t width = program::sizeOf(collective.dtype), n = groupSize, total = 0;
  for (const program::Transfer &part : collective.parts)
    total += part.count;
  Traffic traffic;
  switch (collective.kind) {
  case CollectiveKind::AllReduce: {
    // An all-reduce is a reduce-scatter followed by an all-gather, with chunks
    // of ceil(total / n) elements.
    int64_t chunk = (total + n - 1) / n;
    int64_t own = std::clamp<int64_t>(total - chunk * member, 0, chunk);
    traffic.sent = traffic.received = total + (n - 2) * own;
    traffic.payload = total;
    break;
  }
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::AllToAll:
    traffic.sent = traffic.received = (n - 1) * total;
    traffic.payload = n * total;
    break;
  case CollectiveKind::Permute: {
    const auto &sources = collective.sources;
    for (int64_t target = 0; target < n; ++target)
      if (target != member && sources[target] == member)
        traffic.sent += total;
    if (sources[member] >= 0 && sources[member] != member)
      traffic.received = total;
    traffic.payload = total;
    break;
  }
  case CollectiveKind::Broadcast:
    (member == collective.root ? traffic.sent : traffic.received) =
        member == collective.root ? (n - 1) * total : total;
    traffic.payload = total;
    break;
  case CollectiveKind::SendRecv:
    (member == 0 ? traffic.sent : traffic.received) = total;
    traffic.payload = total;
    break;
  case CollectiveKind::Exchange:
    llvm_unreachable("the members of an exchange differ: exchangeTraffic");
  case CollectiveKind::AllToAllV:
    llvm_unreachable("the members' rows differ: rowTraffic");
  }
  traffic.sent *= width;
  traffic.received *= width;
  traffic.payload *= width;
  return traffic;
}

std::string cleave::linkOf(const program::Program &program,
                           const program::Collective &collective) {
  std::string link = "intra";
  for (const program::SubAxis &part : collective.group) {
    const program::MeshAxis &axis = program.mesh[part.axis];
    // If an axis spans several nodes, the ranks along one of its sub-axes may
    // still all be in the same node. A group over this sub-axis then uses only
    // links within a node.
    if (axis.link == "inter" && axis.within % (axis.size / part.pre) != 0)
      link = axis.link;
  }
  return link;
}

double cleave::secondsOf(const LinkClass &link, int64_t bytes,
                         int64_t groupSize) {
  return bytes / link.bytesPerSecond + link.latency * (groupSize - 1);
}
