// An executable that carries a compiled program: `cleave compile --emit exe`.
// The file is cleave-run, followed by the files of the program's folder and a
// table of these files. Weights are not included; they stay in the model's
// files.
#ifndef CLEAVE_IO_BUNDLE_H
#define CLEAVE_IO_BUNDLE_H

#include "cleave/io/Temporary.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave {

/// The name that the library of the MPI transport has among the carried files.
inline constexpr const char *carriedMpiLibrary = "libcleave-mpi.so";

/// Returns whether a file is an executable that carries a program. Throws
/// InputError if the file cannot be read.
bool carriesBundle(const std::string &path);

/// Writes the executable `output`: a copy of `runner`, followed by all files of
/// `folder` and the files `others`. Throws RunError if the output cannot be
/// written, InputError if an input cannot be read.
void writeBundle(const std::string &runner, const std::string &folder,
                 const std::vector<std::string> &others,
                 const std::string &output);

/// The files that an executable carries, unpacked into a folder below TMPDIR.
/// The destructor removes the folder.
class UnpackedBundle {
public:
  explicit UnpackedBundle(std::unique_ptr<TemporaryPath> files)
      : files(std::move(files)) {}
  const std::string &folder() const { return files->path(); }

private:
  std::unique_ptr<TemporaryPath> files;
};

/// Unpacks the files that `executable` carries; returns null if it carries
/// none. A process that executes itself again reuses its unpacked folder.
/// Throws InputError if the files are damaged, RunError if they cannot be
/// written.
std::unique_ptr<UnpackedBundle>
unpackBundle(const std::string &executable = "/proc/self/exe");

} // namespace cleave

#endif // CLEAVE_IO_BUNDLE_H
