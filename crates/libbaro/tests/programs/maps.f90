! Server maps in Fortran, without an agent.
program maps
  use, intrinsic :: iso_c_binding
  use baro
  implicit none
  type(baro_publisher) :: app
  type(baro_servers) :: map
  type(baro_server) :: server
  type(baro_operation) :: op
  type(baro_request) :: request
  app = baro_open('maps')
  map = baro_server_map(app, 'io ', [3, 1])
  server = baro_map_server(app, 'io', 3)
  call baro_map_begin(map, op)
  if (op%start /= BARO_MAP_OFF .or. op%epoch /= 0 .or. op%servers_count /= 2) error stop 1
  if (op%servers(1) /= 1 .or. op%servers(2) /= 3) error stop 2
  if (baro_map_serve_begin(server, op%epoch, request) /= BARO_MAP_SERVED) error stop 3
  call baro_map_serve_end(server, request, 10_c_int64_t)
  if (baro_map_serve_begin(server, 5_c_int64_t, request) /= BARO_MAP_FENCED) error stop 4
  if (request%fence /= 5) error stop 5
  call baro_map_refused(map, op, 2_c_int64_t)
  call baro_map_begin(map, op, wait_ms=5_c_int64_t)
  if (op%start /= BARO_MAP_LATE) error stop 6
  call baro_map_end(map, op)
  call baro_map_server_close(server)
  call baro_server_map_close(map)
  call baro_close(app)
end program
