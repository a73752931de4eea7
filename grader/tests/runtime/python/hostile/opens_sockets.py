"""Opens sockets of all kinds, and looks for hosts."""

import socket

for attempt in (
    lambda: socket.socket(),
    lambda: socket.socketpair(),
    lambda: socket.create_connection(("127.0.0.1", 22), 1),
    lambda: socket.create_server(("127.0.0.1", 0)),
    lambda: socket.getaddrinfo("localhost", 80),
    lambda: socket.socket(socket.AF_UNIX).bind("hostile_mark"),
    lambda: socket.fromfd(1, socket.AF_UNIX, socket.SOCK_STREAM),
):
    try:
        print("hostile: a socket", attempt())
    except BaseException:
        pass
