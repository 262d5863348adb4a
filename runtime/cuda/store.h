// Few bytes that ranks leave for each other: how those of other processes find
// the id of a communicator, and tell how far they have come.
#ifndef CLEAVE_RUNTIME_CUDA_STORE_H
#define CLEAVE_RUNTIME_CUDA_STORE_H

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace cleave::cuda {

class Store {
public:
  virtual ~Store() = default;
  virtual void set(const std::string &key, const std::string &value) = 0;
  // At once; nothing where nobody has set it yet.
  virtual std::optional<std::string> get(const std::string &key) = 0;
};

// For ranks that are threads of this process. neighbours.h has that of several.
std::unique_ptr<Store> makeLocalStore();

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_STORE_H
