-- How many hot blocks the tracing of block devices gives now, so that block.hotness.ops knows when to fall back.
-- Unit: count. Meaning: 0 while block_trace is off or has seen nothing.
-- Inputs: block_trace.hot.ops
CREATE INSIGHT block.traced.count UNIT 'count'
HELP 'Hot blocks that the tracing of block devices gives now.'
AS SELECT count(*) AS value FROM block_trace_hot_ops
