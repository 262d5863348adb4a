// Converts the operands of commands to addresses in the memory of a rank.
#ifndef CLEAVE_RUNTIME_OPERANDS_H
#define CLEAVE_RUNTIME_OPERANDS_H

#include "cleave/accesses.h"
#include "span.h"

#include <utility>
#include <vector>

namespace cleave {

using Operand = program::Operand<const program::BufferRef>;

// Returns the size in bytes of the memory that the command may access for this
// operand: from the operand's first byte to the end of its last element. The
// multiplications are checked for overflow, because the program may be damaged.
inline int64_t spanOf(const Operand &operand) {
  const std::vector<int64_t> &dims = operand.dims;
  if (!operand.strides.empty()) {
    if (operand.strides.size() != dims.size())
      bad("an operand of " + std::to_string(dims.size()) +
          " dimensions has strides for " +
          std::to_string(operand.strides.size()));
    return spanOf(dims, operand.strides, operand.elementSize);
  }
  int64_t count = dims.empty() ? 1 : dims[0];
  for (size_t i = 1; i < dims.size(); ++i)
    count = checkedProduct(count, dims[i]);
  return spanOf(count, operand.elementSize);
}

// The addresses of a command's operands in the memory of a rank. The key of an
// address is the BufferRef, a field of the command, to which it belongs.
class Addresses {
public:
  // A pointer that converts to a pointer to any type.
  class Pointer {
  public:
    explicit Pointer(char *at) : at(at) {}
    template <class T> operator T *() const {
      return reinterpret_cast<T *>(at);
    }

  private:
    char *at;
  };

  void add(const Operand &operand, char *at) {
    found.emplace_back(&operand.buffer, at);
  }
  // Returns the address of the operand `ref`, or null if the command does not
  // use this operand.
  Pointer operator[](const program::BufferRef &ref) const {
    for (auto [buffer, at] : found)
      if (buffer == &ref)
        return Pointer(at);
    return Pointer(nullptr);
  }

private:
  std::vector<std::pair<const program::BufferRef *, char *>> found;
};

} // namespace cleave

#endif // CLEAVE_RUNTIME_OPERANDS_H
