"""Run the benchmark."""

import sys

try:
    from grader.bench.command import main

    main()
except KeyboardInterrupt:  # during the imports, which take a moment
    sys.stderr.write("bench: interrupted\n")
    sys.exit(130)
