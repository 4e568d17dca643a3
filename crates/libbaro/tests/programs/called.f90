! Prints each call that it gets; ends when a call asks for it.
module handlers
  use baro
  use, intrinsic :: iso_c_binding
  implicit none
  logical :: is_over = .false.
contains
  function say(given, data) bind(C) result(status)
    type(c_ptr), value :: given, data
    integer(c_int) :: status
    status = 0
    if (c_associated(data)) status = 1
    if (len(baro_call_text(given)) > 0) then
      print '(a)', 'said '//baro_call_text(given)
    else
      print '(a, f4.2)', 'said ', baro_call_real(given)
    end if
  end function

  function also(given, data) bind(C) result(status)
    type(c_ptr), value :: given, data
    integer(c_int) :: status
    status = 0
    if (c_associated(data) .or. .not. c_associated(given)) status = 1
    print '(a)', 'also'
  end function

  function finish(given, data) bind(C) result(status)
    type(c_ptr), value :: given, data
    integer(c_int) :: status
    status = 0
    if (c_associated(data) .or. .not. c_associated(given)) status = 1
    is_over = .true.
  end function
end module

program called
  use baro
  use handlers
  implicit none
  type(baro_publisher) :: app
  type(baro_knob) :: f, i, t
  integer(baro_handle) :: of
  integer :: count
  integer(c_int64_t) :: n
  interface
    function usleep(us) bind(C) result(code)
      import :: c_int
      integer(c_int), value :: us
      integer(c_int) :: code
    end function
  end interface
  app = baro_open('called')
  of = baro_publication(app, 'called')
  f = baro_declare_knob(of, 'f', 0.5d0, 0d0, 1d0, unit='1')
  i = baro_declare_knob(of, 'i', 5_c_int64_t, 0_c_int64_t, 9_c_int64_t)
  t = baro_declare_knob(of, 't', .false., help='true or not')
  if (baro_on(app, 'say', say, help='says it') /= BARO_OK) error stop 1
  if (baro_on(app, 'say', also, publication=of) /= BARO_OK) error stop 1
  if (baro_on(app, 'No', say) >= 0) error stop 2
  if (baro_fire('say', 'x', target='nonsense') >= 0) error stop 3
  if (baro_set_knob('called.f', 0.5d0) >= 0) error stop 4
  if (baro_on(app, 'end', finish) /= BARO_OK) error stop 5
  count = 0
  n = 0
  do while (.not. is_over)
    if (usleep(1000) /= 0) exit
    ! Frames set knobs without a poll.
    call baro_frame(of, n)
    count = count + baro_poll(app)
    n = n + 1
  end do
  print '(f4.2, 1x, i1, 1x, l1)', baro_knob_real(f), baro_knob_int(i), baro_knob_logical(t)
  if (count < 3) error stop 6
  call baro_close(app)
end program
