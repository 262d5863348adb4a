// Precompiled header of the driver. The driver's commands throw, so it is
// compiled with exceptions and cannot share a precompiled header with the
// libraries.

#include "operations.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
