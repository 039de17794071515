qbuild: CUDA 13.0 no longer compiles for architecture 61 (Pascal)
  where: recipe gtx1060: cuda.architectures
  to do: use CUDA 12.9, the last that does, or drop 61-real
