-- Block hotness. Apollo, Table 1, row 4: (BlockID, frequency of access).
-- Unit: ops. Meaning: number of accesses to the block with this rank, where rank 0 is the hottest.
-- The error of the sample is the most by which the number may be too high.
-- Inputs: block_trace.hot.ops, block.traced.count, file_trace.hot.ops
-- Decision: BlockID is the device together with block.hotness.offset.bytes of the same rank. Only
-- the hottest blocks are kept, because a counter for each block of a disk would need too much
-- memory. While block devices are not traced, the extents of files that file_trace samples are used
-- instead; they have no device. Offset and number in one row:
--   SELECT h.device, h.rank, o.value AS offset_bytes, h.value AS ops, h.error
--   FROM block_hotness_ops h JOIN block_hotness_offset_bytes o
--     ON o.rank = h.rank AND o.device IS h.device AND o.newest
--   WHERE h.newest ORDER BY h.device, CAST(h.rank AS INTEGER)
-- No value: until a traced device or file has been accessed; wait for some I/O
CREATE INSIGHT block.hotness.ops UNIT 'ops'
HELP 'Number of accesses to each of the hottest blocks, by device and rank (Apollo, Table 1, row 4).'
AS SELECT device, rank, value FROM block_trace_hot_ops
UNION ALL SELECT NULL AS device, f.rank, f.value FROM file_trace_hot_ops f CROSS JOIN block_traced_count t
WHERE t.value = 0
