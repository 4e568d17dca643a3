-- Block hotness. Apollo, Table 1, row 4: (BlockID, frequency of access).
-- Unit: ops. Meaning: accesses to the block of this rank, 0 the hottest; its error is the most that it is too high.
-- Inputs: block_trace.hot.ops, block.traced.count, file_trace.hot.ops
-- Decision: BlockID is the device and block.hotness.offset.bytes of the same rank; only the hottest blocks are kept,
-- since one counter for each block of a disk is not to be paid for. While block devices are not traced, the extents
-- of files that file_trace samples stand in for them, without a device. Both in one row:
--   SELECT h.device, h.rank, o.value AS offset_bytes, h.value AS ops, h.error
--   FROM block_hotness_ops h JOIN block_hotness_offset_bytes o
--     ON o.rank = h.rank AND o.device IS h.device AND o.newest
--   WHERE h.newest ORDER BY h.device, CAST(h.rank AS INTEGER)
-- No value: until a traced device or file has been accessed; wait for some I/O
CREATE INSIGHT block.hotness.ops UNIT 'ops'
HELP 'Accesses to the hottest blocks, by device and rank (Apollo, Table 1, row 4).'
AS SELECT device, rank, value FROM block_trace_hot_ops
UNION ALL SELECT NULL AS device, f.rank, f.value FROM file_trace_hot_ops f CROSS JOIN block_traced_count t
WHERE t.value = 0
