-- Bytes read by a job. Apollo, Table 1, row 15: bytes read/written by jobs.
-- Unit: bytes. Meaning: bytes since the job began, by all paths that count bytes by job.
-- Inputs: job.read.by_path.bytes
-- Decision: the paths are added, because the control group counts only block devices and so does
-- not count I/O to Lustre. I/O to a file system that does not count by job is not seen.
CREATE INSIGHT job.read.bytes UNIT 'bytes'
HELP 'Bytes read by a job (Apollo, Table 1, row 15).'
AS SELECT job, sum(value) AS value FROM job_read_by_path_bytes GROUP BY job
