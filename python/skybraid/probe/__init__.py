"""Small measuring programs for two ends of a network: echo, connection establishment, web pages, QUIC.

`skybraid probe serve` answers at one end, the others measure at the other. They are ordinary programs over ordinary
sockets, so they run in any node of an emulated network and on any machine. What they measure is that of
Chavali 2022, section 4.4: connection establishment time, time to first byte, page load, ping.
"""
