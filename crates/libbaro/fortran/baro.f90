! baro - barograph for Fortran 2008: publishes a program's own values, runs its functions on
! request, and reads the node's streams.
!
!   use baro
!   type(baro_publisher) :: app
!   integer(baro_handle) :: step, residual
!   app = baro_open('lulesh')
!   step = baro_publication(app, 'lulesh')
!   residual = baro_value(step, 'residual', BARO_FLOAT, unit='1')
!   call baro_put(residual, r)
!   call baro_frame(step, n)
!   call baro_close(app)
!
! A knob, which other programs may set, and a handler, which they may run (checkpoint is a function
! with bind(C), see baro_handler):
!
!   type(baro_knob) :: tolerance
!   tolerance = baro_declare_knob(step, 'tolerance', 1d-3, 1d-9, 1d0)
!   code = baro_on(app, 'checkpoint', checkpoint, publication=step)
!   called = baro_poll(app)
!   call solve(baro_knob_real(tolerance))
!
! All samples of many streams:
!
!   disks = baro_subscribe(node, 'disk.*{device=nvme*}')
!   do while (baro_subscription_next(disks, 1000000000_c_int64_t, update) == BARO_OK)
!     print *, update%name, update%labels, update%number
!   end do
!
! Control events, which programs and agents tell each other:
!
!   code = baro_control_publish(app, 'server.slow', '/scratch', number=2.5d0, confidence=0.9d0)
!   events = baro_control_subscribe(node, kind='server.*', sources='job=7')
!   do while (baro_control_wait(events, 1000000000_c_int64_t, event) == BARO_OK)
!     print *, event%kind, event%subject, event%number
!   end do
!
! Compile this file with the program: it includes baro_bindings.inc from its own folder, and module
! files fit one compiler only. Link with -lbaro. A refused declaration gives a handle of 0, which
! does nothing; baro_error() gives the reason. baro.h has the full documentation. Apache-2.0.
module baro
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer, parameter, public :: baro_handle = c_int64_t

  ! Types of values.
  integer(c_int), parameter, public :: BARO_INT = 1, BARO_FLOAT = 2, BARO_BOOL = 3, BARO_TEXT = 4
  integer(c_int), parameter, public :: BARO_BYTES = 6, BARO_JSON = 7, BARO_FLOATS = 8
  ! Kinds of values: how a value behaves over time.
  integer(c_int), parameter, public :: BARO_GAUGE = 1, BARO_COUNTER = 2, BARO_STATE = 3
  ! Who may read a publication.
  integer(c_int), parameter, public :: BARO_READERS_OWNER = 0, BARO_READERS_GROUP = 1, BARO_READERS_ALL = 2
  ! Return codes of functions; errors are negative.
  integer(c_int), parameter, public :: BARO_OK = 0, BARO_NOTHING = 1
  ! Why a phase of I/O may go on.
  integer(c_int), parameter, public :: BARO_IO_OFF = 0, BARO_IO_GRANTED = 1, BARO_IO_LATE = 2, BARO_IO_NO_AGENT = 3
  ! Why an operation at the servers of a map has begun; the result of baro_map_serve_begin.
  integer(c_int), parameter, public :: BARO_MAP_OFF = 0, BARO_MAP_CURRENT = 1, BARO_MAP_LATE = 2
  integer(c_int), parameter, public :: BARO_MAP_SERVED = 0, BARO_MAP_FENCED = 1
  ! Servers of a map have numbers below this one.
  integer, parameter, public :: BARO_MAP_SERVERS = 1024
  ! Quality of a sample: how its value was obtained.
  integer(c_int), parameter, public :: BARO_MEASURED = 0, BARO_DERIVED = 1, BARO_PREDICTED = 2, BARO_RECONCILED = 3

  integer(c_int64_t), parameter :: KIND_INT = 1, KIND_FLOAT = 2, KIND_BOOL = 3

  ! The publisher of this process.
  type, public :: baro_publisher
    private
    type(c_ptr) :: pointer = c_null_ptr
  end type

  ! The streams of this node, or of another one that is mirrored here, for reading.
  type, public :: baro_node
    private
    type(c_ptr) :: pointer = c_null_ptr
  end type

  ! A subscription: all new samples of the streams that match a pattern; for one thread at a time.
  type, public :: baro_subscription
    private
    type(c_ptr) :: pointer = c_null_ptr
  end type

  ! A new sample of a subscription: the name of its stream, and more.
  type, public :: baro_update
    character(len=:), allocatable :: name
    ! Labels of the stream, 'device=vda,node=n1'; empty if it has none.
    character(len=:), allocatable :: labels
    ! Time of the sample, nanoseconds since the epoch.
    integer(c_int64_t) :: ts = 0
    ! Number of earlier samples of this stream that were overwritten before they could be read.
    integer(c_int64_t) :: missed = 0
    ! Type of the value: BARO_INT...
    integer(c_int) :: type = 0
    ! The value, if it is a number; else 0.
    real(c_double) :: number = 0
    ! The value, if it is text, JSON or bytes; else empty.
    character(len=:), allocatable :: text
    ! The value, if it is an array; else of length 0.
    real(c_double), allocatable :: numbers(:)
  end type

  ! A subscription to control events; for one thread at a time.
  type, public :: baro_control_subscription
    private
    type(c_ptr) :: pointer = c_null_ptr
  end type

  ! A property of a control event.
  type, public :: baro_property
    character(len=:), allocatable :: name
    character(len=:), allocatable :: text
  end type

  ! A control event.
  type, public :: baro_control_event
    ! What has happened, and what it happened to.
    character(len=:), allocatable :: kind, subject
    ! The number that belongs to it, if it has one.
    real(c_double) :: number = 0
    logical :: has_number = .false.
    ! How sure its source is, 0 to 1.
    real(c_double) :: confidence = 0
    ! Nanoseconds since the epoch, and since the event.
    integer(c_int64_t) :: ts = 0, age_ns = 0
    ! Number among the events of its thread, and how many of them were lost before it.
    integer(c_int64_t) :: sequence = 0, missed = 0
    ! Process and thread that have published it, as they say.
    integer(c_int32_t) :: pid = 0, thread = 0
    ! Its source; empty where that is not known.
    character(len=:), allocatable :: node, application, job, rank, user, labels
    type(baro_property), allocatable :: properties(:)
    ! Whether this process has published it.
    logical :: is_own = .false.
  end type

  ! A volume on which the program does I/O.
  type, public :: baro_volume
    private
    type(c_ptr) :: pointer = c_null_ptr
  end type

  ! A map of servers at which the program does operations.
  type, public :: baro_servers
    private
    type(c_ptr) :: pointer = c_null_ptr
  end type

  ! A server of a map.
  type, public :: baro_server
    private
    type(c_ptr) :: pointer = c_null_ptr
  end type

  ! An operation at the servers of a map. The same layout as baro_map_operation_t of baro.h.
  type, bind(C), public :: baro_operation
    integer(c_int64_t) :: number = 0
    ! The epoch, which goes to the servers with each request.
    integer(c_int64_t) :: epoch = 0
    ! BARO_MAP_OFF...
    integer(c_int) :: start = 0
    integer(c_int32_t) :: servers_count = 0
    ! In order; those beyond servers_count mean nothing.
    integer(c_int16_t) :: servers(BARO_MAP_SERVERS)
  end type

  ! A request that a server serves. The same layout as baro_map_request_t of baro.h.
  type, bind(C), public :: baro_request
    integer(c_int64_t) :: number = 0, begun_ns = 0, before = 0
    ! The first epoch that is served, if the request is not.
    integer(c_int64_t) :: fence = 0
  end type

  ! A knob: a value that others may set.
  type, public :: baro_knob
    private
    type(c_ptr) :: pointer = c_null_ptr
  end type

  ! A call: one firing of a trigger, as it is passed to a handler. The same layout as baro_call_t of
  ! baro.h.
  type, bind(C) :: c_call
    integer(c_int64_t) :: id, issued_ns, expires_ns
    type(c_ptr) :: name
    integer(c_int) :: type
    integer(c_size_t) :: bytes
    integer(c_int64_t) :: content
  end type

  ! A new sample. The same layout as baro_update_t of baro.h.
  type, bind(C) :: c_update
    type(c_ptr) :: name, labels
    integer(c_int64_t) :: ts
    real(c_double) :: error
    integer(c_int) :: quality, type
    integer(c_size_t) :: bytes
    integer(c_int64_t) :: content, missed
  end type

  ! A property of a control event. The same layout as baro_property_t of baro.h.
  type, bind(C) :: c_property
    type(c_ptr) :: name, text
  end type

  ! A control event. The same layout as baro_control_event_t of baro.h.
  type, bind(C) :: c_control_event
    type(c_ptr) :: kind, subject
    real(c_double) :: number, confidence
    integer(c_int64_t) :: ts, age_ns, sequence, missed
    integer(c_int32_t) :: pid, thread
    type(c_ptr) :: node, application, job, rank, user, labels, properties
    integer(c_size_t) :: properties_count
    integer(c_int) :: is_own
  end type

  ! The events that are wanted. The same layout as baro_control_filter_t of baro.h.
  type, bind(C) :: c_control_filter
    integer(c_size_t) :: size
    type(c_ptr) :: kind, subject, sources, properties
    real(c_double) :: confidence_min
    integer(c_int64_t) :: age_ns_max, past_ns
    integer(c_int) :: exclude_own
  end type

  abstract interface
    ! A function that is run for a control event returns 0 for the next one. baro_control_read reads
    ! `given`.
    function baro_control_handler(given, data) bind(C) result(status)
      import :: c_ptr, c_int
      type(c_ptr), value :: given, data
      integer(c_int) :: status
    end function

    ! A handler returns 0 if it succeeded. baro_call_text and baro_call_real read `given`.
    function baro_handler(given, data) bind(C) result(status)
      import :: c_ptr, c_int
      type(c_ptr), value :: given, data
      integer(c_int) :: status
    end function
  end interface

  public :: baro_handler, baro_on, baro_poll, baro_listen, baro_call_text, baro_call_real
  public :: baro_declare_knob, baro_knob_real, baro_knob_int, baro_knob_logical, baro_fire, baro_set_knob
  public :: baro_open, baro_close, baro_is_enabled, baro_lost, baro_refused_count, baro_label
  public :: baro_io_volume, baro_io_volume_close, baro_io_begin, baro_io_step, baro_io_end
  public :: baro_server_map, baro_server_map_close, baro_map_begin, baro_map_end, baro_map_refused
  public :: baro_map_server, baro_map_server_close, baro_map_serve_begin, baro_map_serve_end
  public :: baro_publication, baro_value, baro_put, baro_put_json, baro_frame, baro_commit, baro_error
  public :: baro_node_open, baro_node_open_mirrored, baro_node_is_alive, baro_node_close, baro_latest, baro_latest_expected
  public :: baro_subscribe, baro_subscription_next, baro_subscription_close
  public :: baro_control_handler, baro_control_readers, baro_control_publish, baro_control_subscribe
  public :: baro_control_check, baro_control_wait, baro_control_on, baro_control_dispatch, baro_control_read
  public :: baro_control_missed, baro_control_close

  ! Puts a value with the time of the call.
  interface baro_put
    module procedure put_real64, put_real32, put_int64, put_int32, put_logical, put_text, put_reals
  end interface

  ! Ends a frame: its number, and all puts of this thread since its last frame, appear at once.
  interface baro_frame
    module procedure frame_int64, frame_int32
  end interface

  ! Declares a knob, or finds it again: a float or an integer within bounds, or a logical.
  interface baro_declare_knob
    module procedure knob_real64, knob_int64, knob_logical
  end interface

  ! Sets a knob of other programs, named 'publication.knob'.
  interface baro_set_knob
    module procedure set_real64, set_int64, set_logical
  end interface

  include 'baro_bindings.inc'

contains

  ! Opens this process's publisher. If nothing can be published, it is disabled and its calls do
  ! nothing.
  function baro_open(application) result(publisher)
    character(len=*), intent(in) :: application
    type(baro_publisher) :: publisher
    publisher%pointer = c_baro_open(c_text(application), c_null_ptr)
  end function

  subroutine baro_close(publisher)
    type(baro_publisher), intent(inout) :: publisher
    call c_baro_close(publisher%pointer)
    publisher%pointer = c_null_ptr
  end subroutine

  function baro_is_enabled(publisher) result(enabled)
    type(baro_publisher), intent(in) :: publisher
    logical :: enabled
    enabled = c_baro_is_enabled(publisher%pointer) /= 0
  end function

  ! Number of values of this process that were dropped.
  function baro_lost(publisher) result(lost)
    type(baro_publisher), intent(in) :: publisher
    integer(c_int64_t) :: lost
    lost = c_baro_lost(publisher%pointer)
  end function

  ! Number of declarations of this process that the agent refuses at present: none of their puts is
  ! kept.
  function baro_refused_count(publisher) result(refused)
    type(baro_publisher), intent(in) :: publisher
    integer(c_int64_t) :: refused
    refused = c_baro_refused_count(publisher%pointer)
  end function

  ! Adds a label to the streams of publications that are declared from now on.
  function baro_label(publisher, name, text) result(code)
    type(baro_publisher), intent(in) :: publisher
    character(len=*), intent(in) :: name, text
    integer(c_int) :: code
    code = c_baro_label(publisher%pointer, c_text(name), c_text(text))
  end function

  function baro_publication(publisher, name, readers) result(handle)
    type(baro_publisher), intent(in) :: publisher
    character(len=*), intent(in) :: name
    integer(c_int), intent(in), optional :: readers
    integer(baro_handle) :: handle
    integer(c_int) :: who
    who = BARO_READERS_OWNER
    if (present(readers)) who = readers
    handle = c_baro_publication(publisher%pointer, c_text(name), who)
  end function

  ! Declares a volume, or finds it again: the path of a file or directory on it, or its name in the
  ! agent's configuration.
  function baro_io_volume(publisher, volume) result(found)
    type(baro_publisher), intent(in) :: publisher
    character(len=*), intent(in) :: volume
    type(baro_volume) :: found
    found%pointer = c_baro_io_volume(publisher%pointer, c_text(volume))
  end function

  subroutine baro_io_volume_close(volume)
    type(baro_volume), intent(inout) :: volume
    call c_baro_io_volume_close(volume%pointer)
    volume%pointer = c_null_ptr
  end subroutine

  ! Begins a phase of I/O, and returns when it may do I/O. bytes is what it will read and write, -1
  ! if it does not know; wait_ms is the longest wait, 60,000 unless given.
  function baro_io_begin(volume, bytes, priority, wait_ms, grant) result(phase)
    type(baro_volume), intent(in) :: volume
    integer(c_int64_t), intent(in), optional :: bytes, wait_ms
    integer(c_int), intent(in), optional :: priority
    integer(c_int), intent(out), optional :: grant
    integer(baro_handle) :: phase
    integer(c_int64_t) :: size, longest
    integer(c_int) :: rank, why
    size = -1_c_int64_t
    longest = 0_c_int64_t
    rank = 0_c_int
    if (present(bytes)) size = bytes
    if (present(wait_ms)) longest = wait_ms
    if (present(priority)) rank = priority
    phase = c_baro_io_begin(volume%pointer, size, rank, longest, why)
    if (present(grant)) grant = why
  end function

  ! Says how much a phase has done, and waits if its grant was taken away for others.
  function baro_io_step(volume, phase, bytes_done) result(grant)
    type(baro_volume), intent(in) :: volume
    integer(baro_handle), intent(in) :: phase
    integer(c_int64_t), intent(in) :: bytes_done
    integer(c_int) :: grant
    grant = c_baro_io_step(volume%pointer, phase, bytes_done, 0_c_int64_t)
  end function

  ! Ends a phase. To end one twice does no harm.
  subroutine baro_io_end(volume, phase, bytes_done)
    type(baro_volume), intent(in) :: volume
    integer(baro_handle), intent(in) :: phase
    integer(c_int64_t), intent(in) :: bytes_done
    integer(c_int) :: code
    code = c_baro_io_end(volume%pointer, phase, bytes_done)
  end subroutine

  ! Declares that this process does operations at the servers of a map, or finds the map again.
  ! servers are the numbers of those that the program begins with.
  function baro_server_map(publisher, name, servers) result(found)
    type(baro_publisher), intent(in) :: publisher
    character(len=*), intent(in) :: name
    integer, intent(in) :: servers(:)
    type(baro_servers) :: found
    integer(c_int32_t) :: numbers(size(servers))
    numbers = int(servers, c_int32_t)
    found%pointer = c_baro_server_map(publisher%pointer, c_text(name), numbers, size(servers, kind=c_size_t))
  end function

  subroutine baro_server_map_close(map)
    type(baro_servers), intent(inout) :: map
    call c_baro_server_map_close(map%pointer)
    map%pointer = c_null_ptr
  end subroutine

  ! Begins an operation, and returns when it may be done. wait_ms is the longest wait, 60,000 unless
  ! given.
  subroutine baro_map_begin(map, operation, wait_ms)
    type(baro_servers), intent(in) :: map
    type(baro_operation), intent(out) :: operation
    integer(c_int64_t), intent(in), optional :: wait_ms
    integer(c_int64_t) :: longest
    integer(c_int) :: code
    longest = 0_c_int64_t
    if (present(wait_ms)) longest = wait_ms
    code = c_baro_map_begin(map%pointer, longest, operation)
  end subroutine

  ! Ends an operation. To end one twice does no harm.
  subroutine baro_map_end(map, operation)
    type(baro_servers), intent(in) :: map
    type(baro_operation), intent(inout) :: operation
    integer(c_int) :: code
    code = c_baro_map_end(map%pointer, operation)
  end subroutine

  ! Ends an operation that a server has refused with a fence: begin it again.
  subroutine baro_map_refused(map, operation, fence)
    type(baro_servers), intent(in) :: map
    type(baro_operation), intent(inout) :: operation
    integer(c_int64_t), intent(in) :: fence
    integer(c_int) :: code
    code = c_baro_map_refused(map%pointer, operation, fence)
  end subroutine

  ! Declares that this process is a server of a map, by its number.
  function baro_map_server(publisher, name, number) result(found)
    type(baro_publisher), intent(in) :: publisher
    character(len=*), intent(in) :: name
    integer, intent(in) :: number
    type(baro_server) :: found
    found%pointer = c_baro_map_server(publisher%pointer, c_text(name), int(number, c_int32_t))
  end function

  subroutine baro_map_server_close(server)
    type(baro_server), intent(inout) :: server
    call c_baro_map_server_close(server%pointer)
    server%pointer = c_null_ptr
  end subroutine

  ! Begins to serve a request of an epoch: BARO_MAP_SERVED, or BARO_MAP_FENCED if the epoch is over.
  function baro_map_serve_begin(server, epoch, request) result(answer)
    type(baro_server), intent(in) :: server
    integer(c_int64_t), intent(in) :: epoch
    type(baro_request), intent(out) :: request
    integer(c_int) :: answer
    answer = c_baro_map_serve_begin(server%pointer, epoch, request)
  end function

  ! Ends a request of so many bytes.
  subroutine baro_map_serve_end(server, request, bytes)
    type(baro_server), intent(in) :: server
    type(baro_request), intent(inout) :: request
    integer(c_int64_t), intent(in) :: bytes
    integer(c_int) :: code
    code = c_baro_map_serve_end(server%pointer, request, bytes)
  end subroutine

  ! Declares a value, or finds it again. bytes_max is the longest text, JSON or array, in bytes:
  ! 4,096 unless given, 65,536 at most.
  function baro_value(publication, name, type, unit, kind, help, bytes_max) result(handle)
    integer(baro_handle), intent(in) :: publication
    character(len=*), intent(in) :: name
    integer(c_int), intent(in) :: type
    character(len=*), intent(in), optional :: unit, help
    integer(c_int), intent(in), optional :: kind, bytes_max
    integer(baro_handle) :: handle
    character(len=:), allocatable :: said_unit, said_help
    integer(c_int) :: said_kind
    integer(c_int32_t) :: said_bytes_max
    said_unit = ''
    said_help = ''
    said_kind = BARO_GAUGE
    if (present(unit)) said_unit = unit
    if (present(help)) said_help = help
    if (present(kind)) said_kind = kind
    said_bytes_max = 0
    if (present(bytes_max)) said_bytes_max = int(bytes_max, c_int32_t)
    handle = c_baro_value(publication, c_text(name), type, c_text(said_unit), said_kind, c_text(said_help), &
        said_bytes_max)
  end function

  subroutine put_real64(handle, x)
    integer(baro_handle), intent(in) :: handle
    real(c_double), intent(in) :: x
    if (handle == 0) return
    call c_baro_put(handle, KIND_FLOAT, transfer(x, 0_c_int64_t), c_null_ptr)
  end subroutine

  subroutine put_real32(handle, x)
    integer(baro_handle), intent(in) :: handle
    real(c_float), intent(in) :: x
    call put_real64(handle, real(x, c_double))
  end subroutine

  subroutine put_int64(handle, x)
    integer(baro_handle), intent(in) :: handle
    integer(c_int64_t), intent(in) :: x
    if (handle == 0) return
    call c_baro_put(handle, KIND_INT, x, c_null_ptr)
  end subroutine

  subroutine put_int32(handle, x)
    integer(baro_handle), intent(in) :: handle
    integer(c_int32_t), intent(in) :: x
    call put_int64(handle, int(x, c_int64_t))
  end subroutine

  subroutine put_logical(handle, x)
    integer(baro_handle), intent(in) :: handle
    logical, intent(in) :: x
    if (handle == 0) return
    call c_baro_put(handle, KIND_BOOL, merge(1_c_int64_t, 0_c_int64_t, x), c_null_ptr)
  end subroutine

  subroutine put_text(handle, x)
    integer(baro_handle), intent(in) :: handle
    character(len=*), intent(in) :: x
    integer(c_int) :: code
    if (handle == 0) return
    code = c_baro_put_text(handle, c_text(x))
  end subroutine

  ! Puts an array, to a value of type BARO_FLOATS.
  subroutine put_reals(handle, x)
    integer(baro_handle), intent(in) :: handle
    real(c_double), intent(in) :: x(:)
    integer(c_int) :: code
    if (handle == 0) return
    code = c_baro_put_floats(handle, x, size(x, kind=c_size_t))
  end subroutine

  ! Puts JSON, to a value of type BARO_JSON or BARO_TEXT.
  subroutine baro_put_json(handle, json)
    integer(baro_handle), intent(in) :: handle
    character(len=*), intent(in) :: json
    integer(c_int) :: code
    if (handle == 0) return
    code = c_baro_put_json(handle, c_text(json))
  end subroutine

  subroutine frame_int64(publication, number)
    integer(baro_handle), intent(in) :: publication
    integer(c_int64_t), intent(in) :: number
    if (publication == 0) return
    call c_baro_frame(publication, number, c_null_ptr)
  end subroutine

  subroutine frame_int32(publication, number)
    integer(baro_handle), intent(in) :: publication
    integer(c_int32_t), intent(in) :: number
    call frame_int64(publication, int(number, c_int64_t))
  end subroutine

  ! Sets the handler of a trigger of the process, which runs on the thread of baro_poll or
  ! baro_listen; with `publication`, of a trigger of that publication, which calls match by its
  ! labels too.
  function baro_on(publisher, name, handler, help, publication) result(code)
    type(baro_publisher), intent(in) :: publisher
    character(len=*), intent(in) :: name
    procedure(baro_handler) :: handler
    character(len=*), intent(in), optional :: help
    integer(baro_handle), intent(in), optional :: publication
    integer(c_int) :: code
    if (present(publication)) then
      code = c_publication_on(publisher%pointer, publication, c_text(name), c_text(or_none(help)), &
        c_funloc(handler), c_null_ptr, c_null_funptr)
    else
      code = c_baro_on(publisher%pointer, c_text(name), c_text(or_none(help)), c_funloc(handler), c_null_ptr)
    end if
  end function

  ! Runs the handlers of new calls and applies new settings of knobs. Returns the number of both.
  function baro_poll(publisher) result(called)
    type(baro_publisher), intent(in) :: publisher
    integer(c_int) :: called
    called = 0
    if (c_associated(publisher%pointer)) called = c_baro_poll(c_null_ptr)
  end function

  ! Starts a thread that sleeps until a trigger is fired and runs its handler.
  function baro_listen(publisher) result(code)
    type(baro_publisher), intent(in) :: publisher
    integer(c_int) :: code
    code = c_baro_listen(publisher%pointer)
  end function

  ! Payload of a call, for a handler, if it is a text, JSON or bytes; else empty.
  function baro_call_text(given) result(text)
    type(c_ptr), intent(in) :: given
    character(len=:), allocatable :: text
    type(c_call), pointer :: read
    call c_f_pointer(given, read)
    text = ''
    if (read%type == BARO_TEXT .or. read%type == BARO_BYTES .or. read%type == BARO_JSON) &
      text = text_at(transfer(read%content, c_null_ptr), int(read%bytes))
  end function

  ! Payload of a call, for a handler, if it is a number; else 0.
  function baro_call_real(given) result(x)
    type(c_ptr), intent(in) :: given
    real(c_double) :: x
    type(c_call), pointer :: read
    call c_f_pointer(given, read)
    x = 0
    if (read%type == BARO_FLOAT) x = transfer(read%content, x)
    if (read%type == BARO_INT .or. read%type == BARO_BOOL) x = real(read%content, c_double)
  end function

  function knob_real64(publication, name, initial, min, max, unit, help) result(knob)
    integer(baro_handle), intent(in) :: publication
    character(len=*), intent(in) :: name
    real(c_double), intent(in) :: initial, min, max
    character(len=*), intent(in), optional :: unit, help
    type(baro_knob) :: knob
    knob%pointer = c_baro_knob_f64(publication, c_text(name), initial, min, max, c_text(or_none(unit)), &
                                  c_text(or_none(help)))
  end function

  function knob_int64(publication, name, initial, min, max, unit, help) result(knob)
    integer(baro_handle), intent(in) :: publication
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: initial, min, max
    character(len=*), intent(in), optional :: unit, help
    type(baro_knob) :: knob
    knob%pointer = c_baro_knob_i64(publication, c_text(name), initial, min, max, c_text(or_none(unit)), &
                                  c_text(or_none(help)))
  end function

  function knob_logical(publication, name, initial, help) result(knob)
    integer(baro_handle), intent(in) :: publication
    character(len=*), intent(in) :: name
    logical, intent(in) :: initial
    character(len=*), intent(in), optional :: help
    type(baro_knob) :: knob
    knob%pointer = c_baro_knob_bool(publication, c_text(name), merge(1_c_int, 0_c_int, initial), c_text(or_none(help)))
  end function

  ! Returns the last setting of a knob; 0 for a knob that was refused.
  function baro_knob_real(knob) result(x)
    type(baro_knob), intent(in) :: knob
    real(c_double) :: x
    x = c_baro_knob_read_f64(knob%pointer)
  end function

  function baro_knob_int(knob) result(x)
    type(baro_knob), intent(in) :: knob
    integer(c_int64_t) :: x
    x = c_baro_knob_read_i64(knob%pointer)
  end function

  function baro_knob_logical(knob) result(x)
    type(baro_knob), intent(in) :: knob
    logical :: x
    x = c_baro_knob_read_i64(knob%pointer) /= 0
  end function

  ! Fires a trigger of other programs, with or without a text, in all processes with the labels of
  ! the target ('label=value,label=value'), and waits up to wait_ms milliseconds for their answers.
  ! Negative if no process was called; baro_error() gives the reason.
  function baro_fire(name, text, target, wait_ms) result(code)
    character(len=*), intent(in) :: name
    character(len=*), intent(in), optional :: text, target
    integer, intent(in), optional :: wait_ms
    integer(c_int) :: code
    integer(c_int) :: type
    type = 0
    if (present(text)) type = BARO_TEXT
    code = c_baro_fire(c_null_ptr, c_text(name), c_text(or_none(target)), type, c_text(or_none(text)), 0_c_size_t, &
                       0_c_int64_t, or_zero(wait_ms), c_null_ptr)
  end function

  function set_real64(knob, x, target, wait_ms) result(code)
    character(len=*), intent(in) :: knob
    real(c_double), intent(in) :: x
    character(len=*), intent(in), optional :: target
    integer, intent(in), optional :: wait_ms
    integer(c_int) :: code
    code = c_baro_set_f64(c_null_ptr, c_text(knob), c_text(or_none(target)), x, or_zero(wait_ms), c_null_ptr)
  end function

  function set_int64(knob, x, target, wait_ms) result(code)
    character(len=*), intent(in) :: knob
    integer(c_int64_t), intent(in) :: x
    character(len=*), intent(in), optional :: target
    integer, intent(in), optional :: wait_ms
    integer(c_int) :: code
    code = c_baro_set_i64(c_null_ptr, c_text(knob), c_text(or_none(target)), x, or_zero(wait_ms), c_null_ptr)
  end function

  function set_logical(knob, x, target, wait_ms) result(code)
    character(len=*), intent(in) :: knob
    logical, intent(in) :: x
    character(len=*), intent(in), optional :: target
    integer, intent(in), optional :: wait_ms
    integer(c_int) :: code
    code = c_baro_set_bool(c_null_ptr, c_text(knob), c_text(or_none(target)), merge(1_c_int, 0_c_int, x), &
                           or_zero(wait_ms), c_null_ptr)
  end function

  function or_none(given) result(text)
    character(len=*), intent(in), optional :: given
    character(len=:), allocatable :: text
    text = ''
    if (present(given)) text = given
  end function

  function or_zero(given) result(number)
    integer, intent(in), optional :: given
    integer(c_int64_t) :: number
    number = 0
    if (present(given)) number = given
  end function

  ! Returns the last error of this thread and its remedy.
  function baro_error() result(text)
    character(len=:), allocatable :: text
    type(c_ptr) :: found
    found = c_baro_error()
    text = text_at(found, int(c_strlen(found)))
  end function

  ! Maps the streams of the node's agent into this process.
  function baro_node_open() result(node)
    type(baro_node) :: node
    node%pointer = c_baro_node_open(c_null_ptr)
  end function

  ! Maps the streams of another node of the cluster, as they are mirrored in memory of this one. If
  ! there is no such mirror, reading it is an error; baro_error() names the nodes that are mirrored.
  function baro_node_open_mirrored(node, name) result(mirrored)
    type(baro_node), intent(in) :: node
    character(len=*), intent(in) :: name
    type(baro_node) :: mirrored
    mirrored%pointer = c_baro_node_open_mirrored(node%pointer, c_text(name))
  end function

  ! Whether the values are kept up to date: the agent lives, and another node is heard.
  function baro_node_is_alive(node) result(is_alive)
    type(baro_node), intent(in) :: node
    logical :: is_alive
    is_alive = c_baro_node_is_alive(node%pointer) > 0
  end function

  subroutine baro_node_close(node)
    type(baro_node), intent(inout) :: node
    call c_baro_node_close(node%pointer)
    node%pointer = c_null_ptr
  end subroutine

  ! Reads the newest value of the one stream that a selector matches: its time (ns since the epoch)
  ! and the time since the last look at its resource (ns).
  function baro_latest(node, selector, ts, number, age_ns) result(code)
    type(baro_node), intent(in) :: node
    character(len=*), intent(in) :: selector
    integer(c_int64_t), intent(out) :: ts, age_ns
    real(c_double), intent(out) :: number
    integer(c_int) :: code
    ts = 0
    age_ns = 0
    number = 0
    code = c_baro_latest(node%pointer, c_text(selector), ts, number, age_ns)
  end function

  ! Like baro_latest, but if the stream has a forecast, reads the value predicted for now: quality
  ! is then BARO_PREDICTED, and the true value is within error of number with the agent's
  ! confidence.
  function baro_latest_expected(node, selector, ts, number, error, quality, age_ns) result(code)
    type(baro_node), intent(in) :: node
    character(len=*), intent(in) :: selector
    integer(c_int64_t), intent(out) :: ts, age_ns
    real(c_double), intent(out) :: number, error
    integer(c_int), intent(out) :: quality
    integer(c_int) :: code
    ts = 0
    age_ns = 0
    number = 0
    error = 0
    quality = 0
    code = c_baro_expected(node%pointer, c_text(selector), ts, number, error, quality, age_ns)
  end function

  ! Follows the streams that match a pattern, such as 'disk.*{device=nvme*}', including those that
  ! are registered later: first the newest sample of each stream, then every later sample once.
  function baro_subscribe(node, pattern) result(subscription)
    type(baro_node), intent(in) :: node
    character(len=*), intent(in) :: pattern
    type(baro_subscription) :: subscription
    subscription%pointer = c_baro_subscribe(node%pointer, c_text(pattern))
  end function

  ! Reads the next sample; waits for it up to timeout_ns. BARO_NOTHING if none came.
  function baro_subscription_next(subscription, timeout_ns, update) result(code)
    type(baro_subscription), intent(in) :: subscription
    integer(c_int64_t), intent(in) :: timeout_ns
    type(baro_update), intent(out) :: update
    integer(c_int) :: code
    type(c_ptr) :: given
    type(c_update), pointer :: read
    real(c_double), pointer :: numbers(:)
    code = c_baro_next(subscription%pointer, timeout_ns, given)
    if (code /= BARO_OK) return
    call c_f_pointer(given, read)
    update%name = text_at(read%name, int(c_strlen(read%name)))
    update%labels = text_at(read%labels, int(c_strlen(read%labels)))
    update%ts = read%ts
    update%missed = read%missed
    update%type = read%type
    update%text = ''
    allocate (update%numbers(0))
    select case (read%type)
    case (BARO_FLOAT)
      update%number = transfer(read%content, update%number)
    case (BARO_INT, BARO_BOOL)
      update%number = real(read%content, c_double)
    case (BARO_FLOATS)
      call c_f_pointer(transfer(read%content, c_null_ptr), numbers, [int(read%bytes) / 8])
      update%numbers = numbers
    case default
      update%text = text_at(transfer(read%content, c_null_ptr), int(read%bytes))
    end select
  end function

  subroutine baro_subscription_close(subscription)
    type(baro_subscription), intent(inout) :: subscription
    call c_baro_subscription_close(subscription%pointer)
    subscription%pointer = c_null_ptr
  end subroutine

  ! Says who may read the control events of this program, before the first one; otherwise it is
  ! their owner.
  function baro_control_readers(publisher, readers) result(code)
    type(baro_publisher), intent(in) :: publisher
    integer(c_int), intent(in) :: readers
    integer(c_int) :: code
    code = c_baro_control_readers(publisher%pointer, readers)
  end function

  ! Publishes a control event, with the puts of this thread since its last frame. The confidence is 1
  ! unless given.
  function baro_control_publish(publisher, kind, subject, number, confidence, properties) result(code)
    type(baro_publisher), intent(in) :: publisher
    character(len=*), intent(in) :: kind
    character(len=*), intent(in), optional :: subject
    real(c_double), intent(in), optional :: number, confidence
    type(baro_property), intent(in), optional :: properties(:)
    integer(c_int) :: code
    real(c_double) :: given, sure
    character(kind=c_char), allocatable, target :: texts(:)
    type(c_property), allocatable :: pairs(:)
    integer :: at, from, count
    ! A number that is none; no constant, which compilers refuse.
    given = transfer(9221120237041090560_c_int64_t, given)
    if (present(number)) given = number
    sure = 1
    if (present(confidence)) sure = confidence
    count = 0
    if (present(properties)) count = size(properties)
    allocate (pairs(count), texts(0))
    do at = 1, count
      texts = [texts, c_text(properties(at)%name), c_text(properties(at)%text)]
    end do
    from = 1
    do at = 1, count
      pairs(at)%name = c_loc(texts(from))
      from = from + len_trim(properties(at)%name) + 1
      pairs(at)%text = c_loc(texts(from))
      from = from + len_trim(properties(at)%text) + 1
    end do
    if (present(subject)) then
      code = c_baro_control_event(publisher%pointer, c_text(kind), c_text(subject), given, sure, pairs, &
        int(count, c_size_t))
    else
      code = c_baro_control_event(publisher%pointer, c_text(kind), c_text(''), given, sure, pairs, &
        int(count, c_size_t))
    end if
  end function

  ! Subscribes to control events: patterns of kind and subject; sources as 'job=7,rank=0'; properties
  ! as 'policy=set10*'; the least confidence; the greatest age; past events that come first; without
  ! those of this process.
  function baro_control_subscribe(node, kind, subject, sources, properties, confidence_min, age_ns_max, past_ns, &
      exclude_own) result(subscription)
    type(baro_node), intent(in) :: node
    character(len=*), intent(in), optional :: kind, subject, sources, properties
    real(c_double), intent(in), optional :: confidence_min
    integer(c_int64_t), intent(in), optional :: age_ns_max, past_ns
    logical, intent(in), optional :: exclude_own
    type(baro_control_subscription) :: subscription
    type(c_control_filter) :: filter
    character(kind=c_char), allocatable, target :: texts(:, :)
    integer :: longest
    longest = 1
    if (present(kind)) longest = max(longest, len_trim(kind) + 1)
    if (present(subject)) longest = max(longest, len_trim(subject) + 1)
    if (present(sources)) longest = max(longest, len_trim(sources) + 1)
    if (present(properties)) longest = max(longest, len_trim(properties) + 1)
    allocate (texts(longest, 4))
    texts = c_null_char
    if (present(kind)) texts(1:len_trim(kind) + 1, 1) = c_text(kind)
    if (present(subject)) texts(1:len_trim(subject) + 1, 2) = c_text(subject)
    if (present(sources)) texts(1:len_trim(sources) + 1, 3) = c_text(sources)
    if (present(properties)) texts(1:len_trim(properties) + 1, 4) = c_text(properties)
    filter%size = c_sizeof(filter)
    filter%kind = c_loc(texts(1, 1))
    filter%subject = c_loc(texts(1, 2))
    filter%sources = c_loc(texts(1, 3))
    filter%properties = c_loc(texts(1, 4))
    filter%confidence_min = 0
    if (present(confidence_min)) filter%confidence_min = confidence_min
    filter%age_ns_max = 0
    if (present(age_ns_max)) filter%age_ns_max = age_ns_max
    filter%past_ns = 0
    if (present(past_ns)) filter%past_ns = past_ns
    filter%exclude_own = 0
    if (present(exclude_own)) filter%exclude_own = merge(1_c_int, 0_c_int, exclude_own)
    subscription%pointer = c_baro_control_subscribe(node%pointer, filter)
  end function

  ! Reads the next event that is here already; never waits. BARO_NOTHING if there is none.
  function baro_control_check(subscription, event) result(code)
    type(baro_control_subscription), intent(in) :: subscription
    type(baro_control_event), intent(out) :: event
    integer(c_int) :: code
    code = baro_control_wait(subscription, 0_c_int64_t, event)
  end function

  ! Reads the next event; waits for it up to timeout_ns. BARO_NOTHING if none came.
  function baro_control_wait(subscription, timeout_ns, event) result(code)
    type(baro_control_subscription), intent(in) :: subscription
    integer(c_int64_t), intent(in) :: timeout_ns
    type(baro_control_event), intent(out) :: event
    integer(c_int) :: code
    type(c_ptr) :: given
    code = c_baro_control_wait(subscription%pointer, timeout_ns, given)
    if (code == BARO_OK) event = baro_control_read(given)
  end function

  ! Sets the function that baro_control_dispatch runs for each event.
  function baro_control_on(subscription, handler, data) result(code)
    type(baro_control_subscription), intent(in) :: subscription
    procedure(baro_control_handler) :: handler
    type(c_ptr), intent(in), optional :: data
    integer(c_int) :: code
    type(c_ptr) :: held
    held = c_null_ptr
    if (present(data)) held = data
    code = c_baro_control_on(subscription%pointer, c_funloc(handler), held)
  end function

  ! Waits up to timeout_ns for an event, and runs the function for it and for those that are here by
  ! then. Returns for how many; negative for an error.
  function baro_control_dispatch(subscription, timeout_ns) result(handled)
    type(baro_control_subscription), intent(in) :: subscription
    integer(c_int64_t), intent(in) :: timeout_ns
    integer(c_int) :: handled
    handled = c_baro_control_dispatch(subscription%pointer, timeout_ns)
  end function

  ! Copies an event, as a function of baro_control_on is given it.
  function baro_control_read(given) result(event)
    type(c_ptr), intent(in) :: given
    type(baro_control_event) :: event
    type(c_control_event), pointer :: read
    type(c_property), pointer :: pairs(:)
    integer :: at
    call c_f_pointer(given, read)
    event%kind = whole_text(read%kind)
    event%subject = whole_text(read%subject)
    event%has_number = .not. read%number /= read%number
    if (event%has_number) event%number = read%number
    event%confidence = read%confidence
    event%ts = read%ts
    event%age_ns = read%age_ns
    event%sequence = read%sequence
    event%missed = read%missed
    event%pid = read%pid
    event%thread = read%thread
    event%node = whole_text(read%node)
    event%application = whole_text(read%application)
    event%job = whole_text(read%job)
    event%rank = whole_text(read%rank)
    event%user = whole_text(read%user)
    event%labels = whole_text(read%labels)
    event%is_own = read%is_own /= 0
    allocate (event%properties(int(read%properties_count)))
    if (read%properties_count == 0) return
    call c_f_pointer(read%properties, pairs, [int(read%properties_count)])
    do at = 1, size(pairs)
      event%properties(at)%name = whole_text(pairs(at)%name)
      event%properties(at)%text = whole_text(pairs(at)%text)
    end do
  end function

  ! Number of events that were lost so far.
  function baro_control_missed(subscription) result(missed)
    type(baro_control_subscription), intent(in) :: subscription
    integer(c_int64_t) :: missed
    missed = c_baro_control_missed(subscription%pointer)
  end function

  subroutine baro_control_close(subscription)
    type(baro_control_subscription), intent(inout) :: subscription
    call c_baro_control_close(subscription%pointer)
    subscription%pointer = c_null_ptr
  end subroutine

  ! Copies a C string.
  function whole_text(place) result(text)
    type(c_ptr), intent(in) :: place
    character(len=:), allocatable :: text
    text = text_at(place, int(c_strlen(place)))
  end function

  ! Copies `length` bytes from C memory into a text.
  function text_at(place, length) result(text)
    type(c_ptr), intent(in) :: place
    integer, intent(in) :: length
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: bytes(:)
    integer :: at
    allocate (character(len=length) :: text)
    if (length == 0) return
    call c_f_pointer(place, bytes, [length])
    do at = 1, length
      text(at:at) = bytes(at)
    end do
  end function

  ! Converts a text to a C string: without the blanks at its end, with a zero byte.
  pure function c_text(text) result(bytes)
    character(len=*), intent(in) :: text
    character(kind=c_char) :: bytes(len_trim(text) + 1)
    integer :: at
    do at = 1, len_trim(text)
      bytes(at) = text(at:at)
    end do
    bytes(len_trim(text) + 1) = c_null_char
  end function

end module
