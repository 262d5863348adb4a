// A shared library that is opened when it is first needed.
#ifndef CLEAVE_RUNTIME_CUDA_LIBRARY_H
#define CLEAVE_RUNTIME_CUDA_LIBRARY_H

#include "error.h"

#include <dlfcn.h>
#include <string>

namespace cleave::cuda {

// All functions except find() throw Error UNSUPPORTED.
class Library {
public:
  // `needed` is the text for messages: what the library is, and where it comes
  // from.
  Library(const char *file, const char *needed) : file(file) {
    handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle)
      return;
    std::string reason = dlerror(); // begins with the file, if it is missing
    if (std::string name = std::string(file) + ": "; reason.starts_with(name))
      reason = reason.substr(name.size());
    fail(CLEAVE_UNSUPPORTED,
         std::string("cannot load ") + file + " (" + needed + "): " + reason);
  }

  void *find(const char *symbol) const { return dlsym(handle, symbol); }

  template <class Function> void need(Function *&out, const char *symbol) {
    out = reinterpret_cast<Function *>(find(symbol));
    if (!out)
      fail(CLEAVE_UNSUPPORTED, std::string(file) + " has no function " +
                                   symbol +
                                   ": it is older than what cleave was built "
                                   "with; install a newer one");
  }

private:
  const char *file;
  void *handle = nullptr; // never closed: other code may use the library
};

// The name of a function as a string literal, after the macros of NVIDIA's
// headers have renamed the function (see api.h).
#define CLEAVE_TEXT(name) #name
// Looks up the function in the library and stores it in api.NAME. Applied to
// each entry of the lists of functions (X-macros) in api.h.
#define CLEAVE_LOOK_UP(name) library.need(api.name, CLEAVE_TEXT(name));

} // namespace cleave::cuda

#endif // CLEAVE_RUNTIME_CUDA_LIBRARY_H
