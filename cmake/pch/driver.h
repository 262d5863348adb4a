// What the driver includes. Its commands throw, so it has exceptions, and
// shares no header with the libraries.

#include "operations.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
