-- Remaining capacity of memory as a tier: Table 1, row 10 for memory.
-- Unit: bytes. Meaning: what programs can still allocate without swapping, as the kernel estimates
-- it (MemAvailable), not what is idle: page cache counts as free.
-- Inputs: memory.available.bytes
CREATE INSIGHT memory.capacity UNIT 'bytes'
HELP 'Bytes of memory that programs can still get without swapping.'
AS SELECT value FROM memory_available_bytes
