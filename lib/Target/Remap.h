// Renumbers arenas when the commands of one stage become part of a program of
// several stages.

#ifndef CLEAVE_LIB_TARGET_REMAP_H
#define CLEAVE_LIB_TARGET_REMAP_H

#include "cleave/program_io.h"

#include <variant>

namespace cleave::target {

/// Visits every field of a command, in the order of program_io.h, and replaces
/// old arena numbers by new ones.
class Remap {
public:
  /// For each old arena number, the new one.
  std::vector<int32_t> arenas;

  template <class... T> void operator()(T &...x) { (visit(x), ...); }

  template <class T> void visit(T &x) {
    if constexpr (std::is_class_v<T>)
      program::fields(*this, x);
  }
  template <class T> void visit(std::vector<T> &list) {
    for (T &x : list)
      visit(x);
  }
  template <class T, size_t N> void visit(std::array<T, N> &) {}
  template <class... T> void visit(std::variant<T...> &x) {
    std::visit([&](auto &alternative) { visit(alternative); }, x);
  }
  void visit(std::string &) {}
  void visit(program::BufferRef &x) {
    if (x.present())
      x.arena = arenas[x.arena];
    visit(x.terms);
  }
  void visit(program::Lifetime &x) { x.arena = arenas[x.arena]; }
};

} // namespace cleave::target

#endif
