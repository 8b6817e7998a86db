"""Environment variables of a process that trains, set before it imports anything."""

ENVIRONMENT = {
    # One thread for each process, set before torch is imported: spinning threads of several starve each other.
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    # Large blocks are kept, not returned to the system after every step: training touches the same sizes all the time.
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "67108864",
}
