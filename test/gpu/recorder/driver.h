// What the files of the driver's functions share.
#ifndef CLEAVE_TEST_GPU_RECORDER_DRIVER_H
#define CLEAVE_TEST_GPU_RECORDER_DRIVER_H

#include "queue.h"

namespace recorder {

// The host waits for all that the stream was given.
CUresult synchronize(Recorder &all, std::unique_lock<std::mutex> &lock,
                     Stream &stream);

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_DRIVER_H
