"""Small measuring programs for two ends of a network: echo, connection establishment, web pages, QUIC.

`skybraid probe serve` is the server; the other commands are clients. They use ordinary sockets, so they run in any node
of an emulated network and on any machine. The metrics are those of Chavali 2022, section 4.4: connection establishment
time, time to first byte, page load time, ping.
"""
