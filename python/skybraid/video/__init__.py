"""Video: clips, their encoding, and their picture quality after loss.

`clips` opens a clip and `encode` encodes it; a run uses only the times and sizes of its units. `decode` decodes the
received units, and `quality` compares the pictures with those sent. `timecode` draws a number into each picture.
`pipeline` contains camera and screen programs: `rtp` the packets, `sockets` their transport, `jitter` the receiver's
buffer. Drawing, encoding and decoding need PyAV.
"""
