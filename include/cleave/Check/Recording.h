// Records the calls that a check makes to its programs in a folder, so that a
// machine with a device but without the compiler can make the same calls and
// compare the results (test/gpu/replay).
//
//     check.txt                     "epsilon E": machine epsilon of training
//     data.bin                      all arrays, without duplicates
//     NAME/program.bin, kernels.*   a program for the device
//     NAME/calls.txt                the calls of the program, one per line:
//
//     begin SECTION                             see Engine::begin
//     scatter TYPE COUNT OFFSET BUFFER          OFFSET: bytes in data.bin
//     run ACTION
//     gather TYPE COUNT ROLE OFFSET SAMPLES BUFFER
//
// TYPE is a cleave_dtype (cleave/runtime.h) as a number, and ROLE the role of
// the buffer, such as "gradient". At the OFFSET of a gather, data.bin has
// SAMPLES of the COUNT elements, as a CPU computed them, in f64: sample i is
// element i * COUNT / SAMPLES.

#ifndef CLEAVE_CHECK_RECORDING_H
#define CLEAVE_CHECK_RECORDING_H

#include "cleave/runtime.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave::check {

class Recording {
public:
  explicit Recording(llvm::StringRef folder) : folder(folder.str()) {}

  /// The calls that a check makes to one program: scatter writes a buffer, run
  /// runs an action, gather reads a buffer. The calls of only one program may
  /// be recorded at a time.
  class Calls {
  public:
    Calls(Recording &all, std::string folder)
        : all(all), path(std::move(folder)) {}
    const std::string &folder() const { return path; }
    void scatter(const cleave_buffer_info &info, cleave_dtype type,
                 const void *data, int64_t count);
    void run(llvm::StringRef action);
    void begin(llvm::StringRef what);
    void gather(const cleave_buffer_info &info, llvm::ArrayRef<double> values);

  private:
    friend class Recording;
    Recording &all;
    std::string path, text;
  };

  /// Adds the program `name` and creates its folder. Returns null on failure,
  /// with a message in `error`.
  Calls *add(llvm::StringRef name, std::string &error);

  /// Writes the recorded calls of all programs, and all arrays that they refer
  /// to, into the folder. `epsilon` is the machine epsilon of the programs'
  /// precision (CheckOptions::epsilon). Returns an error message, or an empty
  /// string.
  std::string write(double epsilon) const;

private:
  /// Stores the bytes in data.bin, unless it already contains them, and returns
  /// their offset.
  int64_t keep(llvm::StringRef bytes);

  std::string folder, data;
  llvm::StringMap<int64_t> kept; // by digest and size
  std::vector<std::unique_ptr<Calls>> programs;
};

} // namespace cleave::check

#endif
