// Precompiled header of the driver `cleave`. The driver's commands throw, so
// the driver is compiled with exceptions. It cannot share a precompiled header
// with the compiler's libraries, which are compiled without exceptions.

#include "operations.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
