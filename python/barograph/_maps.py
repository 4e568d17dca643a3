"""Server maps: operations at servers that are added and taken out while programs run, and the
servers themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barograph._barograph import MapServer, ServerMap
from barograph._publication import _application

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike


def server_map(
    name: str,
    servers: Iterable[int],
    *,
    application: str | None = None,
    run_dir: str | PathLike[str] | None = None,
) -> ServerMap:
    """Declares that this program does operations at the servers of a map.

    ::

        servers = barograph.server_map("solver-io", servers=range(8))
        while True:
            with servers.operation() as op:
                fence = write_blocks(op.epoch, op.servers)
                if fence is None:
                    break
                op.refused(fence)

    ``servers`` are the numbers, 0 to 1,023, of those that the program begins with: the first epoch
    of a map that is new, and what is used where no agent keeps the map (``op.epoch`` is 0 then).

    The block begins when the operation may be done: at once, unless the map is being changed, and
    after ``wait`` seconds (60 unless given) in any case. ``op.start`` tells why it began.

    ``application`` is the name of this program, that of its script unless given; ``run_dir`` the
    run directory of the agent. Raises ValueError for a map that cannot be one.
    """
    name_of_program = _application() if application is None else application
    return ServerMap(name, list(servers), name_of_program, run_dir)


def map_server(
    name: str,
    number: int,
    *,
    application: str | None = None,
    run_dir: str | PathLike[str] | None = None,
) -> MapServer:
    """Declares that this program is a server of a map, by its number, 0 to 1,023.

    ::

        server = barograph.map_server("solver-io", 3)
        with server.serve(epoch) as request:
            if request.fence is not None:
                return answer_fenced(request.fence)
            store(block)
            request.done(len(block))

    A request is refused if its epoch is over, or not known here yet. A server that no agent has told
    of an epoch serves requests of epoch 0 alone, after it has waited for the agent for two seconds.
    """
    name_of_program = _application() if application is None else application
    return MapServer(name, number, name_of_program, run_dir)
