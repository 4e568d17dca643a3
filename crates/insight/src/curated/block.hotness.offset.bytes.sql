-- Positions of the hottest blocks: BlockID of Apollo, Table 1, row 4.
-- Unit: bytes. Meaning: the offset on its device of the block with this rank; if block devices are
-- not traced, the offset of the extent in its file.
-- Inputs: block_trace.hot.offset.bytes, block.traced.count, file_trace.hot.offset.bytes
-- No value: until a traced device or file has been accessed; wait for some I/O
CREATE INSIGHT block.hotness.offset.bytes UNIT 'bytes'
HELP 'Offset of each of the hottest blocks, by device and rank (Apollo, Table 1, row 4).'
AS SELECT device, rank, value FROM block_trace_hot_offset_bytes
UNION ALL SELECT NULL AS device, f.rank, f.value FROM file_trace_hot_offset_bytes f CROSS JOIN block_traced_count t
WHERE t.value = 0
