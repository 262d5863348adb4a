// An executable that carries a compiled program: `cleave compile --emit exe`.
//
// It is cleave-run with the files of the program's folder after its end, and a
// table of them. Weights stay where the model has them.
#ifndef CLEAVE_IO_BUNDLE_H
#define CLEAVE_IO_BUNDLE_H

#include "cleave/io/Temporary.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave {

/// The name of the transport for launchers among the files, where it is one.
inline constexpr const char *carriedMpiLibrary = "libcleave-mpi.so";

/// Whether a file is an executable that carries a program. Throws InputError
/// where it cannot be read.
bool carriesBundle(const std::string &path);

/// Writes `output`, executable: the program `runner` with all files of `folder`
/// after it, and those in `others`. Throws RunError where that cannot be
/// written, InputError where something cannot be read.
void writeBundle(const std::string &runner, const std::string &folder,
                 const std::vector<std::string> &others,
                 const std::string &output);

/// The files that an executable carries, unpacked into a folder below TMPDIR
/// that goes with this object.
class UnpackedBundle {
public:
  explicit UnpackedBundle(std::unique_ptr<TemporaryPath> files)
      : files(std::move(files)) {}
  const std::string &folder() const { return files->path(); }

private:
  std::unique_ptr<TemporaryPath> files;
};

/// Of `executable`; null where it carries nothing. A process that executes
/// itself anew finds what it has unpacked before. Throws InputError where the
/// files are damaged, RunError where they cannot be written.
std::unique_ptr<UnpackedBundle>
unpackBundle(const std::string &executable = "/proc/self/exe");

} // namespace cleave

#endif // CLEAVE_IO_BUNDLE_H
