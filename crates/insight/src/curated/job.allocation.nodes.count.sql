-- Allocation characteristics. Apollo, Table 1, row 15: (timestamp, #nodes, distribution of
-- processes, bytes read/written by jobs).
-- Unit: count. Meaning: #nodes, which is the number of nodes that are allocated to the job.
-- Inputs: job.nodes.count
-- Decision: the row is a tuple, and each element is a stream: job.allocation.tasks.per_node is the
-- distribution, and job.read.bytes and job.write.bytes are the bytes. The tuple in SQL:
--   SELECT n.ts, n.job, n.value AS nodes, d.value AS tasks_per_node, r.value AS read_bytes, w.value AS write_bytes
--   FROM job_allocation_nodes_count n
--   LEFT JOIN job_allocation_tasks_per_node d ON d.job = n.job AND d.newest
--   LEFT JOIN job_read_bytes r ON r.job = n.job AND r.newest
--   LEFT JOIN job_write_bytes w ON w.job = n.job AND w.newest
--   WHERE n.newest
-- No value: while no job runs; see what source job lacks with `baro doctor`
CREATE INSIGHT job.allocation.nodes.count UNIT 'count'
HELP 'Number of nodes that are allocated to a job (Apollo, Table 1, row 15).'
AS SELECT job, value FROM job_nodes_count
