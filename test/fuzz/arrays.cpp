// Fuzzes the readers of .npy, .npz and safetensors files. Every reader gets
// every input, whatever its first bytes are.
#include "Fuzz.h"

#include "cleave/io/Error.h"
#include "cleave/io/Npy.h"
#include "cleave/io/Safetensors.h"

using namespace cleave;

namespace {

void check(const Array &array) {
  uint64_t bytes = elementSize(array.dtype);
  for (int64_t size : array.shape)
    bytes *= static_cast<uint64_t>(size);
  fuzz::require(bytes == array.bytes.size(),
                "an array has the bytes of its shape");
}

template <typename Read> void attempt(Read read) {
  try {
    read();
  } catch (const Error &error) {
    fuzz::requireMessage(error.what());
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::MemoryFile file(fuzz::textOf(data, size));
  attempt([&] { check(readNpy(file.path())); });
  attempt([&] {
    for (const auto &[name, array] : readNpz(file.path()))
      check(array);
  });
  attempt([&] {
    SafetensorsReader reader(file.path());
    for (const std::string &name : reader.names()) {
      const ArrayView *view = reader.find(name);
      fuzz::require(view != nullptr, "a tensor that is listed is found");
      uint64_t bytes = elementSize(view->dtype), sum = 0;
      for (int64_t dim : view->shape)
        bytes *= static_cast<uint64_t>(dim);
      for (uint64_t i = 0; i < bytes; ++i)
        sum += static_cast<uint64_t>(view->data[i]);
      fuzz::require(sum <= bytes * 255, "its bytes can be read");
    }
  });
  return 0;
}
