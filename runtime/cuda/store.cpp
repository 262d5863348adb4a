// The store of one process.

#include "store.h"

#include <map>
#include <mutex>

using namespace cleave;
using namespace cleave::cuda;

namespace {
class LocalStore : public Store {
public:
  void set(const std::string &key, const std::string &value) override {
    std::lock_guard lock(mutex);
    values[key] = value;
  }
  std::optional<std::string> get(const std::string &key) override {
    std::lock_guard lock(mutex);
    auto found = values.find(key);
    if (found == values.end())
      return std::nullopt;
    return found->second;
  }

private:
  std::mutex mutex;
  std::map<std::string, std::string> values;
};
} // namespace

std::unique_ptr<Store> cuda::makeLocalStore() {
  return std::make_unique<LocalStore>();
}
