// A key-value store through which ranks exchange a few bytes: the ids of
// communicators, and how far each rank has progressed.
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
  // Returns immediately; nullopt if the key is not set yet.
  virtual std::optional<std::string> get(const std::string &key) = 0;
};

// Creates a key-value store for ranks that are threads of this process. For
// ranks in several processes, makeWorldStore() (neighbours.h) creates one.
std::unique_ptr<Store> makeLocalStore();

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_STORE_H
