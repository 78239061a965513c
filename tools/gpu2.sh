#!/usr/bin/env bash
# The steps of gpu.sh that need two GPUs; takes $PYTHON and $OUT as that does.
ONLY='^build$|^two-gpus' exec "$(dirname "$0")/gpu.sh"
