-- Remaining capacity of memory as a storage tier: Apollo, Table 1, row 10 for memory.
-- Unit: bytes. Meaning: memory that programs can still allocate without swapping, as the kernel
-- estimates it (MemAvailable). It includes the page cache, which can be freed.
-- Inputs: memory.available.bytes
CREATE INSIGHT memory.capacity UNIT 'bytes'
HELP 'Memory that programs can still allocate without swapping.'
AS SELECT value FROM memory_available_bytes
