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

// For ranks that are threads of this process.
std::unique_ptr<Store> makeLocalStore();

// One process serves (port 0: any), the others reach it within `seconds`. All
// use it as clients. Throws Error naming the address.
std::unique_ptr<Store> makeTcpStore(const std::string &host, int port,
                                    bool serves, double seconds);
// The port that a serving one has; 0 of any other.
int portOf(const Store &store);

// At MASTER_ADDR and MASTER_PORT, which launchers set; rank 0 serves. Throws
// BAD_ARGUMENT where they are not set.
std::unique_ptr<Store> makeLauncherStore(int rank, double seconds);

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_STORE_H
