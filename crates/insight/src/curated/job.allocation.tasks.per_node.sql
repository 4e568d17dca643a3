-- Distribution of a job's processes. Apollo, Table 1, row 15.
-- Unit: tasks. Meaning: tasks of the job per node of the job.
-- Inputs: job.tasks.count, job.nodes.count
-- Decision: the mean: how many run on each node is known to that node alone (job.processes.count).
-- No value: while no job runs; see what source job lacks with `baro doctor`
CREATE INSIGHT job.allocation.tasks.per_node UNIT 'tasks'
HELP 'Tasks of a job per node of the job (Apollo, Table 1, row 15).'
AS SELECT job, t.value * 1.0 / n.value AS value
FROM job_tasks_count t JOIN job_nodes_count n USING (job)
