// What tests of the runtime include.

#include "runtime.h"

#include <gtest/gtest.h>

#include <random>
