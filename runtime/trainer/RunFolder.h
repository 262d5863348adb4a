//===- RunFolder.h - where a run writes and what it goes on from
//-------------===//
#ifndef CLEAVE_TRAINER_RUNFOLDER_H
#define CLEAVE_TRAINER_RUNFOLDER_H

#include "cleave/trainer/Train.h"

#include <string>

namespace cleave {

/// True if the checkpoint lies in the output folder: the run goes on there.
bool continuesIn(const std::string &out, const std::string &resume);

/// Makes the folder `out`, which must not exist, or the next runs/<model>-<n>.
std::string createOut(const std::string &out, const std::string &model);

} // namespace cleave

#endif // CLEAVE_TRAINER_RUNFOLDER_H
