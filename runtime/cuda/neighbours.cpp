// The key-value store that several processes share, and the check that each
// rank has its own device.

#include "neighbours.h"

#include "error.h"
#include "world.h"

#include <map>

using namespace cleave;
using namespace cleave::cuda;

namespace {
class WorldStore : public Store {
public:
  explicit WorldStore(const Neighbours &neighbours)
      : board(neighbours.world->board()), prefix(neighbours.session + "/") {}
  ~WorldStore() override { board.forget(prefix); }

  void set(const std::string &key, const std::string &value) override {
    board.post(prefix + key, value);
  }
  std::optional<std::string> get(const std::string &key) override {
    return board.find(prefix + key);
  }

private:
  Board &board;
  const std::string prefix;
};
} // namespace

std::unique_ptr<Store> cuda::makeWorldStore(const Neighbours &neighbours) {
  return std::make_unique<WorldStore>(neighbours);
}

void cuda::compareDevices(Store &store, const Neighbours &neighbours,
                          double seconds, const Device &own) {
  World &world = *neighbours.world;
  auto keyOf = [](int rank) { return "device/" + std::to_string(rank); };
  store.set(keyOf(world.rank()), own.uuid());
  auto deadline =
      World::Clock::now() + std::chrono::duration_cast<World::Clock::duration>(
                                std::chrono::duration<double>(seconds));
  Patience patience(false, 1000);
  std::map<std::string, int> ranks; // by device
  for (int rank = 0; rank < world.size(); ++rank) {
    std::optional<std::string> device;
    while (!(device = store.get(keyOf(rank)))) {
      neighbours.meanwhile();
      world.checkAlive();
      if (World::Clock::now() > deadline)
        throw RuntimeError(CLEAVE_TIMEOUT,
                           world.describe(rank) +
                               " has opened no device within " +
                               std::to_string(static_cast<int>(seconds)) + " s",
                           rank);
      patience.wait();
    }
    auto [first, isNew] = ranks.try_emplace(*device, rank);
    if (!isNew)
      fail(CLEAVE_UNSUPPORTED,
           "transport nccl needs a device for each process, but " +
               world.describe(first->second) + " and " + world.describe(rank) +
               " share one; start no more processes on a machine than it has "
               "devices, or one process without a launcher, whose ranks may "
               "share devices");
  }
}
