# Ape-X for CPUs. Not built yet: no machine of the developers runs a Docker daemon.
#
#   docker build --tag apex_agents .
#   docker run --init --rm --interactive --tty apex_agents              # make train
#   docker run --init --rm apex_agents make test
#   docker run --init --rm --volume "$PWD/runs:/apex_agents/runs" apex_agents make train-dpg
FROM python:3.11-slim

# The two libraries draw control tasks for videos.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git libegl1 libgl1-mesa-dri make \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /apex_agents
COPY . .
# uv finds the Python of the image.
RUN UV_NO_CACHE=1 make .venv/.installed

CMD ["make", "train"]
