"""What uses the flow and is no part of it: reports, pipelines, services, Python wheels.

Belongs here: what takes a finished zip or the recipes and makes something else of them. Nothing
that a build or its verdict needs.
"""
