"""How fast a finished zip is: tokens per second alone, and under load by several users.

What belongs in here: running the zip's own ``llama-bench`` and ``llama-server``, the load that is
put on the server, and the arithmetic of paired rounds. It measures; it never judges a zip.
"""
