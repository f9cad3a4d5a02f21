import os

# Numba decides when it is imported whether CUDA is simulated: those tests have a process of their own (test_simulator).
collect_ignore = [] if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1" else ["simulated"]
