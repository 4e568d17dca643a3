-- Distribution of a job's processes. Apollo, Table 1, row 15.
-- Unit: tasks. Meaning: mean number of tasks of the job on each of its nodes.
-- Inputs: job.tasks.count, job.nodes.count
-- Decision: the mean, because only each node itself knows how many processes run on it
-- (job.processes.count).
-- No value: while no job runs; see what source job lacks with `baro doctor`
CREATE INSIGHT job.allocation.tasks.per_node UNIT 'tasks'
HELP 'Mean number of tasks of a job on each of its nodes (Apollo, Table 1, row 15).'
AS SELECT job, t.value * 1.0 / n.value AS value
FROM job_tasks_count t JOIN job_nodes_count n USING (job)
