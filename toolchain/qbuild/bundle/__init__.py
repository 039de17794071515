"""What goes into the zip, and every paper in it.

Belongs here: choosing the files that the binaries need, writing them and what is said about them
(manifest, provenance, SBOM, licences, README.txt, start scripts). Not: building what is packed
(``steps``), judging the result (``verify``).
"""
