"""exits.py CODE COMMAND...: runs the command and fails unless its exit code is
CODE. `not` only tells zero from non-zero."""

import subprocess
import sys

wanted, command = int(sys.argv[1]), sys.argv[2:]
found = subprocess.run(command).returncode
if found != wanted:
    sys.exit(f"exit code {found}, expected {wanted}: {' '.join(command)}")
