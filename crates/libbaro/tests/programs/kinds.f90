! Calls each procedure of the module that publishes.
program kinds
  use baro
  use, intrinsic :: iso_c_binding
  implicit none
  type(baro_publisher) :: app
  type(baro_node) :: node, other
  integer(c_int64_t) :: ts, age_ns
  integer(c_int) :: quality
  real(c_double) :: number, width
  integer(baro_handle) :: step, i, f, b, t
  character(len=20) :: padded
  integer(c_int64_t), parameter :: one = 1
  app = baro_open('classes   ')
  if (.not. baro_is_enabled(app)) error stop 1
  if (baro_label(app, 'phase', 'test') /= BARO_OK) error stop 2
  if (baro_label(app, 'no good', '') >= 0) error stop 3
  if (len(baro_error()) == 0) error stop 4
  step = baro_publication(app, 'kinds', BARO_READERS_ALL)
  i = baro_value(step, 'i', BARO_INT, unit='1', kind=BARO_COUNTER, help='a number')
  f = baro_value(step, 'f', BARO_FLOAT)
  b = baro_value(step, 'b', BARO_BOOL)
  t = baro_value(step, 't', BARO_TEXT)
  if (baro_value(step, 'No', BARO_INT) /= 0) error stop 5
  call baro_put(i, -1)
  call baro_put(f, 0.5)
  call baro_put(b, .true.)
  padded = 'text'
  call baro_put(t, padded)
  call baro_put_json(t, '[1]')
  call baro_put(t, [1.5d0, -2.5d0])
  call baro_frame(step, one)
  call baro_put(0_baro_handle, 1d0)
  if (baro_lost(app) /= 0) error stop 6
  call baro_commit()
  call baro_close(app)
  call baro_close(app)
  node = baro_node_open()
  if (baro_latest(node, 'memory.free.bytes', ts, number, age_ns) /= BARO_OK) error stop 7
  if (number /= 10) error stop 8
  if (baro_latest_expected(node, 'memory.free.bytes', ts, number, width, quality, age_ns) /= BARO_OK) error stop 9
  if (number /= 12 .or. width /= 2 .or. quality /= BARO_PREDICTED .or. age_ns < 1000000000) error stop 10
  other = baro_node_open_mirrored(node, 'n2  ')
  if (.not. baro_node_is_alive(node) .or. .not. baro_node_is_alive(other)) error stop 11
  if (baro_latest(other, 'disk.read.bytes', ts, number, age_ns) /= BARO_OK) error stop 12
  if (number /= 7.5d0) error stop 13
  call baro_node_close(other)
  other = baro_node_open_mirrored(node, 'n3')
  if (baro_node_is_alive(other)) error stop 14
  call baro_node_close(other)
  other = baro_node_open_mirrored(node, 'n22')
  if (index(baro_error(), 'mirrored: n2, n3') == 0 .or. baro_node_is_alive(other)) error stop 15
  if (baro_latest(other, 'disk.read.bytes', ts, number, age_ns) >= 0) error stop 16
  call baro_node_close(node)
end program
