-- Number of hot blocks that the tracing of block devices reports now. block.hotness.ops and
-- block.hotness.offset.bytes use the extents of files instead while it is 0.
-- Unit: count. Meaning: 0 while block_trace is off or has seen no request.
-- Inputs: block_trace.hot.ops
CREATE INSIGHT block.traced.count UNIT 'count'
HELP 'Number of hot blocks that the tracing of block devices reports now.'
AS SELECT count(*) AS value FROM block_trace_hot_ops
