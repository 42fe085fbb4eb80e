"""Sound as numbers: formats, framing, resampling, levels. Pure: no clock, no I/O, no knowledge of calls."""
