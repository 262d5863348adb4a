// Functions that the files of the simulated driver share.
#ifndef CLEAVE_TEST_GPU_RECORDER_DRIVER_H
#define CLEAVE_TEST_GPU_RECORDER_DRIVER_H

#include "queue.h"

namespace recorder {

// The host waits until all operations enqueued on the stream have run.
CUresult synchronize(Recorder &all, std::unique_lock<std::mutex> &lock,
                     Stream &stream);

} // namespace recorder

#endif // CLEAVE_TEST_GPU_RECORDER_DRIVER_H
