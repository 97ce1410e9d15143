"""Video: clips, their encoding, and their picture quality after loss.

`clips` opens a clip and `encode` makes a bitstream of it, of which a run knows only when which units of which size go
out. `decode` makes pictures of what has arrived, and `quality` holds them against what was sent. `timecode` writes into
each picture which one it is. `pipeline` is a camera and a screen as programs: `rtp` has what is on the wire, `sockets`
how it goes there, `jitter` the buffer of the receiver. PyAV is needed for what draws, encodes and decodes.
"""
