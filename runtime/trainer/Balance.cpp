//===- Balance.cpp - how evenly the experts of a step were chosen ---------===//
#include "Balance.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <numeric>

using Json = nlohmann::ordered_json;

namespace cleave {

int64_t RouterLoad::slots() const {
  return std::accumulate(chosen.begin(), chosen.end(), int64_t(0));
}

double RouterLoad::imbalance() const {
  int64_t all = slots();
  if (all == 0)
    return 1;
  return static_cast<double>(*std::max_element(chosen.begin(), chosen.end())) *
         static_cast<double>(chosen.size()) / static_cast<double>(all);
}

double RouterLoad::dropped() const {
  int64_t all = slots();
  return all == 0 ? 0
                  : static_cast<double>(all - taken) / static_cast<double>(all);
}

static std::vector<int64_t> integersIn(StepExecutor &executor,
                                       const std::string &buffer) {
  Array array = executor.gather(buffer, executor.need(buffer).dtype);
  std::vector<int64_t> values(array.elements());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = integerAt(array.dtype, array.bytes.data(), int64_t(i));
  return values;
}

StepBalance readBalance(const Manifest &manifest, StepExecutor &executor) {
  StepBalance balance;
  for (const ManifestRouter &router : manifest.routers) {
    RouterLoad load{router.name, integersIn(executor, router.chosen), 0};
    load.taken = router.taken.empty() ? load.slots()
                                      : integersIn(executor, router.taken)[0];
    balance.routers.push_back(std::move(load));
  }
  if (balance.empty())
    return balance;
  int64_t planned = 0, further = 0;
  for (int64_t rank = 0; rank < executor.ranks(); ++rank)
    for (const RankTraffic &entry : executor.traffic(rank)) {
      planned += entry.purpose == "expert" ? entry.sentBytes : 0;
      further += entry.purpose == "overflow" ? entry.sentBytes : 0;
    }
  if (planned + further > 0)
    balance.overflow =
        static_cast<double>(further) / static_cast<double>(planned + further);
  return balance;
}

Json toLogEntry(const StepBalance &balance) {
  Json list = Json::array();
  for (const RouterLoad &load : balance.routers)
    list.push_back({{"router", load.router},
                    {"load", load.imbalance()},
                    {"dropped", load.dropped()}});
  return list;
}

Json toCounts(const StepBalance &balance) {
  Json list = Json::array();
  for (const RouterLoad &load : balance.routers)
    list.push_back({{"router", load.router},
                    {"chosen", load.chosen},
                    {"taken", load.taken}});
  return list;
}

std::string summaryOf(const StepBalance &balance) {
  if (balance.empty())
    return "";
  double load = 0, dropped = 0;
  for (const RouterLoad &router : balance.routers) {
    load = std::max(load, router.imbalance());
    dropped = std::max(dropped, router.dropped());
  }
  char part[64];
  std::snprintf(part, sizeof part, "  load %.3g", load);
  std::string text = part;
  auto share = [&](const char *what, double value) {
    std::snprintf(part, sizeof part, "  %s %.2g%%", what, 100 * value);
    if (value > 0)
      text += part;
  };
  share("dropped", dropped);
  share("overflow", balance.overflow.value_or(0));
  return text;
}

} // namespace cleave
